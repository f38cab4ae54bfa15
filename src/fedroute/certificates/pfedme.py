"""What is known of pFedMe."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch.func import functional_call

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.engines.sequential import Sequential
from fedroute.rounds import prepare, run_round, start, work_of_round
from fedroute.tree import flatten

A, LAMS = 3.0, (0.1, 1.0, 15.0)


def exact(make: Make) -> tuple[float, float]:
    """f = (theta - a)^2 / 2, one local step a round for three rounds: theta against (a + lam w) / (1 + lam), w being
    that from which the round started. Each inner step leaves a hundredth of the way."""
    worst = 0.0
    for lam in LAMS:
        f, task = quadratics((1.0,), (A,))
        t = Training(rounds=3, lr=0.3, batch_size=1, local_steps=1)
        alg = prepare(make(lam=lam, inner_steps=6, inner_lr=0.99 / (1 + lam)), task, t)
        state = start(alg, f)
        for r in range(t.rounds):
            w = float(state.server["w"]["weight"])
            state = run_round(alg, Sequential(alg, f), f, t, state, work_of_round(alg, f, t, 0, r))
            theta = float(alg.personal(state.server, state.privates[0])["weight"])
            worst = max(worst, abs(theta - (A + lam * w) / (1 + lam)))
    return worst, 0.0


def outer(make: Make) -> tuple[float, float]:
    """w after 3 rounds of 4 local steps against the recursion w <- w - eta lam (w - (a + lam w) / (1 + lam))."""
    worst = 0.0
    for lam in LAMS:
        f, task = quadratics((1.0,), (A,))
        t = Training(rounds=3, lr=0.3, batch_size=1, local_steps=4)
        _, state = train(make(lam=lam, inner_steps=6, inner_lr=0.99 / (1 + lam)), f, task, t)
        w = 0.0
        for _ in range(12):
            w -= t.lr * lam * (w - (A + lam * w) / (1 + lam))
        worst = max(worst, abs(float(state.server["w"]["weight"]) - w))
    return worst, 0.0


def by_hand(make: Make) -> tuple[float, float]:
    """Two inner steps and the outer one on a network and one batch, written out."""
    lam, inner, lr = 2.0, 0.1, 0.05
    f, task = classes([8]), network(norm=False)
    t = Training(rounds=1, lr=lr, batch_size=8, local_epochs=1)
    alg, state = train(make(lam=lam, inner_steps=2, inner_lr=inner), f, task, t)
    w, batch = task.init(), f.take(f.train[0])

    def g(at: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        p = {k: v.detach().requires_grad_() for k, v in at.items()}
        loss = task.loss(functional_call(task.module, p, (batch["x"],)), batch)
        return dict(zip(p, torch.autograd.grad(loss, list(p.values())), strict=True))

    one, first = g(w), w
    theta = {k: first[k] - inner * one[k] for k in w}
    two = g(theta)
    theta = {k: theta[k] - inner * (two[k] + lam * (theta[k] - w[k])) for k in w}
    after = {k: w[k] - lr * lam * (w[k] - theta[k]) for k in w}
    return max(gap(alg.personal(state.server, state.privates[0]), theta), gap(state.server["w"], after)), 0.0


def rest(make: Make) -> tuple[float, float]:
    """Two clients of unequal curvature, one local step a round: the optimum of the mean envelope, which is
    sum r_i a_i / sum r_i with r_i = lam h_i / (lam + h_i)."""
    h, a, lam = (1.0, 10.0), (0.0, 1.0), 2.0
    t = Training(rounds=7, lr=0.8, batch_size=1, local_steps=1, weighting=UNIFORM)
    _, state = train(make(lam=lam, inner_steps=30, inner_lr=2 / 15), *quadratics(h, a), t)
    r = [lam * x / (lam + x) for x in h]
    return float(state.server["w"]["weight"]), sum(x * y for x, y in zip(r, a, strict=True)) / sum(r)


def without_spring(make: Make) -> tuple[float, float]:
    """lam = 0: the largest move of w, and the largest difference of theta from plain local SGD at the inner rate."""
    f, task = classes([30, 17]), network(norm=False)
    t = Training(rounds=1, lr=0.7, batch_size=8, local_epochs=2)
    alg, state = train(make(lam=0.0, inner_steps=1, inner_lr=0.1), f, task, t)
    plain = prepare(FedAvg(), task, t.model_copy(update={"lr": 0.1}))
    alone, work = start(plain, f), work_of_round(plain, f, t, 0, 0)._replace(lr=0.1)
    worst = gap(state.server["w"], task.init())
    for answer in Sequential(plain, f).run(alone.server, alone.privates, work):
        trained = {k: v + answer.update["dw"][k] for k, v in task.init().items()}
        worst = max(worst, gap(alg.personal(state.server, state.privates[answer.client]), trained))
    return worst, 0.0


def stiff(make: Make) -> tuple[float, float]:
    """lam = 1e6: w against FedAvg's after three rounds."""
    lam = 1e6
    f, task = classes([30, 17]), network(norm=False)
    t = Training(rounds=3, lr=0.1, batch_size=8, local_epochs=1, weighting=UNIFORM)
    _, state = train(make(lam=lam, inner_steps=2, inner_lr=1 / lam), f, task, t)
    _, want = train(FedAvg(), f, task, t)
    return gap(state.server["w"], want.server["w"]), 0.0


