"""Metrics of one model on one client's rows. Undefined is None, never 0.

The ranking metrics are functions of how often each row counts, (D, n), so that one sort serves all draws of a
bootstrap; a plain metric is the case of one draw in which each row counts once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.evaluate.describe import classifies

Array = NDArray[Any]
Statistic = Callable[[Array], Array]  # (D, n) counts of rows -> (D,) values; NaN where undefined
LOWER_IS_BETTER = frozenset({"log_loss", "ece", "loss"})
RARE = 0.05  # with fewer positives than this, accuracy says nothing
FALSE_POSITIVE_RATE = 0.01
NAMES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "auc": "AUC",
    "pr_auc": "PR-AUC",
    "recall_at_fpr": "recall at 1 % false positives",
    "log_loss": "log-loss",
    "ece": "calibration error",
    "loss": "loss",
}


@dataclass(frozen=True)
class Yardstick:
    """How the clients of a federation are judged: the same for all of them, chosen by training labels alone.

    headline: the metric of the ledger and the verdict; metrics: all that are measured; positive: the code of the
    positive class where there are two classes, else -1."""

    headline: str
    metrics: tuple[str, ...]
    positive: int = -1

    @property
    def higher(self) -> bool:
        return self.headline not in LOWER_IS_BETTER


def yardstick(federation: Federation) -> Yardstick:
    """Accuracy for classes; PR-AUC where all but 5 % of the federation's training rows are one class (rare events);
    the task's loss where targets are not classes. Of two classes the rarer in training is the positive one."""
    if not classifies(federation):
        return Yardstick("loss", ("loss",))
    counts = federation.label_counts.sum(0).tolist()
    metrics = ("accuracy", "macro_f1", "auc", "pr_auc", "log_loss", "ece")
    rare = sum(counts) > 0 and max(counts) < sum(counts) and max(counts) > (1 - RARE) * sum(counts)
    headline = "pr_auc" if rare else "accuracy"
    if len(counts) != 2:
        return Yardstick(headline, metrics)
    return Yardstick(headline, (*metrics, "recall_at_fpr"), int(counts[1] <= counts[0]))


@dataclass(frozen=True)
class Answers:
    """A model's answers on n rows: prob (n, K) float64, predicted (n,) the likeliest class (-1 where the model
    answered NaN: never right), loss (n,) the log-loss of each row, y (n,)."""

    prob: Array
    predicted: Array
    loss: Array
    y: Array

    @property
    def correct(self) -> Array:
        return np.equal(self.predicted, self.y)

    @property
    def broken(self) -> int:
        """Rows without a finite answer."""
        return int((self.predicted < 0).sum())


