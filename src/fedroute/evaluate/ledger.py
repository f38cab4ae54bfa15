"""The ledger: for every client its personal model, the global one and the one trained alone, on its own rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.evaluate.aggregate import KINDS, aggregate
from fedroute.evaluate.entry import Entry, Score, entry_of
from fedroute.evaluate.metrics import LOWER_IS_BETTER, Yardstick, yardstick
from fedroute.evaluate.predict import predict_rows, same_weights
from fedroute.tree import Weights

if TYPE_CHECKING:
    from rich.table import Table

NO_GLOBAL = "some weights are private or nothing is shared, so no one model is the global one"
NO_ALONE = "no client was trained alone (training.alone is off)"


@dataclass(frozen=True)
class Ledger:
    """The entries, sorted by client as the federation is. part: the rows measured; absent: kind -> why it is not there;
    positive: the label of the positive class where there are two."""

    entries: tuple[Entry, ...]
    yardstick: Yardstick
    part: str
    absent: dict[str, str]
    positive: str = ""

    def group(self, newcomers: bool = False) -> list[Entry]:
        """The entries of those who trained, or of the newcomers."""
        return [e for e in self.entries if e.newcomer == newcomers]

    def aggregates(self, metric: str, newcomers: bool = False) -> dict[str, dict[str, Any]]:
        """kind -> {mean, weighted, worst, worst_client, worst_tenth, std, measured, undefined}, over those who trained
        or over the newcomers."""
        group = self.group(newcomers)
        rows, names = [self.rows_of(e) for e in group], [e.name for e in group]
        higher = metric not in LOWER_IS_BETTER
        return {k: aggregate([e.value(k, metric) for e in group], rows, names, higher=higher) for k in KINDS}

    def rows_of(self, e: Entry) -> int:
        return int(getattr(e, self.part))

    def verdicts(self, newcomers: bool = False) -> dict[str, int]:
        """How many clients are better off ("yes"), worse off ("no"), "unclear", or without a comparison ("n/a")."""
        return {v: sum(e.better_off == v for e in self.group(newcomers)) for v in ("yes", "no", "unclear", "n/a")}

    def summary(self) -> dict[str, Any]:
        """The ledger's part of summary.json. `personal`, `global` and `alone` of a client are in the headline metric,
        `interval` is that of personal; `accuracy` is there for every federation, with None where targets are not
        classes. Aggregates are over those who trained; where there are newcomers, theirs stand beside them."""
        return {
            "headline": self.yardstick.headline,
            **self._summed_up(),
            **({f"{k}_newcomers": v for k, v in self._summed_up(True).items()} if self.group(True) else {}),
            "measured": {
                "part": self.part,
                "rows": sum(self.rows_of(e) for e in self.entries),
                "personal": "each client's own model on its own rows",
                "global": self.absent.get("global", "the one shared model on each client's own rows"),
                "alone": self.absent.get(
                    "alone", "a model that the client trained alone, at the same budget, on its own rows"
                ),
                "absent": self.absent,
                "positive": self.positive or None,
            },
            "clients": [self._client(e) for e in self.entries],
        }

    def _summed_up(self, newcomers: bool = False) -> dict[str, Any]:
        metrics = {m: self.aggregates(m, newcomers) for m in self.yardstick.metrics}
        nobody = [0] * len(self.group(newcomers))
        nothing = {k: aggregate([None for _ in nobody], nobody, ["" for _ in nobody]) for k in KINDS}
        accuracy = metrics.pop("accuracy", nothing)
        return {"accuracy": accuracy, "metrics": metrics, "better_off": self.verdicts(newcomers)}

    def _client(self, e: Entry) -> dict[str, Any]:
        head = self.yardstick.headline
        return {
            "name": e.name,
            "newcomer": e.newcomer,
            "train": e.train,
            "validation": e.validation,
            "test": e.test,
            **{k: e.value(k, head) for k in KINDS},
            "interval": _interval(e.scores["personal"]),
            "intervals": {k: _interval(e.scores[k]) for k in KINDS},
            "majority": e.majority,
            "difference": e.difference,
            "difference_interval": list(e.interval) if e.interval else None,
            "better_off": e.better_off,
            "notes": list(e.notes),
            "metrics": {k: s.metrics if (s := e.scores[k]) else None for k in KINDS},
        }

    def rows(self) -> list[dict[str, Any]]:
        """The lines of clients.csv: one value a column, None for n/a."""
        return [self._row(e) for e in self.entries]

    def _row(self, e: Entry) -> dict[str, Any]:
        head = self.yardstick.headline
        row: dict[str, Any] = {"client": e.name, "train": e.train, "validation": e.validation, "test": e.test}
        row["metric"] = head
        for k in KINDS:
            low, high = _interval(e.scores[k]) or (None, None)
            row |= {k: e.value(k, head), f"{k}_low": low, f"{k}_high": high}
        low, high = e.interval or (None, None)
        row |= {"majority": e.majority, "difference": e.difference, "difference_low": low, "difference_high": high}
        row |= {"better_off": e.better_off, "newcomer": "yes" if e.newcomer else "no"}
        row |= {f"{k}_{m}": e.value(k, m) for m in self.yardstick.metrics if m != head for k in KINDS}
        return row | {"notes": "; ".join(e.notes)}

    def table(self, limit: int = 40) -> "Table":
        """For a terminal of 100 columns; of more than `limit` clients those that lose and those that fare worst."""
        from fedroute.evaluate.table import ledger_table

        return ledger_table(self, limit)


def make_ledger(
    federation: Federation,
    task: Task,
    *,
    personal: Callable[[int], Weights],
    global_w: Weights | None,
    alone: Callable[[int], Weights] | None,
    part: str = "test",
    seed: int,
    notes: Mapping[str, Iterable[str]] | None = None,
    no_global: str = NO_GLOBAL,
    no_alone: str = NO_ALONE,
) -> Ledger:
    """Measures every client's models on its own rows of `part`; chooses nothing.

    personal(i), alone(i): the weights of client i, a number; each is called once, and alone only for a client that
    has training rows. global_w: None where there is no such model; then `no_global` says why. seed: of the bootstrap,
    which is keyed by client name. notes: client -> what else its line should say. The global model makes one pass
    over the rows of all clients, and a client whose personal weights are the global ones is not computed again.

    Raises InputError for a part that is not train, validation or test."""
    if part not in ("train", "validation", "test"):
        raise InputError(f"ledger: no part {part!r}; take train, validation or test")
    index: tuple[Tensor, ...] = getattr(federation, part)
    yard = yardstick(federation)
    shared: tuple[Tensor, ...] | None = None
    if global_w is not None and any(len(rows) for rows in index):
        shared = predict_rows(task, global_w, federation, torch.cat(index)).split([len(rows) for rows in index])
    entries = []
    for i, name in enumerate(federation.clients):
        outs: dict[str, Tensor | None] = dict.fromkeys(KINDS)
        if len(index[i]):
            outs["global"] = shared[i] if shared is not None else None
            w = personal(i)
            reuse = global_w is not None and same_weights(w, global_w)
            outs["personal"] = outs["global"] if reuse else predict_rows(task, w, federation, index[i])
            if alone is not None and len(federation.train[i]):
                outs["alone"] = predict_rows(task, alone(i), federation, index[i])
        entries.append(entry_of(federation, task, yard, i, outs, part, seed, (notes or {}).get(name, ())))
    why_global, why_alone = None if global_w is not None else no_global, None if alone is not None else no_alone
    return ledger_of(entries, yard, part, federation.labels, why_global, why_alone)


def ledger_of(
    entries: Iterable[Entry],
    yard: Yardstick,
    part: str,
    labels: Sequence[str],
    no_global: str | None = None,
    no_alone: str | None = None,
) -> Ledger:
    """The entries of all clients, in order, as one ledger. no_global, no_alone: why there is no such model, where there
    is none."""
    absent = {k: why for k, why in (("global", no_global), ("alone", no_alone)) if why is not None}
    return Ledger(tuple(entries), yard, part, absent, labels[yard.positive] if yard.positive >= 0 else "")


def _interval(score: Score | None) -> list[float] | None:
    return list(score.interval) if score and score.interval else None
