"""What is known of FedNova."""

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.core import Algorithm, run_client
from fedroute.engines.base import context
from fedroute.rounds import prepare, start, work_of_round

H, A, STEPS = 2.0, (0.0, 1.0), (2, 18)


def consistent(make: Make) -> tuple[float, float]:
    """Two clients that differ only in a_i and in their steps, a small lr: the optimum is the mean of the a_i."""
    training = Training(rounds=20, lr=1e-3, batch_size=1, weighting=UNIFORM, server_lr=25.0)
    _, state = train(make(), *quadratics((H, H), A, STEPS), training)
    return float(state.server["w"]["weight"]), 0.5


def fixed_point(make: Make) -> tuple[float, float]:
    """At any lr: client i goes 1 - (1 - lr h)^tau_i of the way, counted per step."""
    lr = 0.05
    training = Training(rounds=40, lr=lr, batch_size=1, weighting=UNIFORM)
    _, state = train(make(), *quadratics((H, H), A, STEPS), training)
    r = [(1 - (1 - lr * H) ** t) / t for t in STEPS]
    return float(state.server["w"]["weight"]), sum(x * a for x, a in zip(r, A, strict=True)) / sum(r)


def momentum_norm(make: Make) -> tuple[float, float]:
    rho, tau = 0.9, 7
    return _a(make(), tau, momentum=rho, weight_decay=0.1), (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)


def proximal_norm(make: Make) -> tuple[float, float]:
    mu, tau, lr = 3.0, 7, 0.1
    return _a(make(mu=mu), tau, lr=lr), (1 - (1 - lr * mu) ** tau) / (lr * mu)


def _a(algorithm: Algorithm, tau: int, lr: float = 0.1, **local: float) -> float:
    training = Training(rounds=1, lr=lr, batch_size=1, **local)  # type: ignore[arg-type]
    f, task = quadratics((1.0,), (1.0,), (tau,))
    alg = prepare(algorithm, task, training)
    state, work = start(alg, f), work_of_round(alg, f, training, 0, 0)
    ctx = context(alg, state.server, state.privates[0], 0, work)
    update, _, _ = run_client(alg, ctx, (f.take(rows) for rows in work.batches[0]))
    return float(update["a"])


def equal_steps(make: Make) -> tuple[float, float]:
    f = classes([5, 40, 20, 12])
    training = Training(rounds=3, lr=0.1, batch_size=8, local_steps=5, momentum=0.9, nesterov=True, weight_decay=0.01)
    _, a = train(make(), f, network(), training)
    _, b = train(FedAvg(), f, network(), training)
    return gap(a.server["w"], b.server["w"]), 0.0


CLAIMS = [
    Claim(
        "two clients of equal say with 2 and 18 steps, lr 0.001: the optimum 0.5 (Wang et al. 2020, theorem 3), where "
        "FedAvg rests near the mean weighted by steps, 0.9",
        consistent,
        0.01,
    ),
    Claim(
        "the same at lr 0.05: comes to rest at sum r_i a_i / sum r_i with r_i = (1 - (1 - lr h)^tau_i) / tau_i",
        fixed_point,
        1e-9,
    ),
    Claim(
        "|a|_1 of 7 steps with momentum 0.9 is (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho), with weight "
        "decay or without (section 4.1)",
        momentum_norm,
        1e-9,
    ),
    Claim(
        "|a|_1 of 7 steps with a proximal term is (1 - (1 - lr mu)^tau) / (lr mu) (section 4.1)",
        proximal_norm,
        1e-9,
    ),
    Claim("equal steps: FedAvg, with Nesterov momentum and weight decay: largest difference", equal_steps, 1e-12),
]