def answers(logits: Array, y: Array) -> Answers:
    """logits: (n, K), or (n,) or (n, 1) with the log-odds of class 1; y: (n,) codes. Raises InputError for a code that
    the model has no output for."""
    z = np.asarray(logits, dtype=np.float64)
    z = z[:, None] if z.ndim == 1 else z
    z = np.concatenate([np.zeros_like(z), z], 1) if z.shape[1] == 1 else z
    if len(y) and int(y.max()) >= z.shape[1]:
        raise InputError(
            f"model: {z.shape[1]} outputs, and label code {int(y.max())}: give it an output for each label"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        z = z - z.max(1, keepdims=True)
        e = np.exp(z)
        prob = e / e.sum(1, keepdims=True)
        loss = np.log(e.sum(1)) - z[np.arange(len(z)), y]
    broken = ~np.isfinite(prob).all(1)
    return Answers(prob, np.where(broken, -1, z.argmax(1)), loss, np.asarray(y))


def measure(a: Answers, yard: Yardstick) -> dict[str, float | None]:
    """The yardstick's metrics of these answers, by name; None where one is not defined on these rows."""
    if not len(a.y):
        return dict.fromkeys(yard.metrics)
    once = np.ones((1, len(a.y)))
    values = {
        "accuracy": float(a.correct.mean()),
        "macro_f1": macro_f1(a.predicted, a.y),
        "log_loss": float(a.loss.mean()),
        "ece": calibration_error(a.prob.max(1), a.correct),
    } | {
        m: float(ranking(m, a, yard.positive)(once)[0]) for m in ("auc", "pr_auc", "recall_at_fpr") if m in yard.metrics
    }
    if a.broken:  # of these metrics none is defined without a number for each row
        values |= dict.fromkeys(("auc", "pr_auc", "recall_at_fpr", "log_loss", "ece"), float("nan"))
    return {m: values[m] if np.isfinite(values[m]) else None for m in yard.metrics}


def macro_f1(predicted: Array, y: Array) -> float:
    """The mean of F1 over the classes present in y. A class absent from a client's rows says nothing about how it is
    served there and has no part in the mean; answers that name it still cost the true class its recall."""
    scores = []
    for k in np.unique(y):
        hits = int(((predicted == k) & (y == k)).sum())
        scores.append(2 * hits / (int((predicted == k).sum()) + int((y == k).sum())))
    return float(np.mean(scores)) if scores else float("nan")


def calibration_error(confidence: Array, correct: Array, bins: int = 15) -> float:
    """Expected calibration error (Guo et al. 2017, equation 3) in `bins` bins of equal width, each open below."""
    n = len(confidence)
    place = np.clip(np.ceil(np.nan_to_num(confidence) * bins).astype(int) - 1, 0, bins - 1)
    gap = np.bincount(place, weights=correct - np.nan_to_num(confidence), minlength=bins)
    return float(np.abs(gap).sum() / n) if n else float("nan")


def ranking(metric: str, a: Answers, positive: int) -> Statistic:
    """AUC, PR-AUC or recall at a fixed false-positive rate as a statistic. Of two classes that of the positive one;
    of more the mean over the classes that have both kinds, rows of it and rows of others, in the part."""
    one = {"auc": auc, "pr_auc": pr_auc, "recall_at_fpr": recall_at_fpr}[metric]
    if positive >= 0:
        return one(a.prob[:, positive], a.y == positive)
    each = [one(a.prob[:, k], a.y == k) for k in np.unique(a.y)]

    def macro(counts: Array) -> Array:
        values = np.stack([f(counts) for f in each])
        defined = np.isfinite(values)
        total = np.where(defined, values, 0).sum(0)
        return _ratio(total, defined.sum(0))

    return macro


def auc(score: Array, positive: Array) -> Statistic:
    """Area under the ROC curve: the chance that a positive row scores above a negative one, ties counting half."""

    def value(counts: Array) -> Array:
        pos, neg = split(counts)
        above = pos.cumsum(1) - pos / 2  # positives scored higher than this group, half of those in it
        return _ratio((above * neg).sum(1), pos.sum(1) * neg.sum(1))

    split = _by_score(score, positive)
    return value


def pr_auc(score: Array, positive: Array) -> Statistic:
    """Average precision: the mean, over positive rows, of the precision at their score; a constant score has the
    share of positives."""

    def value(counts: Array) -> Array:
        pos, neg = split(counts)
        hits, total = pos.sum(1), pos.cumsum(1)
        precision = total / np.maximum(total + neg.cumsum(1), 1)
        return np.where(neg.sum(1) > 0, _ratio((precision * pos).sum(1), hits), np.nan)

    split = _by_score(score, positive)
    return value


def recall_at_fpr(score: Array, positive: Array, rate: float = FALSE_POSITIVE_RATE) -> Statistic:
    """The largest share of positive rows found by a threshold that flags at most `rate` of the negative rows. The
    threshold is read off the same rows: it tells models apart and is no promise for a threshold fixed beforehand."""

    def value(counts: Array) -> Array:
        pos, neg = split(counts)
        allowed = neg.cumsum(1) <= rate * neg.sum(1, keepdims=True)
        found = np.where(allowed, pos.cumsum(1), 0).max(1, initial=0)
        return np.where(neg.sum(1) > 0, _ratio(found, pos.sum(1)), np.nan)

    split = _by_score(score, positive)
    return value


def mean(values: Array) -> Statistic:
    """The mean of a number per row."""
    return lambda counts: _ratio(counts @ values.astype(np.float64), counts.sum(1))


def _by_score(score: Array, positive: Array) -> Callable[[Array], tuple[Array, Array]]:
    """counts (D, n) -> positives and negatives (D, G) by score, from the highest down: a group for each score that a
    positive row has, and one for all that lies between two of them, where only the number of negatives matters."""
    order = np.argsort(-score, kind="stable")
    ranked, hits = score[order], np.flatnonzero(positive[order])
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(score) else np.zeros(0, dtype=np.intp)
    has = np.zeros(len(starts) + 1, dtype=bool)  # whether a score has a positive row; the last stands before the first
    has[np.searchsorted(starts, hits, "right") - 1] = True
    starts = starts[has[:-1] | np.roll(has, 1)[:-1] | (np.arange(len(starts)) == 0)]
    group = np.searchsorted(starts, hits, "right") - 1
    filled, first = np.unique(group, return_index=True)

    def split(counts: Array) -> tuple[Array, Array]:
        pos, total = np.zeros((len(counts), len(starts))), np.zeros((len(counts), len(starts)))
        if len(starts):
            total = np.add.reduceat(counts[:, order], starts, 1)
        if len(hits):
            pos[:, filled] = np.add.reduceat(counts[:, order[hits]], first, 1)
        return pos, total - pos

    return split


def _ratio(a: Array, b: Array) -> Array:
    out: Array = np.full(np.shape(a), np.nan)
    return np.divide(a, b, out=out, where=b > 0)
