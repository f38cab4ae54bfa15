"""Each measure against closed forms, and against what it must not mistake."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedroute.profile import concept, coverage, feature, label, missing, quantity, time
from fedroute.profile.sample import FOLDS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_clients_without_a_label_in_common() -> None:
    found = label.measure(np.array([[[200, 0]], [[0, 200]]]), rng())
    assert found.tv == 1
    assert found.js == pytest.approx(1)
    assert found.strength == 1
    assert found.effective == pytest.approx([1, 1])
    assert found.p is not None
    assert found.p < 1e-6


def test_the_total_variation_of_two_mixes() -> None:
    found = label.measure(np.array([[[90, 10]], [[40, 60]]]), rng())
    assert found.tv == pytest.approx(0.5)
    assert found.strength < 0.5
    assert found.interval[0] < found.strength < found.interval[1]
    assert found.effective == pytest.approx([np.exp(-0.9 * np.log(0.9) - 0.1 * np.log(0.1)),
                                             np.exp(-0.4 * np.log(0.4) - 0.6 * np.log(0.6))])  # fmt: skip


def test_random_label_mixes_are_called_random() -> None:
    draws = np.random.default_rng(3)
    p = [label.measure(draws.multinomial(60, [0.2, 0.3, 0.5], 6)[:, None], rng()).p or 0 for _ in range(60)]
    assert np.mean(np.array(p) < 0.05) <= 0.12
    assert np.mean(np.array(p) < 0.01) <= 0.04
    assert 0.3 < np.mean(p) < 0.7


def test_labels_that_strata_explain_are_no_skew() -> None:
    """Two clients, one mostly of the morning, one of the evening; at each time they agree."""
    counts = np.array([[[90, 10], [1, 9]], [[9, 1], [10, 90]]])
    assert (label.measure(counts.sum(1, keepdims=True), rng()).p or 0) < 1e-6
    assert (label.measure(counts, rng()).p or 0) > 0.5


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=30))
def test_gini_is_half_the_mean_difference_over_the_mean(sizes: list[int]) -> None:
    n = np.array(sizes)
    assert quantity.gini(n) == pytest.approx(np.abs(n[:, None] - n).mean() / 2 / n.mean())


def test_one_client_has_nearly_all() -> None:
    found = quantity.measure(np.array([1, 1, 9998]), rng())
    assert found.strength == pytest.approx(1, abs=0.01)
    assert found.clients == pytest.approx(1, abs=0.01)
    assert (found.largest, found.who) == (0.9998, 2)


def dealt(x: Floats, y: Ints, who: Ints) -> tuple[list[Floats], list[Ints], list[Ints], list[Ints]]:
    """Rows by client: features, group, label, fold."""
    of = [np.flatnonzero(who == i) for i in range(who.max() + 1)]
    folds = [np.arange(len(r)) % FOLDS for r in of]
    return [x[r] for r in of], [who[r] for r in of], [y[r] for r in of], folds


def test_a_shift_of_one_feature_is_found_and_measured() -> None:
    r = rng()
    who, y = np.repeat([0, 1], 600), np.tile([0, 1], 600)
    x = r.standard_normal((1200, 3)) + 2 * y[:, None]
    x[who == 1, 2] += 0.8
    phi, group, labels, fold = dealt(x, y, who)
    found = feature.measure(phi, group, labels, fold, 2, 2, rng(), 3)
    assert found.shift[1] - found.shift[0] == pytest.approx([0, 0, 1.6], abs=0.25)  # each against the other
    assert found.auc == pytest.approx(0.714, abs=0.04)  # Phi(0.8 / sqrt 2)
    assert found.interval[0] < 2 * 0.714 - 1 < found.interval[1]
    assert found.test is not None
    assert found.test.p < 1e-6
    moved = feature.wasserstein(phi, group, labels, 2, 2)
    assert moved[0] == pytest.approx([0, 0, 0.8], abs=0.12)


def test_label_skew_is_not_taken_for_feature_skew() -> None:
    r = rng()
    who = np.repeat([0, 1], 500)
    y = (r.random(1000) < np.where(who == 0, 0.9, 0.2)).astype(np.int64)
    phi, group, labels, fold = dealt(r.standard_normal((1000, 3)) + 2 * y[:, None], y, who)
    found = feature.measure(phi, group, labels, fold, 2, 2, rng())
    assert found.auc == pytest.approx(0.5, abs=0.05)
    assert found.test is not None
    assert found.test.p > 0.01
    whatever = feature.measure(phi, group, [np.zeros_like(v) for v in labels], fold, 2, 1, rng())
    assert whatever.auc > 0.75


def test_aligning_takes_off_shift_and_spread() -> None:
    r = rng()
    who, y = np.repeat([0, 1], 1000), np.tile([0, 1], 1000)
    x = r.standard_normal((2000, 2)) * np.where(who == 1, 2.0, 1.0)[:, None] + 1.5 * who[:, None]
    phi, group, labels, fold = dealt(x, y, who)
    found = feature.measure(phi, group, labels, fold, 2, 2, rng(), 2)
    a, b = (feature.align(v, found.shift[i], found.ratio[i]) for i, v in enumerate(phi))
    assert a.std(0) == pytest.approx(b.std(0), rel=0.1)


@pytest.mark.parametrize(("swapped", "skewed"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_meaning_is_judged_whatever_the_label_mix(swapped: bool, skewed: bool) -> None:
    r = rng()
    who = np.repeat([0, 1, 2, 3], 300)
    share = np.array([0.9, 0.2, 0.6, 0.4] if skewed else [0.5] * 4)[who]
    true = (r.random(1200) < share).astype(np.int64)
    x = r.standard_normal((1200, 3)) + np.outer(true, [2.0, -1.0, 0.0])
    y = np.where((who == 3) & swapped, 1 - true, true)
    phi, group, labels, fold = dealt(x, y, who)
    found = concept.measure(phi, group, labels, fold, 4, 2)
    assert found.p is not None
    if swapped:
        assert found.p < 1e-6
        assert found.by_group[3] > 0.9
        assert found.others < found.own
    else:
        assert found.p > 0.01
        assert found.strength < 0.02


def test_a_meaning_needs_two_labels_at_two_clients() -> None:
    who, y = np.repeat([0, 1], 100), np.repeat([0, 1], 100)
    phi, group, labels, fold = dealt(rng().standard_normal((200, 2)), y, who)
    found = concept.measure(phi, group, labels, fold, 2, 2)
    assert found.p is None
    assert found.strength == 0


def test_when_times_tell_whose_a_row_is() -> None:
    r = rng()
    apart = [r.uniform(k, k + 1, 200) for k in range(4)]
    alike = [r.uniform(0, 4, 200) for _ in range(4)]
    assert time.confounded(time.cut(apart, 8), apart) == pytest.approx(1, abs=0.03)
    assert time.confounded(time.cut(alike, 8), alike) < 0.03


def test_few_values_of_time_are_their_own_stretches() -> None:
    edges = time.cut([np.array([1.0, 1, 2, 2, 5, 5])], 8)
    assert time.stretch(edges, np.array([1.0, 2, 5])).tolist() == [0, 1, 2]
    assert len(time.cut([np.ones(20)], 8)) == 0


def test_a_column_that_one_client_lacks() -> None:
    share = np.array([[0.0, 0.1], [1.0, 0.12], [0.02, 0.08]])
    found = missing.measure(share, np.array([100, 100, 100]), ("chol", "age"))
    assert [(c.name, c.unequal, c.absent) for c in found] == [("chol", True, (1,)), ("age", False, ())]
    assert found[0].row(("a", "b", "c"))["absent_at"] == ["b"]


def test_who_is_tiny_who_has_one_label_and_who_lacks_one() -> None:
    known = np.array([[50, 50, 50], [0, 200, 0], [3, 0, 4], [0, 0, 0], [95, 5, 0], [900, 900, 900]])
    found = coverage.measure(known, True)
    assert found.flags == (
        (), ("one_class", "missing_labels"), ("tiny",), ("empty",), ("nearly_one_class", "missing_labels"),
        ("dominates",),
    )  # fmt: skip
    assert found.lacking[1] == (0, 2)
    assert found.holders.tolist() == [4, 4, 3]
    assert coverage.measure(known, False).flags[1] == ()  # a number to predict has no classes
