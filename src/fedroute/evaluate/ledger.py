"""The ledger: for every client its personal model, the global one and the one trained alone, on its own rows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.evaluate.aggregate import KINDS, aggregate
from fedroute.evaluate.intervals import Interval, Verdict, bootstrap, middle, paired_accuracy, verdict, wilson
from fedroute.evaluate.metrics import (
    LOWER_IS_BETTER,
    RARE,
    Array,
    Statistic,
    Yardstick,
    answers,
    mean,
    measure,
    ranking,
    yardstick,
)
from fedroute.evaluate.predict import predict_rows, row_losses, same_weights
from fedroute.randomness import seed_of
from fedroute.tree import Weights
from fedroute.words import count

if TYPE_CHECKING:
    from rich.table import Table

FEW = 5  # rows of the rarer kind under which no verdict on a ranking is given
NO_GLOBAL = "some weights are private or nothing is shared, so no one model is the global one"
NEWCOMER = "newcomer: took no part in training, adapted afterwards on its own training rows"
NO_ALONE = "no client was trained alone (training.alone is off)"


@dataclass(frozen=True)
class Score:
    """One model on one client's rows. metrics: by name, None where undefined; interval: of the headline metric."""

    metrics: dict[str, float | None]
    interval: Interval | None


@dataclass(frozen=True)
class Entry:
    """One client's line of the ledger.

    scores: kind -> Score, None where there is no such model or no row. majority: the accuracy of always naming the
    label most frequent in the client's training rows. difference: personal minus alone in the headline metric.
    newcomer: whether it took no part in training and got its private part afterwards."""

    name: str
    train: int
    validation: int
    test: int
    scores: dict[str, Score | None]
    majority: float | None
    difference: float | None
    interval: Interval | None
    better_off: Verdict
    notes: tuple[str, ...]
    newcomer: bool = False

    def value(self, kind: str, metric: str) -> float | None:
        score = self.scores[kind]
        return None if score is None else score.metrics[metric]


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
    yard, counts = yardstick(federation), federation.label_counts.numpy()
    shared: tuple[Tensor, ...] | None = None
    if global_w is not None and any(len(rows) for rows in index):
        shared = predict_rows(task, global_w, federation, torch.cat(index)).split([len(rows) for rows in index])
    sizes = [federation.sizes(p).tolist() for p in ("train", "validation", "test")]
    entries = []
    for i, name in enumerate(federation.clients):
        train, validation, test = (n[i] for n in sizes)
        outs: dict[str, Tensor | None] = dict.fromkeys(KINDS)
        if len(index[i]):
            outs["global"] = shared[i] if shared is not None else None
            w = personal(i)
            reuse = global_w is not None and same_weights(w, global_w)
            outs["personal"] = outs["global"] if reuse else predict_rows(task, w, federation, index[i])
            if alone is not None and train:
                outs["alone"] = predict_rows(task, alone(i), federation, index[i])
        key = seed_of(seed, "ledger", name)
        scores, difference, interval, better, said = _judge(federation, task, yard, index[i], outs, key)
        y = federation.y.index_select(0, index[i]).numpy() if yard.headline != "loss" else np.zeros(0)
        newcomer = i in federation.newcomers
        said = [*_said_of(task, train, part, len(index[i]), y, counts[i]), *said, *(notes or {}).get(name, ())]
        said = [NEWCOMER, *said] if newcomer and train else said
        majority, sizes_of = _majority(y, counts[i]), (train, validation, test)
        entries.append(Entry(name, *sizes_of, scores, majority, difference, interval, better, tuple(said), newcomer))
    absent = ({"global": no_global} if global_w is None else {}) | ({"alone": no_alone} if alone is None else {})
    positive = federation.labels[yard.positive] if yard.positive >= 0 else ""
    return Ledger(tuple(entries), yard, part, absent, positive)


