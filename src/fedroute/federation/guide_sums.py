"""What a site adds up of its rows for a guide (`router.guide`), the part of a router that needs no client's model.

Of a site's training rows there leave sums: their number, total, products of what is read (of each client by itself for
the distance from its rows), which of many rows say nothing of one, and of few rows nearly all. Of its validation rows:
summed losses, and their distances from what clients' rows look like, sorted, one number a row. No row leaves."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.federation import wire
from fedroute.federation.agreement import Agreement
from fedroute.federation.transport import Payload
from fedroute.router.calibrate import router_losses
from fedroute.router.drm import Drm
from fedroute.router.fits import owner_loss
from fedroute.router.inputs import RouterInput, part_of
from fedroute.router.linear import Linear
from fedroute.router.scores import Scores
from fedroute.router.sums import Sums, rows_of
from fedroute.router.typical import Typical
from fedroute.task import Task
from fedroute.tree import Tree, Weights

FITTED: dict[str, Any] = {"linear": Linear, "drm": Drm}  # classes of posteriors
MOST = 4096  # distances that a site tells; of more rows so many, evenly spaced in their order


class Asked(NamedTuple):
    """One question: what, plain values, tensors."""

    what: str
    spec: dict[str, Any]
    tree: Tree

    def payload(self) -> Payload:
        return {"what": self.what, "spec": json.dumps(self.spec), "tensors": wire.encode(self.tree)}

    @classmethod
    def read(cls, payload: Payload) -> "Asked":
        data = payload.get("tensors")
        if not isinstance(data, bytes):
            raise InputError("sums: a question without tensors; is the hub of the same version of fedroute?")
        try:
            return cls(str(payload.get("what")), json.loads(str(payload.get("spec"))), wire.decode(data))
        except ValueError as e:
            raise InputError(f"sums: a question that is none ({e})") from None


# at a site


def answer(
    federation: Federation, agreement: Agreement, i: int, task: Task, shared: Weights, payload: Payload
) -> Payload:
    """At a site: what its rows add up to. task, shared: the algorithm's task (not its predictor) and the server's "w".

    "totals", "squares": n, and of each kind of input the sum of its numbers, then of their squares about the mean of
    all; "sums": of what is read, standardised, `Sums`; "losses", "grid": of validation rows, under posteriors and
    temperatures; "own", "nearest": distances of validation rows from the own rows, or from the nearest client's.

    Raises InputError for another question."""
    asked, own = Asked.read(payload), federation.as_queries()
    found = _ANSWERS.get(asked.what)
    if found is None:
        raise InputError(f"sums: there is no question {asked.what!r}")
    try:
        here = [int(k) for k in asked.spec["here"]]
        return {"tensors": wire.encode(found(_Own(own, i, here, task, shared), asked))}
    except (KeyError, TypeError, IndexError, ValueError, RuntimeError) as e:
        raise InputError(f"sums: the question {asked.what!r} does not fit ({type(e).__name__}: {e})") from None


@dataclass(frozen=True, eq=False)
class _Own:
    """here: the numbers of the clients that the router knows."""

    federation: Federation
    i: int
    here: Sequence[int]
    task: Task
    shared: Weights

    def reader(self, spec: Mapping[str, Any], state: Tree) -> RouterInput:
        return RouterInput.load(spec, state, self.task, self.shared)

    def raw(self, kinds: Sequence[str]) -> list[dict[str, Tensor]]:
        plain = RouterInput.unscaled([*kinds], self.task, self.shared, self.federation)
        return [plain.raw(x) for x in part_of(self.federation, self.i)]

    def held(self, read: RouterInput) -> Tensor:
        return rows_of(read, self.federation, self.i, "validation")


def _totals(own: _Own, asked: Asked) -> Tree:
    rows, n = own.raw(asked.spec["kinds"]), len(own.federation.train[own.i])
    if not rows:
        return {"n": torch.zeros(1, dtype=torch.float64)}
    x = own.federation.x.index_select(0, own.federation.train[own.i])
    row = {"row": x.double().sum(0)} if x.ndim == 2 else {}
    return {"n": torch.tensor([n], dtype=torch.float64), **row, "sum": _added(rows, lambda v, _: v.sum(0))}


def _squares(own: _Own, asked: Asked) -> Tree:
    mean = asked.tree["mean"]
    return {"sum": _added(own.raw(asked.spec["kinds"]), lambda v, k: (v - mean[k]).square().sum(0))}


def _added(rows: Sequence[Mapping[str, Tensor]], of: Callable[[Tensor, str], Tensor]) -> Tree:
    return {k: torch.stack([of(r[k], k) for r in rows]).sum(0) for k in (rows[0] if rows else ())}


def _sums(own: _Own, asked: Asked) -> Tree:
    found = {}
    for k in asked.tree:
        read = own.reader(asked.spec[k], asked.tree[k])
        found[k] = Sums.of(rows_of(read, own.federation, own.i)).packed()
    return found


def _losses(own: _Own, asked: Asked) -> Tree:
    """Of validation rows: n, and for each posterior the summed cross entropy of the owner."""
    i = own.here.index(own.i)
    lines, read = [], dict[str, Tensor]()
    for k, (kind, names, spec) in enumerate(asked.spec["tried"]):
        if names not in read:
            read[names] = own.held(own.reader(spec, asked.tree["read"][names]))
        z, posterior = read[names], FITTED[kind].of(asked.tree["posterior"][str(k)])
        none = torch.zeros(0, z.shape[1], dtype=torch.float64)
        held = [z if c == i else none for c in range(len(own.here))]
        lines.append(owner_loss(posterior, held) * len(z) if len(z) and posterior.prior[i] > 0 else 0.0)
    return {"n": torch.tensor(float(len(own.federation.validation[own.i]))), "loss": torch.tensor(lines).double()}


def _grid(own: _Own, asked: Asked) -> Tree:
    kind, spec = asked.spec["fit"]
    posterior, z = FITTED[kind].of(asked.tree["posterior"]), own.held(own.reader(spec, asked.tree["read"]))
    heads = torch.zeros(len(z), len(own.here), 1, dtype=torch.float64)
    scores = Scores(posterior.logits(z), posterior.prior, heads)
    return {"loss": router_losses(scores, torch.full((len(z),), own.here.index(own.i)))}


def _distances(own: _Own, asked: Asked) -> Tree:
    typical = Typical(**asked.tree["typical"])
    d = typical.distances(own.held(own.reader(asked.spec["seen"], asked.tree["seen"])))
    if asked.what == "nearest":
        return _ordered(d.amin(1))
    i = own.here.index(own.i)
    return _ordered(d[:, i] if typical.n[i] > 0 else d[:0, i])


def _ordered(d: Tensor) -> Tree:
    """Sorted; of more than MOST so many, evenly spaced in their order, and how many there are."""
    d, n = d.sort().values, len(d)
    kept = torch.linspace(0, n - 1, MOST, dtype=torch.float64).round().long() if n > MOST else torch.arange(n)
    return {"n": torch.tensor(n), "d": d[kept]}


_ANSWERS: dict[str, Callable[[_Own, Asked], Tree]] = {
    "totals": _totals, "squares": _squares, "sums": _sums, "losses": _losses, "grid": _grid, "own": _distances,
    "nearest": _distances,
}  # fmt: skip
