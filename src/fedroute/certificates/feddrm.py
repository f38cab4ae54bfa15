"""What is known of FedDRM."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedroute.algorithms.feddrm import FedDRM
from fedroute.algorithms.fedper import FedPer
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.presets import Measure
from fedroute.certificates.rig import classes, federation, gap, network, train
from fedroute.config import Training
from fedroute.core import Task
from fedroute.engines.base import Work, context
from fedroute.rounds import prepare, start
from fedroute.tree import pick

TRAINING = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.7)
WHOLE = Training(rounds=1, lr=0.1, batch_size=1000)  # one step of all rows
ROWS = [5, 40, 20, 12]


def is_fedper(**options: Any) -> Measure:
    """Body, norms and heads against FedPer's."""

    def measure(make: Make) -> tuple[float, float]:
        f = classes(ROWS)
        alg, a = train(make(**options), f, network(), TRAINING)
        _, b = train(FedPer(), f, network(), TRAINING)
        worst = gap(pick(a.server["w"], alg.predictor().names), b.server["w"])
        heads = (gap(a.privates[i]["w"], b.privates[i]["w"]) for i in range(len(ROWS)))
        return max(worst, *heads), 0.0

    return measure


def only_decays(lam: float, role: str) -> Measure:
    """After three rounds of full participation without momentum."""

    def measure(make: Make) -> tuple[float, float]:
        f, task = classes([8, 8]), network(norm=False)
        training = Training(rounds=3, lr=0.1, batch_size=4, weight_decay=0.1)
        alg, state = train(make(lam=lam), f, task, training)
        first = alg.init(alg.task.init(), f.sizes())["w"] | alg.init_client(alg.task.init())["w"]
        mine = {k for k, r in alg.task.roles.items() if r == role}
        want = {k: v * 0.99**6 for k, v in pick(first, mine).items()}
        found = (pick(state.server["w"] | state.privates[i]["w"], mine) for i in range(2))
        return max(gap(w, want) for w in found), 0.0

    return measure


def pooled(make: Make) -> tuple[float, float]:
    """One step of all rows at each client, heads at their start, against the gradient of the sum of all losses."""
    f, task = classes(ROWS), network(norm=False)
    alg, state = train(make(lam=0.3), f, task, WHOLE)
    w = alg.init(alg.task.init(), f.sizes())["w"]
    w = {k: v.requires_grad_() for k, v in (w | alg.init_client(alg.task.init())["w"]).items()}
    label, cells = alg.task(w, f.x)
    owner = f.owner()
    total = 0.3 * cross_entropy(label, f.y) + 0.7 * cross_entropy(cells, owner)
    shared = list(state.server["w"])
    g = torch.autograd.grad(total, [w[k] for k in shared])
    want = {k: w[k].detach() - 0.1 * v for k, v in zip(shared, g, strict=True)}
    return gap(state.server["w"], want), 0.0


def signs(make: Make) -> tuple[float, float]:
    """The router's gradient by its offsets at client 2, weights at random: the mean of q_k, and that less one for its
    own."""
    f, task = classes(ROWS), network(norm=False)
    alg = prepare(make(lam=0.0), task, WHOLE)
    state = start(alg, f)
    w = state.server["w"] | state.privates[2]["w"]
    w = {k: v + 0.02 * torch.cos(torch.arange(v.numel()).double()).view_as(v) for k, v in w.items()}
    ctx = context(alg, state.server, state.privates[2], 2, Work(0, 0, 0.1, (2,), {2: [f.train[2]]}), f)
    batch = f.take(f.train[2])
    g, _, _ = alg.grad(w, batch, ctx)
    name = next(k for k in w if k.endswith("offsets"))
    q = alg.task(w, batch["x"])[1].softmax(1).mean(0)
    own = torch.eye(len(ROWS), dtype=q.dtype)[2]
    return gap({"": g[name].flatten()}, {"": q - own}), 0.0


def proportions(make: Make) -> tuple[float, float]:
    """Clients of 3, 12, 6 and no rows of the same law: q of any row, after 100 rounds of one step."""
    x = torch.ones(21, 2, dtype=torch.float64)
    f, training = (
        federation(x, torch.arange(21) % 2, [3, 12, 6, 0]),
        WHOLE.model_copy(update={"rounds": 100, "lr": 1.0}),
    )
    alg, state = train(make(lam=0.0, branch=4), f, network(norm=False, d=2, k=2), training)
    assert isinstance(alg, FedDRM)
    with torch.no_grad():
        z: Tensor = alg.router()(state.server["w"], x[:1])[0, :3]
    return float((z.softmax(0) - torch.tensor([3.0, 12.0, 6.0]) / 21).abs().max()), 0.0


