"""What is known of FedDyn."""

import torch

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedavg import LR, A, H, K
from fedroute.certificates.rig import UNIFORM, classes, network, quadratics, train
from fedroute.config import Training
from fedroute.engines.sequential import Sequential
from fedroute.rounds import prepare, run_round, start, work_of_round

OPTIMUM = sum(h * a for h, a in zip(H, A, strict=True)) / sum(H)
HARD = Training(
    rounds=6, lr=0.1, batch_size=8, weight_decay=0.01, momentum=0.5, clients_per_round=0.4,
    schedule={"name": "exponential", "gamma": 0.98},
)  # fmt: skip


def optimum(make: Make) -> tuple[float, float]:
    t = Training(rounds=25, lr=LR, batch_size=1, local_steps=K, weighting=UNIFORM)
    _, state = train(make(alpha=2.0), *quadratics(H, A), t)
    return float(state.server["w"]["weight"]), OPTIMUM


def hard_optimum(make: Make) -> tuple[float, float]:
    """Five quadratics, two a round, 1 to 9 local steps."""
    h, a = (1.0, 4.0, 2.0, 0.5, 3.0), (0.0, 1.0, -2.0, 3.0, 0.5)
    t = Training(rounds=80, lr=0.1, batch_size=1, clients_per_round=0.4)
    _, state = train(make(alpha=5.0), *quadratics(h, a, (1, 9, 4, 2, 6)), t)
    return float(state.server["w"]["weight"]), sum(x * y for x, y in zip(h, a, strict=True)) / sum(h)


def mean_state(make: Make) -> tuple[float, float]:
    _, state = train(make(), classes([5, 40, 20, 12, 9]), network(), HARD)
    h, own = state.server["h"], [p["g"] for p in state.privates.values()]
    if set(h) != {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"}:
        return float("inf"), 0.0  # a state for what has no gradient
    return max(float((torch.stack([p[k] for p in own]).mean(0) - h[k]).abs().max()) for k in h), 0.0


def recursion(make: Make) -> tuple[float, float]:
    """h and theta of each round against the paper's two lines, from all that the clients have answered so far."""
    alpha, m = 0.3, 5
    f, task = classes([5, 40, 20, 12, 9]), network(norm=False)
    alg = prepare(make(alpha=alpha), task, HARD)
    state, worst = start(alg, f), 0.0
    moved = {k: torch.zeros_like(v) for k, v in task.init().items()}  # sum over rounds and clients of theta_k - theta
    for r in range(HARD.rounds):
        work, old = work_of_round(alg, f, HARD, 0, r), state.server["w"]
        answers = list(Sequential(alg, f).run(state.server, state.privates, work))
        state = run_round(alg, Sequential(alg, f), f, HARD, state, work)
        for k, total in moved.items():
            changes = [a.update["dw"][k] for a in answers]
            total += torch.stack(changes).sum(0)
            h = -alpha / m * total
            theta = torch.stack([old[k] + d for d in changes]).mean(0) - h / alpha
            gaps = (state.server["h"][k] - h).abs().max(), (state.server["w"][k] - theta).abs().max()
            worst = max(worst, *(float(d) for d in gaps))
    return worst, 0.0


def gradients(make: Make) -> tuple[float, float]:
    """Local work until the minimum, three rounds: g_k against h_k (theta_k - a_k), theta_k from the client's change."""
    f, task = quadratics(H, A)
    t = Training(rounds=3, lr=0.095, batch_size=1, local_steps=40)
    alg = prepare(make(alpha=5.0), task, t)
    state, worst = start(alg, f), 0.0
    for r in range(t.rounds):
        work, theta = work_of_round(alg, f, t, 0, r), state.server["w"]["weight"]
        for a in Sequential(alg, f).run(state.server, state.privates, work):
            own = theta + a.update["dw"]["weight"]
            worst = max(worst, abs(float(a.private["g"]["weight"] - H[a.client] * (own - A[a.client]))))
        state = run_round(alg, Sequential(alg, f), f, t, state, work)
    return worst, 0.0


CLAIMS = [
    Claim(
        "two quadratics h=(1, 10), a=(0, 1), lr 0.05, K=10: reaches the optimum 0.909091 of the mean, where FedAvg "
        "rests at 0.713442 (Acar et al. 2021)",
        optimum,
        1e-6,
    ),
    Claim(
        "five quadratics, two clients a round, 1 to 9 steps: reaches the optimum of the mean",
        hard_optimum,
        1e-6,
    ),
    Claim(
        "h is the mean of g_k over all clients, with two clients in five a round, momentum and batch norm: largest "
        "difference",
        mean_state,
        1e-12,
    ),
    Claim(
        "h = -alpha/m sum of all changes so far and theta = mean theta_k - h / alpha (algorithm 1): largest difference "
        "in any of 6 rounds",
        recursion,
        1e-12,
    ),
    Claim("after local work until the minimum g_k is the gradient of L_k at theta_k (algorithm 1)", gradients, 1e-9),
]
