"""What is known of q-FFL."""

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training

H, A, LR = (1.0, 4.0), (0.0, 1.0), 0.05


def fedavg(make: Make) -> tuple[float, float]:
    f = classes([5, 40, 20, 12])
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.6)
    _, a = train(make(q=0.0), f, network(), training)
    _, b = train(FedAvg(), f, network(), training.model_copy(update={"weighting": UNIFORM}))
    return gap(a.server["w"], b.server["w"]), 0.0


def one_round(make: Make) -> tuple[float, float]:
    q, steps = 2.0, 3
    _, state = train(make(q=q), *quadratics(H, A, (2, 2)), Training(rounds=1, lr=LR, batch_size=1, local_steps=steps))
    top = bottom = 0.0
    for h, a in zip(H, A, strict=True):
        f, w = h / 2 * a**2 or 1e-10, 0.0
        for _ in range(steps):
            w -= LR * h * (w - a)
        d = -w / LR
        top += f**q * d
        bottom += q * f ** (q - 1) * d**2 + f**q / LR
    return float(state.server["w"]["weight"]), -top / bottom


def fair_point(make: Make) -> tuple[float, float]:
    """One local step: rests where sum_i F_i^q F_i' = 0, found by bisection."""
    q = 3.0
    _, state = train(make(q=q), *quadratics(H, A), Training(rounds=60, lr=LR, batch_size=1, local_steps=1))
    low, high = 0.0, 1.0
    for _ in range(100):
        w = (low + high) / 2
        slope = sum((h / 2 * (w - a) ** 2) ** q * h * (w - a) for h, a in zip(H, A, strict=True))
        low, high = (w, high) if slope < 0 else (low, w)
    return float(state.server["w"]["weight"]), low


CLAIMS = [
    Claim("q = 0 is FedAvg with clients weighted uniformly: largest difference", fedavg, 1e-12),
    Claim(
        "two quadratics, one round of 3 steps, q = 2: w - sum Delta_i / sum h_i (Li et al. 2020, algorithm 2)",
        one_round,
        1e-9,
    ),
    Claim(
        "q = 3, one local step: rests where sum F_i^q grad F_i = 0, the optimum of sum F_i^(q+1) / (q+1)",
        fair_point,
        1e-4,
    ),
]
