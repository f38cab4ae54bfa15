"""What is known of SCAFFOLD."""

from collections.abc import Callable
from typing import Any

import torch

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedavg import LR, A, H, K
from fedroute.certificates.rig import classes, network, quadratics, train
from fedroute.config import Training
from fedroute.engines.sequential import Sequential
from fedroute.rounds import prepare, run_round, start, work_of_round

OPTIMUM = sum(h * a for h, a in zip(H, A, strict=True)) / sum(H)
HARD: dict[str, Any] = {"schedule": {"name": "exponential", "gamma": 0.98}, "momentum": 0.5, "clients_per_round": 0.4}


def optimum(**options: str) -> Callable[[Make], tuple[float, float]]:
    def measure(make: Make) -> tuple[float, float]:
        training = Training(rounds=40 if options["option"] == "II" else 100, lr=LR, batch_size=1, local_steps=K)
        _, state = train(make(**options), *quadratics(H, A), training)
        return float(state.server["w"]["weight"]), OPTIMUM

    return measure


def hard_optimum(make: Make) -> tuple[float, float]:
    """Five quadratics, two a round, 1 to 9 steps, a falling learning rate, momentum and weight decay."""
    h, a, decay = (1.0, 4.0, 2.0, 0.5, 3.0), (0.0, 1.0, -2.0, 3.0, 0.5), 0.1
    training = Training(rounds=100, lr=0.05, batch_size=1, weight_decay=decay, **HARD)
    _, state = train(make(), *quadratics(h, a, (1, 9, 4, 2, 6)), training)
    want = sum(x * y for x, y in zip(h, a, strict=True)) / (sum(h) + len(h) * decay)
    return float(state.server["w"]["weight"]), want


def mean_control(**options: str) -> Callable[[Make], tuple[float, float]]:
    """The largest difference of c from the mean of all c_i after rounds of two in five clients, with batch norm."""

    def measure(make: Make) -> tuple[float, float]:
        training = Training(rounds=6, lr=0.1, batch_size=8, weight_decay=0.01, **HARD)
        _, state = train(make(**options), classes([5, 40, 20, 12, 9]), network(), training)
        c, own = state.server["c"], [p["c"] for p in state.privates.values()]
        if set(c) != {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"}:
            return float("inf"), 0.0  # a control variate for what has no gradient
        return max(float((torch.stack([p[k] for p in own]).mean(0) - c[k]).abs().max()) for k in c), 0.0

    return measure


def formula(make: Make) -> tuple[float, float]:
    """Option II against c_i - c + (x - y_i) / (K lr) with the lr of the round, in round 3 of a falling schedule."""
    f, task = classes([30, 70, 11]), network(norm=False)
    training = Training(rounds=3, lr=0.1, batch_size=8, local_epochs=2, schedule={"name": "exponential", "gamma": 0.5})
    alg = prepare(make(), task, training)
    state, worst = start(alg, f), 0.0
    for r in range(training.rounds):
        work, old, engine = work_of_round(alg, f, training, 0, r), state, Sequential(alg, f)
        state = run_round(alg, engine, f, training, state, work)
        for answer in engine.run(old.server, old.privates, work):
            scale, c_i, c = answer.steps * work.lr, old.privates[answer.client]["c"], old.server["c"]
            for k, new in answer.private["c"].items():
                worst = max(worst, float((c_i[k] - c[k] - answer.update["dw"][k] / scale - new).abs().max()))
    return worst, 0.0


def full_gradient(make: Make) -> tuple[float, float]:
    """Option I: c_i after one round is the gradient of all of client i's rows at the server's weights."""
    f, task = classes([30, 70, 11]), network(norm=False)
    alg, state = train(make(option="I"), f, task, Training(rounds=1, lr=0.1, batch_size=8))
    worst = 0.0
    for i, rows in enumerate(f.train):
        g, _, _ = alg.grad(task.init(), f.take(rows), None)  # type: ignore[arg-type]
        worst = max(worst, *(float((g[k] - state.privates[i]["c"][k]).abs().max()) for k in g))
    return worst, 0.0


CLAIMS = [
    Claim(
        "two quadratics h=(1, 10), a=(0, 1), lr 0.05, K=10: reaches the optimum 0.909091, where FedAvg rests at "
        "0.713442 (Karimireddy et al. 2020, theorem III), option II",
        optimum(option="II"),
        1e-6,
    ),
    Claim("the same with option I", optimum(option="I"), 1e-6),
    Claim(
        "five quadratics, two clients a round, 1 to 9 steps, a falling learning rate, momentum and weight decay: "
        "reaches the optimum of the mean of f_i + weight_decay/2 w^2",
        hard_optimum,
        1e-4,
    ),
    Claim(
        "c is the mean of c_i over all clients, and so the corrections c - c_i add up to zero (algorithm 1, line 17), "
        "with two clients in five a round: largest difference, option II",
        mean_control(option="II"),
        1e-12,
    ),
    Claim("the same with option I", mean_control(option="I"), 1e-12),
    Claim(
        "option II under plain SGD is c_i - c + (x - y_i) / (K lr) (algorithm 1, line 12) with the real number of "
        "steps and the learning rate of the round: largest difference",
        formula,
        1e-12,
    ),
    Claim(
        "option I is the gradient at the server's weights over all of a client's rows (algorithm 1, line 12): largest "
        "difference",
        full_gradient,
        1e-12,
    ),
]
