"""What is known of APFL."""

from fedroute.algorithms.alone import Alone
from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedavg import LR, A, H
from fedroute.certificates.presets import LOCAL
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.tree import flatten, pick

STEPS, ROUNDS = 4, 3


def recursion(make: Make) -> tuple[float, float]:
    """The steps on two quadratics in plain numbers: largest difference of a client's v, alpha or model."""
    training = Training(rounds=ROUNDS, lr=LR, batch_size=1, local_steps=STEPS, weighting=UNIFORM)
    alg, state = train(make(alpha=0.3), *quadratics(H, A), training)
    w, v, alpha = 0.0, [0.0, 0.0], [0.3, 0.3]
    for _ in range(ROUNDS):
        ends = []
        for i, (h, a) in enumerate(zip(H, A, strict=True)):
            x, y, s = w, v[i], alpha[i]
            for _ in range(STEPS):
                slope = h * (s * y + (1 - s) * x - a)  # at the mixture
                x, y, s = x - LR * h * (x - a), y - LR * s * slope, min(1, max(0, s - LR * (y - x) * slope))
            ends.append(x)
            v[i], alpha[i] = y, s
        w = sum(ends) / 2
    gaps = [abs(float(state.server["w"]["weight"]) - w)]
    for i, p in state.privates.items():
        personal = float(alg.personal(state.server, p)["weight"])
        gaps += [abs(float(p["v"]["weight"]) - v[i]), abs(float(p["alpha"]) - alpha[i])]
        gaps += [abs(personal - (alpha[i] * v[i] + (1 - alpha[i]) * w))]
    moved = max(abs(a - 0.3) for a in alpha) > 0.01
    return max(gaps) if moved else float("inf"), 0.0


def own_only(make: Make) -> tuple[float, float]:
    f, training = classes([5, 40, 20]), Training(rounds=3, **LOCAL)
    (a, x), (b, y) = (train(alg, f, network(), training) for alg in (make(alpha=1.0, adaptive=False), Alone()))
    both = [(a.personal(x.server, x.privates[i]), b.personal(y.server, y.privates[i])) for i in x.privates]
    return max(gap(v, w) for v, w in both), 0.0


def shared_only(make: Make) -> tuple[float, float]:
    f, task, training = classes([5, 40, 20]), network(), Training(rounds=3, **LOCAL)
    alg, state = train(make(alpha=0.0, adaptive=False), f, task, training)
    w = pick(state.server["w"], task.trainable)
    models = [pick(alg.personal(state.server, p), task.trainable) for p in state.privates.values()]
    return max(gap(v, w) for v in models), 0.0


def global_path(make: Make) -> tuple[float, float]:
    f, training = classes([5, 40, 20, 12]), Training(rounds=3, clients_per_round=0.7, **LOCAL)
    _, a = train(make(), f, network(), training)
    _, b = train(FedAvg(), f, network(), training)
    return gap(flatten(a.server), flatten(b.server)), 0.0


CLAIMS = [
    Claim(
        "two quadratics, alpha from 0.3: v, alpha and the client's model follow Deng et al. 2020, algorithm 1 and its "
        "adaptive alpha, in plain numbers, each gradient at the mixture: largest difference",
        recursion,
        1e-12,
    ),
    Claim("alpha = 1: trained alone, bit for bit, batch norm included: largest difference", own_only, 0.0),
    Claim("alpha = 0: a client predicts with the shared weights: largest difference", shared_only, 0.0),
    Claim("the shared model is FedAvg's, bit for bit: largest difference", global_path, 0.0),
]
