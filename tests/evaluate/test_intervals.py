"""Intervals cover what they claim to cover; verdicts are not given for noise."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from fedroute.evaluate.intervals import (
    better_off,
    bootstrap,
    middle,
    paired_accuracy,
    paired_bootstrap,
    verdict,
    wilson,
)
from fedroute.evaluate.metrics import Array, auc, mean


def pair(n: int, won: int, lost: int, both: int = 0) -> tuple[Array, Array]:
    a, b = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    a[:won] = True
    b[won : won + lost] = True
    a[won + lost : won + lost + both] = b[won + lost : won + lost + both] = True
    return a, b


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (1, 1), (7, 30), (500, 1000)])
def test_wilson_is_that_of_scipy(hits: int, n: int) -> None:
    theirs = binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson(hits, n) == pytest.approx((theirs.low, theirs.high))


def test_wilson_of_nothing_is_nothing() -> None:
    assert wilson(0, 0) is None


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("n", [10, 30, 200])
def test_wilson_covers_about_95_percent_by_exact_sum(n: int, p: float) -> None:
    inside = [(i := wilson(k, n)) is not None and i[0] <= p <= i[1] for k in range(n + 1)]
    covered = sum(binom.pmf(k, n, p) for k in range(n + 1) if inside[k])
    assert covered > 0.9
    assert sum(inside) < n + 1


@pytest.mark.parametrize(("up", "down"), [(0.1, 0.1), (0.3, 0.1), (0.02, 0.0), (0.5, 0.5), (0.15, 0.05)])
@pytest.mark.parametrize("n", [4, 30, 150])
def test_paired_accuracy_covers_the_true_difference(n: int, up: float, down: float) -> None:
    rng = np.random.default_rng(n)
    tables = rng.multinomial(n, [up, down, 1 - up - down], 2000)[:, :2].tolist()
    known = {(w, v): paired_accuracy(*pair(n, w, v)) for w, v in {tuple(t) for t in tables}}
    inside = [(i := known[w, v]) is not None and i[0] <= up - down <= i[1] for w, v in tables]
    covered = np.mean(inside)
    assert covered > 0.94


def test_a_verdict_on_accuracy_needs_a_sign_test_too() -> None:
    """For every table of 12 rows: no verdict where the exact sign test would not give one."""
    for won in range(13):
        for lost in range(13 - won):
            v = better_off(*pair(12, won, lost))
            if v != "unclear":
                assert binomtest(won, won + lost).pvalue < 0.05
                assert v == ("yes" if won > lost else "no")
    assert better_off(*pair(12, 8, 0)) == "yes"
    assert better_off(*pair(12, 0, 8)) == "no"


def test_jitter_of_thirty_rows_is_unclear() -> None:
    """Up and down by 9 points in 30 rows, three rows or four, is noise."""
    for won, lost in ((3, 0), (0, 3), (4, 0), (0, 4), (6, 3), (3, 6)):
        assert better_off(*pair(30, won, lost, both=15)) == "unclear"
    rng = np.random.default_rng(0)
    verdicts = [better_off(rng.random(30) < 0.8, rng.random(30) < 0.8) for _ in range(500)]
    assert sum(v != "unclear" for v in verdicts) <= 0.05 * 500


def test_equal_models_have_an_interval_of_some_width_around_zero() -> None:
    i = paired_accuracy(*pair(20, 0, 0, both=15))
    assert i is not None
    assert i[0] < 0 < i[1]
    assert i[0] == -i[1]


def test_swapping_the_models_mirrors_the_interval() -> None:
    a, b = pair(25, 7, 2)
    forth, back = paired_accuracy(a, b), paired_accuracy(b, a)
    assert forth is not None
    assert back == pytest.approx((-forth[1], -forth[0]))


def test_bootstrap_of_a_mean_has_the_width_of_theory() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(1.0, 1, 400), rng.normal(0.6, 1, 400)
    i = paired_bootstrap(mean(a), mean(b), 400, seed=3)
    assert i is not None
    half = 1.96 * float(np.std(a - b)) / 20
    assert i == pytest.approx((np.mean(a - b) - half, np.mean(a - b) + half), abs=0.25 * half)


def test_bootstrap_covers() -> None:
    """Of 200 data sets, the interval of the difference of two means holds the true one in about 95 %."""
    rng = np.random.default_rng(2)
    inside = 0
    for s in range(200):
        shared = rng.normal(size=60)
        a, b = shared + rng.normal(0.2, 1, 60), shared + rng.normal(0.0, 1, 60)
        i = paired_bootstrap(mean(a), mean(b), 60, seed=s, draws=500)
        inside += i is not None and i[0] <= 0.2 <= i[1]
    assert 0.89 * 200 <= inside <= 0.99 * 200


def test_bootstrap_is_a_function_of_its_seed_and_pairs_its_columns() -> None:
    x = np.random.default_rng(0).random(50)
    one, two = (bootstrap([mean(x), mean(x + 1)], 50, seed=4) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one[:, 1] - one[:, 0], 1.0)
    assert not np.array_equal(one, bootstrap([mean(x), mean(x + 1)], 50, seed=5))
    assert one.shape == (2000, 2)


def test_an_interval_is_not_made_of_the_draws_that_happen_to_be_defined() -> None:
    positive = np.arange(20) < 1  # a third of the resamples has no positive row
    assert middle(bootstrap([auc(np.arange(20.0), positive)], 20, seed=0)[:, 0]) is None


def test_losses_are_better_when_lower() -> None:
    rng = np.random.default_rng(0)
    high = rng.normal(2, 0.1, 50)
    assert better_off(high - 1, high, higher=False) == "yes"
    assert better_off(high - 1, high) == "no"
    assert verdict((-0.2, -0.1), higher=False) == "yes"
    assert verdict(None) == "unclear"


def test_no_rows_is_unclear_and_unequal_rows_are_refused() -> None:
    nothing = np.zeros(0, dtype=bool)
    assert better_off(nothing, nothing) == "unclear"
    with pytest.raises(ValueError, match="one number for each test row"):
        better_off(np.zeros(3, dtype=bool), np.zeros(4, dtype=bool))
