"""What a client says of each of its columns: quantiles and counts, no rows; and the scale that all make of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedroute.profile.own_rows import Floats, Ints, OwnRows

SHARES = np.concatenate([[0, 0.005, 0.025], np.linspace(0.05, 0.95, 19), [0.975, 0.995, 1]])
TRIMMED = slice(1, -1)  # of SHARES: the outermost values are left out of a spread
MARKS = (0, *(s * m for m in (1, 9, 99, 999, 9999, 99999) for s in (-1, 1)), 88, 888, 77, 777)
"""Numbers that people write for "not known"."""


@dataclass(frozen=True)
class Mark:
    """A number that may mean "not known": how often a column of a client has it, how many of its spreads it lies from
    all other values (inf where there is no other), how many different others there are."""

    value: float
    count: int
    apart: float
    others: int


@dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """Of one client's F numeric and C named columns. known: (F + C,) rows with a value; quantiles: (F, 25) at SHARES,
    NaN where nothing is known; distinct: (F + C,) different values; whole: (F,) only whole numbers; rising: (F,) a
    value for each row, one after another in the order of the file; marks: for each of F columns; single: (F + C,) the
    only value where there is but one, else NaN."""

    client: str
    rows: int
    known: Ints
    quantiles: Floats
    distinct: Ints
    whole: tuple[bool, ...]
    rising: tuple[bool, ...]
    marks: tuple[tuple[Mark, ...], ...]
    single: tuple[float, ...]

    @property
    def sent(self) -> int:
        """Bytes that leave the client: numbers of 8 or 4 bytes, as they would be written."""
        return 8 * self.quantiles.size + 16 * self.known.size + len(self.whole) + 20 * sum(map(len, self.marks))


def summarised(own: OwnRows) -> ColumnSummary:
    """What leaves one client."""
    f = own.values.shape[1]
    quantiles = np.full((f, len(SHARES)), np.nan)
    distinct, whole, rising, marks = list[int](), list[bool](), list[bool](), list[tuple[Mark, ...]]()
    for j in range(f):
        given = own.values[:, j]
        known = given[~np.isnan(given)]
        v = np.sort(known)
        if len(v):
            quantiles[j] = np.interp(SHARES * (len(v) - 1), np.arange(len(v)), v)
        steps = np.diff(v)
        distinct.append(int((steps > 0).sum()) + (len(v) > 0))
        whole.append(bool(len(v)) and bool(np.abs(v - np.rint(v)).max() <= 1e-6 * max(1.0, float(np.abs(v).max()))))
        order = np.diff(known)
        rising.append(len(known) == len(own) and bool((order > 0).all() or (order < 0).all()))
        marks.append(_marks(v) if own.table else ())
    names = [own.codes[:, j] for j in range(own.codes.shape[1])]
    return ColumnSummary(
        client=own.client, rows=len(own), quantiles=quantiles, whole=tuple(whole), rising=tuple(rising),
        marks=tuple(marks),
        single=tuple(_single(v) for v in (*own.values.T, *np.where(own.codes < 0, np.nan, own.codes).T)),
        known=np.array([*(~np.isnan(own.values)).sum(0), *((c >= 0).sum() for c in names)], dtype=np.int64),
        distinct=np.array([*distinct, *(len(np.unique(c[c >= 0])) for c in names)], dtype=np.int64),
    )  # fmt: skip


def _single(v: Floats) -> float:
    known = v[~np.isnan(v)]
    return float(known[0]) if len(known) and (known == known[0]).all() else float("nan")


def _marks(v: Floats) -> tuple[Mark, ...]:
    """v: (n,) sorted."""
    found = list[Mark]()
    for value in {0.0, *v[:1].tolist(), *v[-1:].tolist()} & set(map(float, MARKS)):
        low, high = np.searchsorted(v, [value - 1e-9, value + 1e-9])
        rest = np.concatenate([v[:low], v[high:]])
        if low == high or (low > 0 and high < len(v)):
            continue  # not there, or amid the others
        spread = _spread(np.quantile(rest, SHARES)[None])[0] if len(rest) else 0.0
        apart = float(np.abs(rest - value).min() / spread) if spread > 0 else np.inf
        found.append(Mark(value, int(high - low), apart, int((np.diff(rest) > 0).sum()) + (len(rest) > 0)))
    return tuple(found)


@dataclass(frozen=True)
class Scales:
    """centre, spread: (F,) of all clients' rows together, by which everybody standardises."""

    centre: Floats
    spread: Floats

    def standardised(self, values: Floats) -> Floats:
        """(n, F), 0 where missing, cut off at a million spreads."""
        z: Floats = np.nan_to_num((values - self.centre) / self.spread).clip(-1e6, 1e6)
        return z


def scales(summaries: Sequence[ColumnSummary], images: bool) -> Scales:
    """From the quantiles of all; of images one scale for all blocks, so that a dark border is not made loud."""
    f = summaries[0].quantiles.shape[0]
    weight = np.stack([s.known[:f] for s in summaries], 1).astype(np.float64)  # (F, N)
    q = np.stack([s.quantiles for s in summaries], 1)  # (F, N, 25)
    mass = weight[:, :, None] * _mass() * ~np.isnan(q)
    q = np.nan_to_num(q)
    total = np.maximum(mass.sum((1, 2)), 1e-300)
    centre = (mass * q).sum((1, 2)) / total
    spread = np.sqrt((mass * (q - centre[:, None, None]) ** 2).sum((1, 2)) / total)
    if images and f:
        spread = np.full(f, np.sqrt((spread**2).mean()))
    return Scales(centre, np.where(spread > 1e-12 * np.maximum(1, np.abs(centre)), spread, 1.0))


def _spread(quantiles: Floats) -> Floats:
    """(F,) the standard deviation of (F, 25) quantiles, without the outermost."""
    mass = _mass() / _mass().sum()
    q = np.nan_to_num(quantiles)
    mean = (q * mass).sum(1, keepdims=True)
    found: Floats = np.sqrt((mass * (q - mean) ** 2).sum(1))
    return found


def _mass() -> Floats:
    """(25,) the share of rows that each quantile stands for; 0 for the outermost."""
    inner = SHARES[TRIMMED]
    edges = np.concatenate([[0], (inner[1:] + inner[:-1]) / 2, [1]])
    return np.concatenate([[0], np.diff(edges), [0]])
