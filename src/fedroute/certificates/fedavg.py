"""What is known of FedAvg."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import UNIFORM, classes, federation, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.data.federation import Federation
from fedroute.randomness import generator

H, A, LR, K = (1.0, 10.0), (0.0, 1.0), 0.05, 10


def fixed_point(h: Sequence[float], a: Sequence[float], lr: float, steps: Sequence[int], mu: float = 0.0) -> float:
    """Where averaging of K_i local gradient steps on h_i/2 (w - a_i)^2 + mu/2 (w - w_server)^2 comes to rest: client i
    goes the part r_i = h_i/(h_i + mu) (1 - (1 - lr (h_i + mu))^K_i) of the way to a_i, so w = sum r_i a_i / sum r_i."""
    r = [h_i / (h_i + mu) * (1 - (1 - lr * (h_i + mu)) ** k) for h_i, k in zip(h, steps, strict=True)]
    return sum(r_i * a_i for r_i, a_i in zip(r, a, strict=True)) / sum(r)


def biased(make: Make) -> tuple[float, float]:
    training = Training(rounds=25, lr=LR, batch_size=1, local_steps=K, weighting=UNIFORM)
    _, state = train(make(), *quadratics(H, A), training)
    return float(state.server["w"]["weight"]), fixed_point(H, A, LR, (K, K))


def one_step(make: Make) -> tuple[float, float]:
    """Clients of 5, 40 and 20 rows, each one batch: the union of the data, one step."""
    f, task = classes([5, 40, 20]), network(norm=False)
    _, state = train(make(), f, task, Training(rounds=1, lr=0.1, batch_size=64, local_epochs=1))
    w = {k: v.requires_grad_() for k, v in task.init().items()}
    loss = cross_entropy(functional_call(task.module, w, (f.x,)), f.y)
    g = torch.autograd.grad(loss, list(w.values()))
    return gap(state.server["w"], {k: (v - 0.1 * d).detach() for (k, v), d in zip(w.items(), g, strict=True)}), 0.0


def pooled_statistics(make: Make) -> tuple[float, float]:
    """Two clients centred at -5 (100 rows) and +5 (300 rows), one round of one full batch, lr 0 but for rounding."""
    f, task = _two_centres(), network(d=2, k=2)
    training = Training(rounds=1, lr=1e-12, batch_size=512, local_epochs=1)
    _, state = train(make(), f, task, training)
    w, w0 = state.server["w"], task.init()
    h = f.x @ w0["0.weight"].T + w0["0.bias"]
    parts = [h[rows] for rows in f.train]
    ms = [0.1 * p.mean(0) for p in parts]  # running statistics after one batch: 0.9 old + 0.1 new
    vs = [0.9 + 0.1 * p.var(0, unbiased=True) for p in parts]
    p = [0.25, 0.75]
    mean = p[0] * ms[0] + p[1] * ms[1]
    var = sum(q * (v + (m - mean) ** 2) for q, m, v in zip(p, ms, vs, strict=True))
    want = {"1.running_mean": mean, "1.running_var": var, "1.num_batches_tracked": torch.tensor(1)}
    return gap({k: w[k] for k in want}, want), 0.0  # type: ignore[arg-type]


def usable_statistics(make: Make) -> tuple[float, float]:
    """The same two clients, trained: accuracy with the averaged statistics and with those of the batch itself."""
    f, task = _two_centres(), network(d=2, k=2)
    training = Training(rounds=2, lr=0.05, batch_size=10, local_epochs=10)
    _, state = train(make(), f, task, training)
    hits = []
    for mode in (False, True):
        w = {k: v.clone() for k, v in state.server["w"].items()}
        out = functional_call(task.module.train(mode), w, (f.x,))
        hits.append(float((out.argmax(1) == f.y).double().mean()))
    task.module.train()
    return hits[0], hits[1]


def no_step_no_say(make: Make) -> tuple[float, float]:
    """With batch norm a client of one row makes no step: the others' mean must be as if it were not there."""
    full, few = classes([5, 12, 1]), classes([5, 12])
    training = Training(rounds=2, lr=0.1, batch_size=8, weighting=UNIFORM)
    few = replace(few, x=full.x[:17], y=full.y[:17])
    (_, a), (_, b) = (train(make(), f, network(), training) for f in (full, few))
    return gap(a.server["w"], b.server["w"]), 0.0


def _two_centres() -> Federation:
    g = generator(0, "centres")
    centre = torch.tensor([-5.0] * 100 + [5.0] * 300, dtype=torch.float64)
    x = torch.randn(400, 2, generator=g, dtype=torch.float64) + centre.unsqueeze(1)
    return federation(x, (x[:, 0] > x[:, 1]).long(), [100, 300])


def server_recursion(name: str) -> Callable[[Make], tuple[float, float]]:
    """The server optimiser against the recursion of Reddi et al. 2021, algorithm 2, written out."""

    def measure(make: Make) -> tuple[float, float]:
        b1, b2, tau, eta = 0.9, 0.99, 1e-3, 0.3
        training = Training(rounds=12, lr=LR, batch_size=1, local_steps=K, weighting=UNIFORM, server_optimizer=name,
                            server_lr=eta)  # fmt: skip
        _, state = train(make(), *quadratics(H, A), training)
        x, m, v = 0.0, 0.0, tau**2
        for _ in range(training.rounds):
            d = sum((1 - (1 - LR * h) ** K) * (a - x) for h, a in zip(H, A, strict=True)) / 2
            match name:
                case "momentum":
                    m = b1 * m + d
                    x += eta * m
                    continue
                case "adagrad":
                    m, v = d, v + d * d
                case "adam":
                    m, v = b1 * m + (1 - b1) * d, b2 * v + (1 - b2) * d * d
                case "yogi":
                    m, v = b1 * m + (1 - b1) * d, v - (1 - b2) * d * d * (1 if v > d * d else -1)
            x += eta * m / (v**0.5 + tau)
        return float(state.server["w"]["weight"]), x

    return measure


CLAIMS = [
    Claim(
        "two quadratics h=(1, 10), a=(0, 1), lr 0.05, K=10: comes to rest at sum r_i a_i / sum r_i with "
        "r_i = 1 - (1 - lr h_i)^K, which is 0.713442 and not the optimum 0.909091",
        biased,
        1e-9,
    ),
    Claim(
        "one full-batch step at clients of 5, 40 and 20 rows is a step of gradient descent on the union "
        "(McMahan et al. 2017, section 2: FedSGD): largest difference of a weight",
        one_step,
        1e-12,
    ),
    Claim(
        "batch norm: the mean is the weighted mean, the variance that of the pooled rows (law of total variance), "
        "counts stay whole: largest difference",
        pooled_statistics,
        1e-9,
    ),
    Claim(
        "batch norm, clients centred at -5 and +5: accuracy of the global model with its averaged statistics is within "
        "one point of that with the statistics of the batch",
        usable_statistics,
        0.01,
    ),
    Claim(
        "a client that makes no step (one row, batch norm) has no say, where all say the same: largest difference",
        no_step_no_say,
        0.0,
    ),
    *(
        Claim(
            f"server {name} follows Reddi et al. 2021, algorithm 2, for 12 rounds",
            server_recursion(name),
            1e-12,
        )
        for name in ("momentum", "adagrad", "adam", "yogi")
    ),
]