def _judge(
    federation: Federation, task: Task, yard: Yardstick, rows: Tensor, outs: Mapping[str, Tensor | None], seed: int
) -> tuple[dict[str, Score | None], float | None, Interval | None, Verdict, list[str]]:
    """(scores, personal minus alone, its interval, the verdict, notes) of one client."""
    scores, said = dict[str, Score | None].fromkeys(KINDS), list[str]()
    if not len(rows):
        return scores, None, None, "n/a", said
    y = federation.y.index_select(0, rows).numpy()
    correct, statistics, draws = dict[str, Array](), dict[str, Statistic](), dict[str, Array]()
    metrics = dict[str, dict[str, float | None]]()
    for kind, out in outs.items():
        if out is None:
            continue
        if yard.headline == "loss":
            losses = row_losses(task, out, federation.take(rows)).numpy()
            metrics[kind], statistics[kind] = {"loss": finite(float(losses.mean()))}, mean(losses)
            broken = int((~np.isfinite(losses)).sum())
        else:
            a = answers(out.numpy(), y)
            metrics[kind], correct[kind], broken = measure(a, yard), a.correct, a.broken
            if yard.headline != "accuracy" and not broken:
                statistics[kind] = ranking(yard.headline, a, yard.positive)
        if broken:
            said.append(f"{kind}: {count(broken, 'row')} got NaN or Inf for an answer")
    if statistics:
        found = bootstrap(list(statistics.values()), len(y), seed)
        draws = {kind: found[:, j] for j, kind in enumerate(statistics)}
    for kind, values in metrics.items():
        interval = wilson(int(correct[kind].sum()), len(y)) if yard.headline == "accuracy" else None
        scores[kind] = Score(values, middle(draws[kind]) if kind in draws else interval)
    if "alone" not in metrics:
        return scores, None, None, "n/a", said
    interval = middle(draws["personal"] - draws["alone"]) if {"personal", "alone"} <= draws.keys() else None
    if yard.headline == "accuracy":
        interval = paired_accuracy(correct["personal"], correct["alone"])
    p, q = metrics["personal"][yard.headline], metrics["alone"][yard.headline]
    difference = p - q if p is not None and q is not None else None
    if yard.headline == "pr_auc" and (few := _rarest(y, yard.positive)) < FEW:
        said.append(f"{count(few, 'row')} of the rarer kind in the part: too few for a verdict")
        return scores, difference, interval, "unclear", said
    return scores, difference, interval, verdict(interval, higher=yard.higher), said


def finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _rarest(y: Array, positive: int) -> int:
    """Rows of the rarer kind: of positive and negative, or of all classes but the most frequent."""
    hits = int((y == positive).sum()) if positive >= 0 else len(y) - int(np.bincount(y).max())
    return min(hits, len(y) - hits)


def _said_of(task: Task, train: int, part: str, rows: int, y: Array, counts: Array) -> list[str]:
    """What a line must say about its client's rows; y: labels of the part, counts: of training; both may be empty."""
    said = []
    if not train:
        said.append("no training rows: took no part in training")
    elif train == 1 and task.variances:
        said.append("one training row: batch norm cannot learn from it, so no local steps")
    if not rows:
        return [*said, f"no {part} rows: n/a"]
    if len(y) and len(np.unique(y)) == 1:
        said.append(f"one class in the {part} part: AUC and PR-AUC n/a")
    if len(counts) and (total := int(counts.sum())) and total > counts.max() > (1 - RARE) * total:
        said.append("under 5 % of its training rows are of other classes than the first: read PR-AUC, not accuracy")
    elif len(counts) and total and counts.max() == total:
        said.append("one class in its training rows")
    return said


def _majority(y: Array, counts: Array) -> float | None:
    """The accuracy on labels y of always naming the label most frequent in training (of equals the first)."""
    return float((y == counts.argmax()).mean()) if len(y) and counts.sum() else None


def _interval(score: Score | None) -> list[float] | None:
    return list(score.interval) if score and score.interval else None
