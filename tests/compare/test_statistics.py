"""Intervals over seeds and corrections, against closed forms and scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, ttest_1samp

from fedroute.compare.statistics import holm, over_seeds

VALUES = st.lists(st.floats(-1, 1), min_size=2, max_size=12)


@given(VALUES)
def test_without_overlap_it_is_the_t_interval(values: list[float]) -> None:
    if np.std(values) < 1e-6:
        return
    e, want = over_seeds(values, 0.0), ttest_1samp(values, 0.0)
    low, high = want.confidence_interval(0.95)
    assert e.interval == pytest.approx((low, high), abs=1e-9)
    assert e.p == pytest.approx(want.pvalue, abs=1e-9)


@given(VALUES, st.floats(0, 2))
def test_splits_of_the_same_rows_widen_it_by_nadeau_and_bengio(values: list[float], ratio: float) -> None:
    if np.std(values) < 1e-6:
        return
    plain, wide = over_seeds(values, 0.0), over_seeds(values, ratio)
    assert plain.interval is not None
    assert wide.interval is not None
    widths = [e[1] - e[0] for e in (plain.interval, wide.interval)]
    assert widths[1] / widths[0] == pytest.approx(math.sqrt(1 + ratio * len(values)))


def test_where_nothing_is_known_of_the_spread_nothing_is_claimed() -> None:
    assert over_seeds([0.3], 0.4) == (0.3, None, None)
    assert over_seeds([0.1, 0.1, 0.1], 0.4)[1:] == (None, None)


def test_a_plain_t_interval_is_too_bold_on_splits_of_the_same_rows_and_this_one_is_not() -> None:
    """Two rules of which neither is better, one fixed pool of rows, ten random test parts: how often is a difference
    claimed?"""
    rng, pools, claims = np.random.default_rng(0), 400, np.zeros(2)
    for _ in range(pools):
        pool = rng.choice([-1.0, 0.0, 1.0], 100, p=[0.2, 0.6, 0.2])
        seeds = [float(pool[rng.permutation(100)[:30]].mean()) for _ in range(10)]
        for k, ratio in enumerate((0.0, 30 / 60)):
            p = over_seeds(seeds, ratio).p
            claims[k] += p is not None and p < 0.05
    plain, corrected = claims / pools
    assert plain > 0.15
    assert corrected < 0.08


def test_holm_by_hand() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_is_between_the_p_value_and_bonferroni(p: list[float]) -> None:
    adjusted = [v for v in holm([*p]) if v is not None]
    assert len(adjusted) == len(p)
    for raw, v in zip(p, adjusted, strict=True):
        assert raw <= v <= min(1.0, raw * len(p)) + 1e-12
    assert all(a >= b - 1e-12 for a, b in zip(adjusted, false_discovery_control(p), strict=True))
