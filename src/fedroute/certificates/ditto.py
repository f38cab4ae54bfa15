"""What is known of Ditto."""

from fedroute.algorithms.alone import Alone
from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedavg import LR, A, H, K, fixed_point
from fedroute.certificates.presets import LOCAL
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.tree import flatten


def at_rest(make: Make) -> tuple[float, float]:
    """Of both clients and two lam the largest difference of v from (h a + lam w) / (h + lam), w FedAvg's point."""
    training = Training(rounds=30, lr=LR, batch_size=1, local_steps=K, weighting=UNIFORM)
    worst, w = 0.0, fixed_point(H, A, LR, (K, K))
    for lam in (0.5, 19.0):
        alg, state = train(make(lam=lam), *quadratics(H, A), training)
        for i, (h, a) in enumerate(zip(H, A, strict=True)):
            v = float(alg.personal(state.server, state.privates[i])["weight"])
            worst = max(worst, abs(v - (h * a + lam * w) / (h + lam)))
    return worst, 0.0


def tight(make: Make) -> tuple[float, float]:
    """lam 10^4 at a learning rate that bears it: v is the server's weights up to h / lam times their way to a."""
    training = Training(rounds=5, lr=1e-4, batch_size=1, local_steps=K, weighting=UNIFORM)
    f, task = quadratics(H, A)
    alg, state = train(make(lam=1e4), f, task, training.model_copy(update={"rounds": 4}))
    w = float(state.server["w"]["weight"])  # to which round 5 is tied
    alg, state = train(make(lam=1e4), f, task, training)
    return max(abs(float(alg.personal(state.server, p)["weight"]) - w) for p in state.privates.values()), 0.0


def global_path(make: Make) -> tuple[float, float]:
    f, training = classes([5, 40, 20, 12]), Training(rounds=3, clients_per_round=0.7, **LOCAL)
    _, a = train(make(lam=0.7), f, network(), training)
    _, b = train(FedAvg(), f, network(), training)
    return gap(flatten(a.server), flatten(b.server)) + abs(a.up_bytes - b.up_bytes), 0.0


def no_spring(make: Make) -> tuple[float, float]:
    f, training = classes([5, 40, 20]), Training(rounds=3, **LOCAL)
    (a, x), (b, y) = (train(alg, f, network(), training) for alg in (make(lam=0.0), Alone()))
    both = [(a.personal(x.server, x.privates[i]), b.personal(y.server, y.privates[i])) for i in x.privates]
    return max(gap(v, w) for v, w in both), 0.0


CLAIMS = [
    Claim(
        "two quadratics h=(1, 10), a=(0, 1), lr 0.05, K=10, lam 0.5 and 19: v_k comes to rest at "
        "(h_k a_k + lam w) / (h_k + lam), the optimum of F_k + lam/2 |v - w|^2 (Li et al. 2021, h_k): largest "
        "difference",
        at_rest,
        1e-9,
    ),
    Claim("lam 10^4: v_k is the server's weights: largest difference", tight, 2e-3),
    Claim(
        "the global path is FedAvg's, bit for bit and byte for byte, with batch norm, momentum and weight decay: "
        "largest difference",
        global_path,
        0.0,
    ),
    Claim("lam = 0: v_k is trained alone, bit for bit: largest difference", no_spring, 0.0),
]