def no_slack(make: Make) -> tuple[float, float]:
    """lam = 1e6, one local step: theta against the w from which the round started."""
    f, task = classes([8]), network(norm=False)
    t = Training(rounds=1, lr=0.1, batch_size=8, local_epochs=1)
    alg, state = train(make(lam=1e6, inner_steps=2, inner_lr=1e-6), f, task, t)
    return gap(alg.personal(state.server, state.privates[0]), task.init()), 0.0


def mixing(beta: float) -> Callable[[Make], tuple[float, float]]:
    """The server's step against (1 - beta) w + beta mean w_i, the w_i taken from the clients' answers."""

    def measure(make: Make) -> tuple[float, float]:
        f, task = classes([12, 30, 17]), network(norm=False)
        t = Training(rounds=1, lr=0.1, batch_size=8)
        alg = prepare(make(beta=beta), task, t)
        state, work = start(alg, f), work_of_round(alg, f, t, 0, 0)
        answers = list(Sequential(alg, f).run(state.server, state.privates, work))
        after = run_round(alg, Sequential(alg, f), f, t, state, work).server["w"]
        worst = 0.0
        for k, w in state.server["w"].items():
            mean = torch.stack([w + a.update["dw"][k] for a in answers]).mean(0)
            worst = max(worst, float((after[k] - (1 - beta) * w - beta * mean).abs().max()))
        return worst, 0.0

    return measure


def planted(make: Make) -> tuple[float, float]:
    """Of three clients client i's theta names class i for any row, and w names class 0: the part of rows, all of class
    i, that the personal models name rightly (1), plus that of the global model (1/3)."""
    f, task = classes([4, 4, 4]), network(norm=False)
    alg = prepare(make(), task, Training())
    state = start(alg, f)

    def naming(label: int) -> dict[str, torch.Tensor]:
        return {k: torch.zeros_like(v) for k, v in task.init().items()} | {
            "2.bias": torch.eye(3, dtype=torch.float64)[label]
        }

    server, right = state.server | {"w": naming(0)}, [0, 0]
    for i, private in state.privates.items():
        met = {"theta": naming(i), "met": torch.tensor(True)}
        for n, w in enumerate((alg.personal(server, private | met), server["w"])):
            right[n] += int((functional_call(task.module, w, (f.x[f.train[i]],)).argmax(1) == i).sum())
    return right[0] / 12 + right[1] / 12, 4 / 3


def springs(make: Make) -> tuple[float, float]:
    """`adaptive`: clients of 10, 20 and 60 rows, one inner step from a w that is one inner step away: theta against the
    spring lam 30 / n_i."""
    lam, inner = 1.0, 0.2
    rows: Sequence[int] = (10, 20, 60)
    f, task = quadratics((1.0, 1.0, 1.0), (A, A, A), rows)
    f = replace(f, labels=("any",))
    alg, state = train(
        make(lam=lam, inner_steps=2, inner_lr=inner, adaptive=True),
        f,
        task,
        Training(rounds=1, lr=1e-12, batch_size=100, local_steps=1),
    )
    worst = 0.0
    for i, n in enumerate(rows):
        theta = 0.0
        for _ in range(2):
            theta -= inner * (theta - A + lam * 30 / n * theta)
        worst = max(worst, abs(float(alg.personal(state.server, state.privates[i])["weight"]) - theta))
    return worst, 0.0


def only_theta(make: Make) -> tuple[float, float]:
    """How many weights of norms are at the server, or the same at two clients though both trained."""
    f, task = classes([30, 40]), network()
    t = Training(rounds=2, lr=0.1, batch_size=8)
    alg, state = train(make(private=("norm",)), f, task, t)
    sent = [k for k in flatten(state.server) if k.rpartition("/")[2] in task.norms]
    a, b = (alg.personal(state.server, p) for p in state.privates.values())
    same = [k for k in task.norms if "num_batches" not in k and gap({k: a[k]}, {k: b[k]}) == 0]
    return float(len(sent) + len(same)), 0.0


CLAIMS = [
    Claim(
        "f = (theta - a)^2 / 2 reaches theta = (a + lam w) / (1 + lam) for lam 0.1, 1 and 15 (T Dinh et al. 2020, "
        "algorithm 1, the inner problem): largest difference",
        exact,
        1e-9,
    ),
    Claim(
        "the local step is w - eta lam (w - theta) (algorithm 1): w of the same client after 3 rounds of 4 "
        "local steps: largest difference",
        outer,
        1e-9,
    ),
    Claim("two inner steps and the local step on a network, written out: largest difference", by_hand, 1e-12),
    Claim(
        "two quadratics h=(1, 10), a=(0, 1), lam 2, one local step: comes to rest at the optimum of the mean envelope, "
        "sum r_i a_i / sum r_i with r_i = lam h_i / (lam + h_i)",
        rest,
        1e-6,
    ),
    Claim(
        "lam = 0: w stays where it was and theta is plain local SGD: largest difference",
        without_spring,
        1e-12,
    ),
    Claim("lam to infinity: w is FedAvg's: largest difference at lam 1e6", stiff, 1e-5),
    Claim("lam to infinity: theta is w: largest difference at lam 1e6", no_slack, 1e-5),
    Claim("beta 1: the server takes the mean of the w_i (algorithm 1): largest difference", mixing(1.0), 1e-12),
    Claim("beta 2: the server takes (1 - beta) w + beta mean w_i: largest difference", mixing(2.0), 1e-12),
    Claim(
        "a client predicts with theta and the global model is w: planted weights, rows named rightly", planted, 1e-12
    ),
    Claim("adaptive: a client's spring is lam times the mean of rows over its rows: largest difference", springs, 1e-9),
    Claim("private norms differ between clients and are not at the server (FedBN): exceptions", only_theta, 0.0),
]
