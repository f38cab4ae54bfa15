"""Intervals at 95 %, and the verdict that follows from one."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import betaincinv

from fedroute.evaluate.metrics import Array, Statistic, mean
from fedroute.evaluate.wilson import Interval, Z, wilson
from fedroute.randomness import seed_of

Verdict = Literal["yes", "no", "unclear", "n/a"]
__all__ = [
    "Interval",
    "Verdict",
    "better_off",
    "bootstrap",
    "middle",
    "paired_accuracy",
    "paired_bootstrap",
    "verdict",
    "wilson",
]
DRAWS = 2000
_CELLS = 2_000_000  # numbers held at once
_ROWS = 50_000  # beyond, fewer draws: the interval is narrow and the draws are long


def paired_accuracy(a: Array, b: Array) -> Interval | None:
    """The interval of mean(a) - mean(b) for right (True) and wrong (False) answers of two models on the same rows.

    The hull of two intervals. One is Agresti and Min 2005, "Simple improved confidence intervals for comparing matched
    proportions": the Wald interval after adding half a row to each of the four cells of the two-by-two table. It knows
    how many rows the models differ on only as well as the rows tell, but with very few rows it is too bold. The other
    is that of the exact sign test (Clopper and Pearson 1934) on the rows where the models differ, so that zero is left
    out only where that test has p < 0.05. A bootstrap would be bolder than either: four wins and no loss in 30 rows
    would do for a verdict, and the sign test of that has p = 0.125."""
    n = len(a)
    if not n:
        return None
    won, lost = int((a & ~b).sum()), int((b & ~a).sum())
    d, differ = (won - lost) / (n + 2), won + lost
    half = Z * (differ + 1 - (won - lost) ** 2 / (n + 2)) ** 0.5 / (n + 2)
    low, high = d - half, d + half
    if differ:
        share = differ / n
        low = min(low, share * (2 * float(betaincinv(won, lost + 1, 0.025)) - 1) if won else -share)
        high = max(high, share * (2 * float(betaincinv(won + 1, lost, 0.975)) - 1) if lost else share)
    return max(-1.0, low), min(1.0, high)


def bootstrap(statistics: Sequence[Statistic], n: int, seed: int, draws: int = DRAWS) -> Array:
    """(draws, S): each statistic on the same resamples of n rows, so that differences between columns are paired.

    Over 50,000 rows fewer draws are made, not under 400."""
    draws = draws if n <= _ROWS else max(400, draws * _ROWS // n)
    rng, found = np.random.default_rng(seed), []
    block = max(1, _CELLS // max(n, 1))
    for start in range(0, draws, block):
        d = min(block, draws - start)
        rows = rng.integers(0, n, (d, n)) + n * np.arange(d)[:, None]
        counts = np.bincount(rows.ravel(), minlength=d * n).reshape(d, n).astype(np.float64)
        found.append(np.stack([f(counts) for f in statistics], 1))
    return np.concatenate(found)


def middle(values: Array) -> Interval | None:
    """The middle 95 % of draws; None where on more than a tenth of the draws the statistic was not defined."""
    defined = values[np.isfinite(values)]
    if not len(values) or len(defined) < 0.9 * len(values):
        return None
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def paired_bootstrap(a: Statistic, b: Statistic, n: int, seed: int, draws: int = DRAWS) -> Interval | None:
    """The interval of a - b, two models' values of one metric on the same n rows."""
    if n == 0:
        return None
    values = bootstrap([a, b], n, seed, draws)
    return middle(values[:, 0] - values[:, 1])


def verdict(difference: Interval | None, *, higher: bool = True) -> Verdict:
    """What the interval of personal minus alone says; `higher`: whether a higher value is the better one."""
    if difference is None:
        return "unclear"
    low, high = difference if higher else (-difference[1], -difference[0])
    return "yes" if low > 0 else "no" if high < 0 else "unclear"


def better_off(personal: Array, alone: Array, *, higher: bool = True, seed: int = 0) -> Verdict:
    """Whether one client is better off with its personal model than alone, from a number for each of its test rows:
    right or wrong (bool), or, say, losses (float; higher=False). "unclear" where the interval of the mean difference
    holds 0, and where there are no rows. Raises ValueError where the two are not of the same rows."""
    a, b = np.asarray(personal), np.asarray(alone)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"personal has shape {a.shape}, alone {b.shape}: give one number for each test row of both")
    if a.dtype == b.dtype == np.bool_:
        return verdict(paired_accuracy(a, b), higher=higher)
    return verdict(paired_bootstrap(mean(a), mean(b), len(a), seed_of(seed, "better off")), higher=higher)
