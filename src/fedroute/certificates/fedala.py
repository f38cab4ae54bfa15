"""What is known of FedALA."""

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training

H, A, LR, K, ETA = (1.0, 3.0), (0.3, 2.0), 0.1, 8, 5.0


def no_learning(make: Make) -> tuple[float, float]:
    f = classes([5, 40, 20, 12])
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.6)
    _, a = train(make(s=0.0), f, network(), training)
    _, b = train(FedAvg(), f, network(), training)
    return gap(a.server["w"], b.server["w"]), 0.0


def by_hand(make: Make) -> tuple[float, float]:
    """Client 0 after round 2, of which the first half learns W from 1, in plain arithmetic."""
    training = Training(rounds=2, lr=LR, batch_size=1, local_steps=K, weighting=UNIFORM)
    alg, state = train(make(s=0.5, eta=ETA, higher=("weight",)), *quadratics(H, A), training)
    own = []
    for h, a in zip(H, A, strict=True):
        w = 0.0  # all models are equal in round 1, so W stays 1 and only the second half moves them
        for _ in range(K // 2):
            w -= LR * h * (w - a)
        own.append(w)
    shared, local, mix = sum(own) / 2, own[0], 1.0
    start = shared
    for _ in range(K // 2):
        mix = min(1.0, max(0.0, mix - ETA * H[0] * (start - A[0]) * (shared - local)))
        start = local + (shared - local) * mix
    for _ in range(K // 2):
        start -= LR * H[0] * (start - A[0])
    return float(alg.personal(state.server, state.privates[0])["weight"]), start


def worse_global(make: Make) -> tuple[float, float]:
    """The optimum lies beyond the client's own model, seen from the global one: W is clipped at 0."""
    training = Training(rounds=2, lr=0.1, batch_size=1, local_steps=60, weighting=UNIFORM)
    _, state = train(make(s=0.9, eta=5.0, higher=("weight",)), *quadratics((1.0, 1.0), (1.0, -1.0)), training)
    return float(state.privates[0]["mix"]["weight"]), 0.0


CLAIMS = [
    Claim("s = 0 learns no mixture and is FedAvg: largest difference of the shared weights", no_learning, 0.0),
    Claim(
        "two quadratics, two rounds: a client's model is that of equations 4 to 6 in plain arithmetic, W clipped to "
        "[0, 1] and learned from the global model on, then trained",
        by_hand,
        1e-12,
    ),
    Claim("a global model that only leads away from the client's optimum gets the weight 0", worse_global, 0.0),
]
