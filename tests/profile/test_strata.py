"""Sums within strata: what random groups would show, against brute force."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.metrics import roc_auc_score

from fedroute.profile import strata

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def centred_sums(x: Floats, group: Ints, stratum: Ints, groups: int) -> Floats:
    mean = np.stack([x[stratum == s].mean(0) for s in range(stratum.max() + 1)])
    return np.stack([(x - mean[stratum])[group == g].sum(0) for g in range(groups)])


def test_spread_is_the_covariance_over_all_permutations() -> None:
    x = np.array([[1.0], [2.0], [4.0], [9.0], [0.5], [2.5]])
    stratum = np.array([0, 0, 0, 0, 1, 1])
    group = np.array([0, 0, 1, 1, 0, 1])
    counts = np.zeros((2, 2))
    np.add.at(counts, (group, stratum), 1)
    dealt = []
    for a in permutations(range(4)):
        for b in permutations((4, 5)):
            dealt.append(centred_sums(x, group[[*a, *b]], stratum, 2)[:, 0])
    variance = np.array([x[:4].var(ddof=1), x[4:].var(ddof=1)])
    one = [strata.spread(counts[:, [s]]) * v * (len(x[stratum == s]) - 1) / len(x[stratum == s])
           for s, v in enumerate(variance)]  # fmt: skip
    assert np.cov(np.array(dealt).T, bias=True) == pytest.approx(one[0] + one[1])


def test_sums_of_clients_add_up_to_the_sums_of_all() -> None:
    rng = np.random.default_rng(0)
    x, stratum = rng.standard_normal((40, 3)), rng.integers(0, 4, 40)
    whole = strata.sums(x, stratum, 4)
    parts = strata.added([strata.sums(x[i::3], stratum[i::3], 4) for i in range(3)])
    for k in ("n", "first", "second"):
        assert getattr(parts, k) == pytest.approx(getattr(whole, k))


def test_the_covariance_is_that_within_strata() -> None:
    rng = np.random.default_rng(1)
    stratum = np.repeat([0, 1], 500)
    x = rng.standard_normal((1000, 2)) + 50 * stratum[:, None]
    assert strata.within(strata.sums(x, stratum, 2)).cov == pytest.approx(np.eye(2), abs=0.15)


@pytest.mark.parametrize("n_odd", [12, 60])
def test_p_agrees_with_permutations(n_odd: int) -> None:
    """Heavy tails, two strata, unequal groups: the share of random dealings with as large a statistic."""
    rng = np.random.default_rng(2)
    n = 240
    x = np.concatenate([rng.standard_normal((n, 3)), rng.standard_t(3, (n, 2))], 1)
    stratum, group = rng.integers(0, 2, n), np.repeat([0, 1, 2], [n_odd, 100, 140 - n_odd])

    def statistic(who: Ints) -> strata.Test:
        counts = np.zeros((3, 2))
        np.add.at(counts, (who, stratum), 1)
        inside = strata.within(strata.sums(x, stratum, 2))
        size = strata.length(x - inside.mean[stratum], inside, 0.1)
        usual = np.bincount(stratum, size) / np.bincount(stratum)
        own = np.bincount(who, size - usual[stratum]).astype(np.float64)
        return strata.test(centred_sums(x, who, stratum, 3), own, counts, inside, 0.1, np.ones(3, bool))

    chance = []
    for _ in range(400):
        who = group.copy()
        for s in (0, 1):
            who[stratum == s] = rng.permutation(who[stratum == s])
        chance.append(statistic(who))
    values = np.array([t.statistic for t in chance])
    assert chance[0].mean == pytest.approx(values.mean(), rel=0.05)
    assert chance[0].deviation == pytest.approx(values.std(), rel=0.15)
    p = np.array([t.p for t in chance])
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.03)
    assert (p < 0.5).mean() == pytest.approx(0.5, abs=0.08)


def test_the_tail_of_a_chi_square_is_its_own() -> None:
    """A chi-square's cumulants are those of a shifted gamma, so that the tail is exact."""
    for value in (3.0, 9.5, 30.0):
        assert strata.tail(value, 4, 8, 32) == pytest.approx(chi2.sf(value, 4))


@given(st.integers(0, 10_000))
def test_auc_from_histograms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.5, 1, 150), rng.normal(0, 1, 170)
    found = strata.auc(strata.histogram(a, np.ones(150)), strata.histogram(b, np.ones(170)))
    exact = roc_auc_score(np.repeat([1, 0], [150, 170]), np.concatenate([a, b]))
    assert found == pytest.approx(exact, abs=0.01)
