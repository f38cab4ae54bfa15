"""Federations small enough that the right answer is known: quadratics, a softmax regression, a batch-norm network.

All in float64, through the same round loop as any run.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedroute.config import Training
from fedroute.core import Algorithm, Task
from fedroute.data.federation import Federation
from fedroute.engines.sequential import Sequential
from fedroute.randomness import generator
from fedroute.rounds import State, prepare, run_round, start, work_of_round
from fedroute.weighting import Weighting

UNIFORM = Weighting(by="uniform")


class Quadratic(nn.Module):
    """f(w) = h/2 |w - a|^2 for a row x = (h, a); w: (d,), from `w0`."""

    def __init__(self, d: int = 1, w0: float = 0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((d,), w0, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x[:, 0] * ((self.weight - x[:, 1:]) ** 2).sum(1)


def mean_of_outputs(out: Tensor, batch: dict[str, Tensor]) -> Tensor:
    return out.mean()


def quadratics(h: Sequence[float], a: Sequence[float], rows: Sequence[int] | None = None) -> tuple[Federation, Task]:
    """Client i has rows[i] equal rows (1 by default) of f_i = h_i/2 (w - a_i)^2: with a batch of one row, so many steps
    a pass."""
    rows = rows or [1] * len(h)
    x = torch.cat([torch.tensor([[h_i, a_i]] * n, dtype=torch.float64) for h_i, a_i, n in zip(h, a, rows, strict=True)])
    return federation(x, torch.zeros(len(x), dtype=torch.int64), rows), Task(Quadratic(), loss=mean_of_outputs)


def federation(x: Tensor, y: Tensor, rows: Sequence[int]) -> Federation:
    """The first rows[0] rows belong to client c00, the next rows[1] to c01, ...; all are training rows."""
    none = tuple(torch.zeros(0, dtype=torch.int64) for _ in rows)
    return Federation(
        name="rig",
        x=x,
        y=y,
        clients=tuple(f"c{i:02d}" for i in range(len(rows))),
        train=torch.arange(len(x)).split(list(rows)),
        validation=none,
        test=none,
    )


def classes(rows: Sequence[int], d: int = 6, k: int = 3, seed: int = 0) -> Federation:
    """Rows of d features and k classes; client i's features are centred at i."""
    g = generator(seed, "rig")
    x = torch.randn(sum(rows), d, generator=g, dtype=torch.float64)
    y = torch.randint(0, k, (len(x),), generator=g)
    return federation(x + torch.arange(len(rows)).repeat_interleave(torch.tensor(rows)).unsqueeze(1), y, rows)


def network(
    norm: bool = True,
    d: int = 6,
    k: int = 3,
    dtype: torch.dtype = torch.float64,
    frozen: bool = False,
    dropout: float = 0.0,
) -> Task:
    """Two layers, between them batch norm or nothing and, where asked for, dropout; its first bias may be frozen. The
    second layer is the head."""
    norms, drops = [nn.BatchNorm1d(7)] if norm else [], [nn.Dropout(dropout)] if dropout else []
    module = nn.Sequential(nn.Linear(d, 7), *norms, nn.ReLU(), *drops, nn.Linear(7, k)).to(dtype)
    g = generator(0, "weights")
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * 0.3)
    module[0].bias.requires_grad_(not frozen)
    return Task(module, roles={f"{len(module) - 1}.": "head"})


def train(
    algorithm: Algorithm, federation: Federation, task: Task, training: Training, seed: int = 0
) -> tuple[Algorithm, State]:
    """The algorithm bound to the task, and the state after all rounds."""
    alg = prepare(algorithm, task, training)
    engine, state = Sequential(alg, federation), start(alg, federation)
    for r in range(training.rounds):
        work = work_of_round(alg, federation, training, seed, r)
        state = run_round(alg, engine, federation, training, state, work, _fail)
    return alg, state


class LeftOut(RuntimeError):
    """A client was left out of a round in which nobody was meant to be."""


def _fail(message: str) -> None:
    raise LeftOut(message)


def gap(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference of two sets of weights; infinite where their names or dtypes differ."""
    if a.keys() != b.keys() or any(a[k].dtype != b[k].dtype for k in a):
        return float("inf")
    return max((float((a[k].double() - b[k].double()).abs().max()) for k in a), default=0.0)
