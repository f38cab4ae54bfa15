"""Metrics against scikit-learn and closed forms; what is undefined is None."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from fedroute.evaluate.metrics import (
    Array,
    answers,
    auc,
    calibration_error,
    macro_f1,
    measure,
    pr_auc,
    ranking,
    recall_at_fpr,
    yardstick,
)
from tests.evaluate.planted import federation

ALL = yardstick(federation([[0, 1, 2]]))
TWO = yardstick(federation([[0, 1]], labels=("no", "yes"), train=[[0, 0, 1]]))


def drawn(seed: int, n: int, k: int, step: float = 0.0) -> tuple[Array, Array]:
    """Logits (n, k), rounded to `step` so that scores tie, and labels (n,)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, k))
    return (np.round(z / step) * step if step else z), rng.integers(0, k, n)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 80), step=st.sampled_from([0.0, 0.5, 1.0]))
def test_two_classes_agree_with_scikit_learn(seed: int, n: int, step: float) -> None:
    z, y = drawn(seed, n, 2, step)
    y[:2] = [0, 1]
    a = answers(z, y)
    got = measure(a, TWO)
    p = a.prob[:, 1]
    assert got["accuracy"] == pytest.approx(oracle.accuracy_score(y, z.argmax(1)))
    assert got["macro_f1"] == pytest.approx(oracle.f1_score(y, z.argmax(1), average="macro", zero_division=0))
    assert got["auc"] == pytest.approx(oracle.roc_auc_score(y, p))
    assert got["pr_auc"] == pytest.approx(oracle.average_precision_score(y, p))
    assert got["log_loss"] == pytest.approx(oracle.log_loss(y, a.prob, labels=[0, 1]))
    fpr, tpr, _ = oracle.roc_curve(y, p, drop_intermediate=False)
    assert got["recall_at_fpr"] == pytest.approx(tpr[fpr <= 0.01].max())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(6, 60), k=st.integers(3, 6), step=st.sampled_from([0.0, 1.0]))
def test_many_classes_agree_with_scikit_learn_over_classes_with_both_kinds(
    seed: int, n: int, k: int, step: float
) -> None:
    z, y = drawn(seed, n, k, step)
    y = np.minimum(y, k - 2)  # the last class is absent from the part
    y[:2] = [0, 1]
    a = answers(z, y)
    got = measure(a, ALL)
    present = [c for c in range(k) if 0 < (y == c).sum() < n]
    assert got["auc"] == pytest.approx(np.mean([oracle.roc_auc_score(y == c, a.prob[:, c]) for c in present]))
    assert got["pr_auc"] == pytest.approx(
        np.mean([oracle.average_precision_score(y == c, a.prob[:, c]) for c in present])
    )
    f1 = oracle.f1_score(y, z.argmax(1), labels=np.unique(y), average="macro", zero_division=0)
    assert got["macro_f1"] == pytest.approx(f1)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_counts_mean_the_same_as_repeated_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, positive, counts = rng.integers(0, 5, 20) / 5, rng.random(20) < 0.4, rng.integers(0, 4, 20)
    for statistic in (auc, pr_auc, recall_at_fpr):
        weighted = statistic(score, positive)(counts[None].astype(float))
        repeated = statistic(np.repeat(score, counts), np.repeat(positive, counts))(np.ones((1, counts.sum())))
        np.testing.assert_allclose(weighted, repeated)


def test_one_class_leaves_rankings_undefined_and_the_rest_measured() -> None:
    got = measure(answers(np.eye(3)[[1, 1, 2]], np.array([1, 1, 1])), ALL)
    assert got["auc"] is None
    assert got["pr_auc"] is None
    assert got["accuracy"] == pytest.approx(2 / 3)
    assert got["macro_f1"] == pytest.approx(0.8)  # class 1 alone: 2 of 2 named right, one of three missed


def test_no_rows_is_none_everywhere() -> None:
    got = measure(answers(np.zeros((0, 3)), np.zeros(0, dtype=int)), ALL)
    assert set(got.values()) == {None}


def test_nan_answers_are_wrong_and_have_no_ranking() -> None:
    z = np.array([[np.nan, 0, 0], [0, 9.0, 0], [np.inf, 0, 0], [9.0, 0, 0]])
    a = answers(z, np.array([0, 1, 0, 0]))
    got = measure(a, ALL)
    assert a.broken == 2
    assert got["accuracy"] == 0.5
    assert got["auc"] is None
    assert got["log_loss"] is None


def test_a_masked_class_with_logit_minus_infinity_is_fine() -> None:
    a = answers(np.array([[0.0, -np.inf, 0.0]]), np.array([0]))
    assert a.broken == 0
    assert a.loss[0] == pytest.approx(math.log(2))


def test_logits_of_one_column_are_the_odds_of_class_one() -> None:
    odds = np.array([2.0, -1.0, 0.5])
    two = answers(np.stack([np.zeros(3), odds], 1), np.array([1, 0, 0]))
    for logits in (odds, odds[:, None]):
        one = answers(logits, np.array([1, 0, 0]))
        np.testing.assert_allclose(one.prob, two.prob)
        np.testing.assert_allclose(one.loss, two.loss)


def test_calibration_error_closed_forms() -> None:
    half = np.full(100, 0.75)
    assert calibration_error(half, np.arange(100) < 75) == pytest.approx(0.0)
    assert calibration_error(half, np.arange(100) < 50) == pytest.approx(0.25)
    two_bins = calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, False, False]))
    assert two_bins == pytest.approx(0.5 * 0.1 + 0.5 * 0.6)
    assert calibration_error(np.array([1.0]), np.array([True])) == 0.0


def test_a_constant_score_has_the_share_of_positives_as_pr_auc() -> None:
    once = np.ones((1, 10))
    positive = np.arange(10) < 3
    assert pr_auc(np.zeros(10), positive)(once)[0] == pytest.approx(0.3)
    assert auc(np.zeros(10), positive)(once)[0] == pytest.approx(0.5)
    assert recall_at_fpr(np.zeros(10), positive)(once)[0] == 0.0


def test_macro_f1_leaves_out_classes_that_are_absent_but_not_the_harm_of_naming_them() -> None:
    assert macro_f1(np.array([0, 0, 2, 2]), np.array([0, 0, 1, 1])) == pytest.approx(0.5)


def test_rare_events_are_judged_by_pr_auc_of_the_rarer_class() -> None:
    rare = federation([[0, 1]], labels=("fraud", "fine"), train=[[0] * 4 + [1] * 96])
    assert (yardstick(rare).headline, yardstick(rare).positive) == ("pr_auc", 0)
    common = federation([[0, 1]], labels=("fine", "fraud"), train=[[0] * 95 + [1] * 5])
    assert (yardstick(common).headline, yardstick(common).positive) == ("accuracy", 1)
    one_sided = federation([[0]], labels=("a", "b"), train=[[0] * 50])  # nothing rare: one class only
    assert yardstick(one_sided).headline == "accuracy"


def test_other_targets_have_their_loss_only() -> None:
    f = federation([[0, 0]], values=torch.randn(4))
    assert yardstick(f).metrics == ("loss",)


def test_rankings_of_many_draws_are_those_of_each() -> None:
    z, y = drawn(5, 30, 3)
    a = answers(z, y)
    counts = np.random.default_rng(0).integers(0, 3, (4, 30)).astype(float)
    together = ranking("auc", a, -1)(counts)
    np.testing.assert_allclose(together, [ranking("auc", a, -1)(c[None])[0] for c in counts])
