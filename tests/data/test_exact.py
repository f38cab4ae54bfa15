"""Sums and order statistics that no dealing of rows to clients can change."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedroute.data.exact import BLOCK, Moments, by_counting, count_up_to, median, middle, middle_ranks, root
from fedroute.data.table import statistics_of

NUMBERS = st.lists(st.floats(-1e30, 1e30, allow_nan=False), min_size=1, max_size=40)
ANY = st.lists(
    st.floats(allow_nan=False, allow_infinity=False, width=64).map(lambda v: v / 1e10), min_size=1, max_size=20
)


@settings(deadline=None)
@given(ANY)
def test_sums_are_exact(values: list[float]) -> None:
    found = Moments.of(np.array(values))
    assert found.n == len(values)
    assert found.total == sum(map(Fraction, values))
    assert found.squares == sum(Fraction(v) ** 2 for v in values)
    assert found.mean == float(found.total / len(values))
    assert Moments.load(found.json()) == found


@settings(deadline=None)
@given(NUMBERS, st.randoms())
def test_any_partition_has_the_same(values: list[float], random: Any) -> None:
    whole = Moments.of(np.array(values))
    dealt = [(random.randrange(4), v) for v in values]
    random.shuffle(dealt)
    parts = [np.array([v for c, v in dealt if c == k]) for k in range(4)]
    together = Moments()
    for part in parts:
        together = together + Moments.of(part)
    assert together == whole
    assert (together.mean, together.deviation) == (whole.mean, whole.deviation)
    ranks = middle_ranks(len(values))
    found = by_counting({"c": ranks}, lambda asked: {"c": sum_of([count_up_to(p, asked["c"]) for p in parts])})
    assert middle(found["c"]) == median(np.array(values)) == float(np.median(values))
    assert math.copysign(1, middle(found["c"])) == 1 or middle(found["c"]) != 0


def sum_of(counts: list[list[int]]) -> list[int]:
    return [sum(each) for each in zip(*counts, strict=True)]


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60))
def test_as_numpy_to_rounding(values: list[float]) -> None:
    v = np.array(values)
    found = Moments.of(v)
    assert found.mean == pytest.approx(float(v.mean()), rel=1e-12, abs=1e-9)
    rms = math.sqrt(float(np.square(v).mean()))
    assert found.deviation == pytest.approx(float(v.std()), rel=1e-6, abs=1e-7 * rms + 1e-150)


def test_closed_forms() -> None:
    assert Moments.of(np.array([0.1] * 10)).deviation == 0.0  # numpy says 1.4e-17
    assert Moments.of(np.array([1.0, 2.0, 3.0, 4.0])).deviation == math.sqrt(1.25)
    assert Moments.of(np.array([1e30, 1.0, -1e30])).mean == 1 / 3  # numpy says 0
    assert Moments.of(np.array([1e15, 1e15 + 1])).deviation == 0.0  # to 1e-12 of its size
    assert Moments.of(np.array([1e9, 1e9 + 1])).deviation == 0.5
    assert Moments.of(np.zeros(3)) == Moments(3)
    assert Moments.of(np.zeros(0)) == Moments()


@pytest.mark.parametrize("x", [Fraction(2), Fraction(1, 3), Fraction(10) ** 60, Fraction(1, 10**80), Fraction(0)])
def test_roots_are_the_nearest(x: Fraction) -> None:
    found = root(x)
    for other in (math.nextafter(found, math.inf), math.nextafter(found, -math.inf)):
        assert abs(Fraction(found) ** 2 - x) <= abs(Fraction(other) ** 2 - x)
    assert root(x * x) == float(x)


def test_more_numbers_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    v = np.random.default_rng(0).normal(size=1000)
    whole = Moments.of(v)
    monkeypatch.setattr("fedroute.data.exact.BLOCK", 64)
    assert Moments.of(v) == whole
    assert 54 + math.log2(BLOCK) - 27 <= 53  # halves of 2^54 of a block's numbers add up below 2^53


@given(NUMBERS)
@settings(max_examples=30, deadline=None)
def test_every_rank_by_counting(values: list[float]) -> None:
    v, asked = np.array(values) + 0.0, list[int]()

    def count(thresholds: Any) -> dict[str, list[int]]:
        asked.append(max(map(len, thresholds.values())))
        return {c: count_up_to(v, t) for c, t in thresholds.items()}

    found = by_counting({"all": range(len(values)), "none": []}, count)
    assert found == {"all": sorted(v.tolist()), "none": []}
    assert len(asked) == 16
    assert asked[0] == 15


@pytest.mark.parametrize("broken", [[3], [3, "1/0", "1"], [3, "x", "1"], ["n", "1", "1"], [1, "1" * 9000, "1"]])
def test_what_is_no_sum(broken: list[Any]) -> None:
    with pytest.raises((ValueError, ZeroDivisionError)):
        Moments.load(broken)


def test_statistics_of_a_table() -> None:
    import pyarrow as pa

    v: NDArray[np.float64] = np.array([3.0, np.nan, 1.0, 2.0, 2.0])
    table = pa.table(
        {"v": pa.array(v, from_pandas=True), "c": ["b", "a", None, "b", "a"], "none": pa.nulls(5, pa.float64())}
    )
    found = statistics_of(table, ["v", "none"], ["c"])
    assert found.fill == (2.0, 0.0)
    assert found.mean == (2.0, 0.0)
    assert found.scale == (math.sqrt(0.5), 1.0)
    assert found.common == ("a",)
