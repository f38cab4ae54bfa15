"""One client's line of the ledger: its models on its own rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.evaluate.aggregate import KINDS
from fedroute.evaluate.intervals import Interval, Verdict, bootstrap, middle, paired_accuracy, verdict, wilson
from fedroute.evaluate.metrics import RARE, Array, Statistic, Yardstick, answers, mean, measure, ranking
from fedroute.evaluate.predict import row_losses
from fedroute.randomness import seed_of
from fedroute.words import count

FEW = 5  # rows of the rarer kind under which no verdict on a ranking is given
NEWCOMER = "newcomer: took no part in training, adapted afterwards on its own training rows"


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


def entry_of(
    federation: Federation,
    task: Task,
    yard: Yardstick,
    i: int,
    outs: Mapping[str, Tensor | None],
    part: str,
    seed: int,
    notes: Iterable[str] = (),
) -> Entry:
    """The line of client i, from its own rows alone. outs: kind -> what that model says of its rows of the part, None
    where there is none; seed: as of `make_ledger`."""
    name, rows, counts = federation.clients[i], getattr(federation, part)[i], federation.label_counts[i].numpy()
    train, validation, test = (len(of[i]) for of in (federation.train, federation.validation, federation.test))
    key = seed_of(seed, "ledger", name)
    scores, difference, interval, better, said = _judge(federation, task, yard, rows, outs, key)
    y = federation.y.index_select(0, rows).numpy() if yard.headline != "loss" else np.zeros(0)
    newcomer = i in federation.newcomers
    said = [*_said_of(task, train, part, len(rows), y, counts), *said, *notes]
    said = [NEWCOMER, *said] if newcomer and train else said
    majority, sizes = _majority(y, counts), (train, validation, test)
    return Entry(name, *sizes, scores, majority, difference, interval, better, tuple(said), newcomer)


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
