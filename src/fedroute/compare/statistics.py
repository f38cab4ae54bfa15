"""What a handful of seeds can say about a difference between two algorithms."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import t as student

Interval = tuple[float, float]


class Estimate(NamedTuple):
    """A mean over seeds with its interval at 95 % and the p-value of "it is 0"; both None where there are fewer than
    two seeds or the seeds do not differ at all, so that nothing is known of how much another seed would."""

    mean: float
    interval: Interval | None
    p: float | None


def over_seeds(values: Sequence[float], ratio: float) -> Estimate:
    """One value for each seed; `ratio`: test rows to training rows.

    Each seed draws its own split of the same rows, so that seeds are not independent and the plain t interval is too
    narrow. The variance of the mean is corrected as in Nadeau and Bengio 2003, "Inference for the Generalization
    Error", section 3: s^2 (1/S + n_test/n_train) instead of s^2 / S."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Estimate(mean, None, None)
    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    error = math.sqrt(variance * (1 / n + ratio))
    if error <= 1e-12 * max(1.0, abs(mean)):
        return Estimate(mean, None, None)
    half = float(student.ppf(0.975, n - 1)) * error
    return Estimate(mean, (mean - half, mean + half), 2 * float(student.sf(abs(mean) / error, n - 1)))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """The p-values adjusted for how many there are (Holm 1979, "A Simple Sequentially Rejective Multiple Test
    Procedure"): to call those below 0.05 real is wrong about any of them in at most 5 of 100 comparisons."""
    order = sorted((v, i) for i, v in enumerate(p) if v is not None)
    adjusted: list[float | None] = [None] * len(p)
    before = 0.0
    for rank, (v, i) in enumerate(order):
        before = max(before, min(1.0, (len(order) - rank) * v))
        adjusted[i] = before
    return adjusted
