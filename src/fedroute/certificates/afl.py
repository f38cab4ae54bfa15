"""What is known of AFL."""

import math

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training

H, A = (1.0, 10.0), (0.0, 1.0)
EQUAL = math.sqrt(H[1]) / (math.sqrt(H[0]) + math.sqrt(H[1]))  # where both losses are the same
TRAINING = Training(rounds=90, lr=0.1, batch_size=1, local_steps=1)


def fedavg(make: Make) -> tuple[float, float]:
    f = classes([5, 40, 20, 12])
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.6)
    _, a = train(make(gamma=0.0), f, network(), training)
    _, b = train(FedAvg(), f, network(), training.model_copy(update={"weighting": UNIFORM}))
    return gap(a.server["w"], b.server["w"]), 0.0


def equaliser(make: Make) -> tuple[float, float]:
    """The larger of how far w is from that point, and lambda from the mixture whose optimum it is."""
    _, state = train(make(gamma=0.2), *quadratics(H, A), TRAINING)
    g = [h * (EQUAL - a) for h, a in zip(H, A, strict=True)]
    w, lam = float(state.server["w"]["weight"]), float(state.server["lam"][0])
    return max(abs(w - EQUAL), abs(lam + g[1] / (g[0] - g[1]))), 0.0


def projected(make: Make) -> tuple[float, float]:
    """Losses 0.5, 2 and 0 at the start, gamma 0.2: (1/3 + 0.1, 1/3 + 0.4, 1/3) less t = 1/6 each."""
    f, task = quadratics((1.0, 4.0, 1.0), (1.0, -1.0, 0.0))
    _, state = train(make(gamma=0.2), f, task, Training(rounds=1, lr=0.1, batch_size=1))
    want = (1 / 3 + 0.1 - 1 / 6, 1 / 3 + 0.4 - 1 / 6, 1 / 6)
    return max(abs(a - b) for a, b in zip(state.server["lam"].tolist(), want, strict=True)), 0.0


CLAIMS = [
    Claim("gamma = 0 is FedAvg with clients weighted uniformly: largest difference", fedavg, 1e-12),
    Claim(
        f"two quadratics h=(1, 10), a=(0, 1): ends where both losses are the same, {EQUAL:.6f}, which is the minimum "
        "of the larger one, and lambda is the mixture whose optimum that is: largest difference",
        equaliser,
        1e-4,
    ),
    Claim(
        "one round: lambda is lambda + gamma F projected onto the simplex (Mohri et al. 2019, algorithm 1)",
        projected,
        1e-12,
    ),
]