def alone(make: Make) -> tuple[float, float]:
    """A federation of one client, where the router has nothing to tell apart: FedPer at lam times the rate."""
    f, plain = classes([30]), WHOLE.model_copy(update={"rounds": 3, "batch_size": 8})
    alg, a = train(make(lam=0.25), f, network(), plain)
    _, b = train(FedPer(), f, network(), plain.model_copy(update={"lr": 0.025}))
    return gap(pick(a.server["w"], alg.predictor().names), b.server["w"]), 0.0


class OneWeight(nn.Module):
    """A body of one weight, which a sketch of its gradient holds whole."""

    def __init__(self) -> None:
        super().__init__()
        w = network(norm=False).init()
        self.body, self.head = nn.Linear(6, 7, bias=False), nn.Linear(7, 3)
        self.body.weight = nn.Parameter(w["0.weight"])
        self.head.weight, self.head.bias = nn.Parameter(w["2.weight"]), nn.Parameter(w["2.bias"])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x).relu())
        return out


def self_tuned(make: Make) -> tuple[float, float]:
    """lam after a round of three clients, against the variances of their gradients at its start."""
    f, task = classes([10, 30, 20]), Task(OneWeight(), {"head.": "head"})
    alg, state = train(make(lam="auto"), f, task, WHOLE)
    first = start(alg, f)
    w = {k: v.clone().requires_grad_() for k, v in (first.server["w"] | first.privates[0]["w"]).items()}
    g: list[list[Tensor]] = [[], []]
    for i, rows in enumerate(f.train):
        label, cells = alg.task(w, f.x[rows])
        losses = cross_entropy(label, f.y[rows]), cross_entropy(cells, torch.full((len(rows),), i))
        for found, loss in zip(g, losses, strict=True):
            found.append(torch.autograd.grad(loss, w["body.weight"], retain_graph=True)[0])
    share = (f.sizes().double() / f.sizes().sum()).reshape(3, 1, 1)
    of_label, of_client = (float((share * (v - (share * v).sum(0)) ** 2).sum()) for v in map(torch.stack, g))
    return float(state.server["lam"]), of_client / (of_client + of_label)


def newcomer(make: Make) -> tuple[float, float]:
    """The head of a client that never trained, after two passes over its own rows, against FedPer's on that body."""
    f, task = classes([9, 20, 17]), network()
    late = f.with_newcomers(["c02"])
    alg, state = train(make(lam=0.3), late, task, TRAINING)
    fedper = prepare(FedPer(), task, TRAINING)
    server = state.server | {"w": pick(state.server["w"], task.names)}
    batches = [f.take(rows) for rows in f.train[2].split(9)] * 2
    work = Work(3, 0, 0.1, (2,), {2: [f.train[2]] * len(batches)})
    ctxs = (context(a, s, state.privates[2], 2, work, late) for a, s in ((alg, state.server), (fedper, server)))
    got, want = (a.adapt(ctx, batches)["w"] for a, ctx in zip((alg, fedper), ctxs, strict=True))
    return gap(got, want), 0.0


CLAIMS = [
    Claim(
        "lam = 1: body and heads are FedPer's, bit for bit, with batch norm, momentum and weight decay: largest "
        "difference",
        is_fedper(lam=1.0),
        0.0,
    ),
    Claim("detach: so they are at any lam: largest difference", is_fedper(lam=0.3, detach=True), 0.0),
    Claim("lam = 1: the router's weights do nothing but decay", only_decays(1.0, "router"), 1e-12),
    Claim("lam = 0: the clients' own heads do nothing but decay", only_decays(0.0, "head"), 1e-12),
    Claim(
        "one step of all rows: body and router go as one step on the pooled rows, where the client is a label: largest "
        "difference",
        pooled,
        1e-12,
    ),
    Claim(
        "at client i the gradient by offset k is the mean of q_k, less one for k = i: largest difference", signs, 1e-12
    ),
    Claim(
        "clients of one law: q is each client's share of the rows, and of those without rows none", proportions, 1e-6
    ),
    Claim("a federation of one client: FedPer at lam times the learning rate: largest difference", alone, 1e-12),
    Claim("lam: auto is G_client^2 / (G_client^2 + G_label^2) of the clients' whole gradients", self_tuned, 1e-12),
    Claim("a newcomer gets the head that FedPer gives it on that body, bit for bit", newcomer, 0.0),
]
