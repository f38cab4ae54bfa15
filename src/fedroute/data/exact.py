"""Sums and order statistics that are the same however rows are dealt to clients: exact, so that order and grouping
leave no trace, and rounded once at the end."""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HALF = 27  # bits of the lower half of a 53-bit integer
BLOCK = 1 << 24  # numbers whose halves add up without rounding in float64
CONSTANT = Fraction(1, 10**24)  # squared deviation, in units of the mean square, up to which a column is constant
STEPS = 4  # bits of the answer that each question settles, with 2^4 - 1 thresholds
BITS = 64


@dataclass(frozen=True)
class Moments:
    """The exact count, sum and sum of squares of float64 numbers."""

    n: int = 0
    total: Fraction = Fraction(0)
    squares: Fraction = Fraction(0)

    @classmethod
    def of(cls, v: Floats) -> Self:
        """Of finite numbers v (n,), each m 2^e with a whole m of 53 bits: the m are added up by e, in halves that
        float64 adds without rounding, and the few sums that are left as whole numbers of any length."""
        found = cls()
        for k in range(0, len(v), BLOCK):
            found = found + cls._block(v[k : k + BLOCK])
        return found

    @classmethod
    def _block(cls, v: Floats) -> Self:
        mantissa, exponent = np.frexp(v)
        whole = (mantissa * 2.0**53).astype(np.int64)
        least = int(exponent.min())
        place = exponent - least
        size = np.abs(whole)
        high, low = size >> HALF, size & ((1 << HALF) - 1)
        total = _by_exponent(place, whole)
        squares = (
            (_by_exponent(place, high * high, 2) << 2 * HALF)
            + (_by_exponent(place, high * low, 2) << HALF + 1)
            + _by_exponent(place, low * low, 2)
        )
        unit = Fraction(2) ** (least - 53)
        return cls(len(v), total * unit, squares * unit**2)

    def __add__(self, other: "Moments") -> Self:
        return type(self)(self.n + other.n, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> float:
        """The float64 nearest to the mean. n > 0."""
        return float(self.total / self.n)

    @property
    def deviation(self) -> float:
        """The float64 nearest to the standard deviation (over n); 0 where the numbers are constant, to 1e-12 of their
        root mean square."""
        variance = self.squares / self.n - (self.total / self.n) ** 2
        return 0.0 if variance <= CONSTANT * self.squares / self.n else root(variance)

    def json(self) -> list[Any]:
        return [self.n, str(self.total), str(self.squares)]

    @classmethod
    def load(cls, told: Sequence[Any]) -> Self:
        """Of what `json` gave. Raises ValueError for anything else."""
        n, total, squares = told
        return cls(int(n), Fraction(total), Fraction(squares))


def _by_exponent(place: Ints, whole: Ints, unit: int = 1) -> int:
    """sum of whole 2^(unit place), exactly. |whole| < 2^54, at most BLOCK of them."""
    halves = [np.bincount(place, weights=part) for part in (whole >> HALF, whole & ((1 << HALF) - 1))]
    total = 0
    for shift, sums in zip((HALF, 0), halves, strict=True):
        for k in np.flatnonzero(sums).tolist():
            total += int(sums[k]) << (shift + unit * k)
    return total


def root(x: Fraction) -> float:
    """The float64 nearest to the square root of x >= 0."""
    p, q = x.numerator, x.denominator
    if not p:
        return 0.0
    shift = max(0, (128 - p.bit_length() + q.bit_length()) // 2 + 1)
    whole = isqrt((p << 2 * shift) // q)
    odd = whole | (whole * whole * q != p << 2 * shift)  # what is cut off may only break a tie
    return odd / (1 << shift)


def median(v: Floats) -> float:
    """Of finite numbers v (n,), n > 0: the middle one, or the mean of the two middle ones; 0 and never -0."""
    ranks = middle_ranks(len(v))
    return middle(np.partition(v, ranks)[ranks].tolist())


def middle_ranks(n: int) -> list[int]:
    """The ranks, from 0, of the one or two middle ones of n."""
    return [(n - 1) // 2] if n % 2 else [n // 2 - 1, n // 2]


def middle(values: Sequence[float]) -> float:
    """Of the numbers of the middle ranks."""
    return sum(values) / len(values) + 0.0


# order statistics by counting: nobody tells a number, only how many of its own are up to a threshold

Asked = Mapping[str, Sequence[float]]
"""What is counted -> thresholds, ascending."""


def count_up_to(v: Floats, thresholds: Sequence[float]) -> list[int]:
    """How many of v (n,) are at most each threshold: the whole answer of a client."""
    found: list[int] = (np.asarray(v, dtype=np.float64)[:, None] <= np.asarray(thresholds)).sum(0).tolist()
    return found


def by_counting(
    ranks: Mapping[str, Sequence[int]], count: Callable[[Asked], Mapping[str, Sequence[int]]]
) -> dict[str, list[float]]:
    """name -> the numbers of these ranks (from 0) among all clients' finite numbers of that name, exactly.
    count(asked): how many of all clients' numbers are at most each threshold.

    Sixteen questions, however much is sought: each settles four bits of the 64 of every number, since float64 numbers
    come in the order of their bits. Clients tell counts alone; but the last questions lie so close about a number that
    a client's counts say whether it has that very number."""
    low = {(name, r): 0 for name, of in ranks.items() for r in of}  # the least place that it can have
    for bits in range(BITS - STEPS, -1, -STEPS):
        ends = {key: [_number(place + (k << bits) - 1) for k in range(1, 1 << STEPS)] for key, place in low.items()}
        asked = {name: sorted({t for r in of for t in ends[name, r]}) for name, of in ranks.items() if of}
        told = count(asked) if asked else {}
        up_to = {name: dict(zip(asked[name], told[name], strict=True)) for name in asked}
        for (name, r), place in low.items():
            low[name, r] = place + (sum(up_to[name][t] <= r for t in ends[name, r]) << bits)
    return {name: [_number(low[name, r]) + 0.0 for r in of] for name, of in ranks.items()}


def _number(place: int) -> float:
    """The float64 at this place, 0 to 2^64 - 1, in the order of them all; beyond the finite ones the last of these."""
    first, last = (1 << 52) - 1, (1 << BITS) - (1 << 52)  # of the infinities
    place = min(max(place, first + 1), last - 1)
    negative = place < 1 << (BITS - 1)
    bits = (1 << BITS) - 1 - place if negative else place - (1 << (BITS - 1))
    found: tuple[float] = struct.unpack("<d", struct.pack("<Q", bits | (negative << (BITS - 1))))
    return found[0]
