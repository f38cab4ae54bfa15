"""What random groups of the same sizes would show: sums over groups of rows, compared within strata."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma, norm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BINS, REACH = 256, 8.0  # of a histogram of scores, from -REACH to REACH deviations


@dataclass(frozen=True)
class Sums:
    """What a client sends, over its rows: by stratum their number (S,) and sum (S, D), and the sum of products (D, D).
    They are only ever added over clients, so that a secure sum hides each client's."""

    n: Floats
    first: Floats
    second: Floats


def sums(phi: Floats, stratum: Ints, s: int) -> Sums:
    """Of one client's rows (n, D), each in one of `s` strata."""
    first = np.zeros((s, phi.shape[1]))
    gather(first, phi, stratum)
    return Sums(np.bincount(stratum, minlength=s).astype(np.float64), first, phi.T @ phi)


def gather(into: Floats, rows: Floats, cell: Ints) -> None:
    """Adds each row (n, D) to its cell of `into` (cells, D)."""
    cells, place = np.unique(cell, return_inverse=True)
    into[cells] += one_hot(place, len(cells)).T @ rows


def one_hot(index: Ints, k: int) -> Floats:
    hot = np.zeros((len(index), k))
    hot[np.arange(len(index)), index] = 1.0
    return hot


def added(sent: Sequence[Sums]) -> Sums:
    return Sums(*(np.sum([getattr(s, k) for s in sent], 0) for k in ("n", "first", "second")))


@dataclass(frozen=True)
class Within:
    """mean: (S, D) of each stratum; cov: (D, D) covariance within strata; values, vectors: its eigenvalues, not below
    0, and eigenvectors (in columns)."""

    mean: Floats
    cov: Floats
    values: Floats
    vectors: Floats


def within(total: Sums) -> Within:
    mean = total.first / np.maximum(total.n, 1)[:, None]
    cov = total.second - (mean * total.n[:, None]).T @ mean
    cov /= max(float(total.n.sum() - (total.n > 0).sum()), 1.0)
    values, vectors = np.linalg.eigh(cov)
    return Within(mean, cov, np.maximum(values, 0), vectors)


def spread(counts: Floats) -> Floats:
    """(G, G) how the sums of centred rows vary and covary between G groups where rows are dealt to them at random
    within each stratum, in units of the covariance of a row; counts: (G, S). Sampling without replacement."""
    n = counts.sum(0)
    factor = np.where(n > 1, n / np.maximum(n - 1, 1), 0.0)
    off = (counts * (factor / np.maximum(n, 1))) @ counts.T
    found: Floats = np.diag(counts @ factor) - off
    return found


@dataclass(frozen=True)
class Test:
    """statistic, the mean and deviation that random groups of the same sizes have, p of at least as much by chance."""

    statistic: float
    mean: float
    deviation: float
    p: float


def length(centred: Floats, inside: Within, ridge: float) -> Floats:
    """(n,) x' (cov + ridge I)^-1 x of rows (n, D)."""
    found: Floats = ((centred @ inside.vectors) ** 2) @ (1 / (inside.values + ridge))
    return found


def test(c: Floats, lengths: Floats, counts: Floats, inside: Within, ridge: float, big: NDArray[np.bool_]) -> Test:
    """Whether groups differ. c: (G, D) sums of rows, each centred at its stratum's mean; lengths: (G,) sums of
    `length` of these rows beyond the mean of their strata; counts: (G, S) rows; big: (G,) the groups that are asked,
    those with rows enough for their sum to be about normal.

    The statistic is the sum over groups of c' (cov + ridge I)^-1 c / n, Hotelling's for many groups, with a ridge
    because there may be more curves than rows. Without `lengths` / n it is about pairs of different rows alone, so
    that a few odd rows do not count for a difference. Under random dealing within strata c is normal (a sum over
    rows) with covariance spread(counts) x cov, and the statistic a weighted sum of chi-squares, whose first three
    cumulants are known exactly; its tail is that of the shifted gamma distribution with these cumulants."""
    n = np.maximum(counts.sum(1), 1)[big]
    squares = ((c[big] @ inside.vectors) ** 2) @ (1 / (inside.values + ridge))
    statistic = float(((squares - lengths[big]) / n).sum())
    rho = inside.values / (inside.values + ridge)
    v = spread(counts)[np.ix_(big, big)] / np.sqrt(np.outer(n, n))
    powers = (float(np.trace(v)), float((v**2).sum()), float((v @ v * v).sum()))
    k1, k2, k3 = (f * powers[r - 1] * float((rho**r).sum()) for f, r in ((1, 1), (2, 2), (8, 3)))
    return Test(statistic, k1, float(np.sqrt(k2)), tail(statistic, k1, k2, k3))


def tail(value: float, k1: float, k2: float, k3: float) -> float:
    """P(X >= value) for the shifted gamma (Pearson III) law with these cumulants."""
    if k2 <= 1e-12:
        return 1.0
    skew = k3 / k2**1.5
    z = (value - k1) / np.sqrt(k2)
    if skew < 1e-3:
        return float(norm.sf(z))
    shape = 4 / skew**2
    return float(gamma.sf(shape + z * np.sqrt(shape), shape))


def histogram(score: Floats, weight: Floats) -> Floats:
    """(BINS,) what a client sends of its rows' scores, in deviations: their weights from -REACH to REACH."""
    place = ((score / REACH + 1) * BINS / 2).astype(np.int64).clip(0, BINS - 1)
    return np.bincount(place, weight, BINS).astype(np.float64)


def auc(positive: Floats, negative: Floats) -> float:
    """P(a positive scores higher than a negative), ties half, from two histograms; NaN where one is empty."""
    total = positive.sum() * negative.sum()
    below = np.cumsum(negative) - negative / 2
    return float((positive @ below) / total) if total > 0 else float("nan")
