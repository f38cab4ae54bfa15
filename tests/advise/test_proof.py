"""The head-to-head: what its numbers say, and that test rows have no part in it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedroute.advise.proof import Scores, concluded, on_validation, paired, prove
from fedroute.config import Training
from fedroute.data.federation import Federation
from fedroute.data.spec import Split
from fedroute.errors import InputError
from fedroute.evaluate.wilson import Z


def rows(*values: float) -> NDArray[np.float64]:
    return np.array([values])


def scores(seed: int, right: float, clients: int = 4, n: int = 60) -> Scores:
    rng = np.random.default_rng(seed)
    return {f"c{i}": (rng.random((3, n)) < right).astype(float) for i in range(clients)}


def test_the_difference_is_the_mean_over_clients_each_counting_once() -> None:
    a: Scores = {"big": rows(*[1.0] * 90 + [0.0] * 10), "small": rows(0.0, 0.0)}
    b: Scores = {"big": rows(*[0.0] * 100), "small": rows(1.0, 1.0)}
    assert paired(a, b)[0] == pytest.approx((0.9 - 1.0) / 2)


def test_one_client_has_the_interval_of_agresti_and_min() -> None:
    """12 rows on which one is right and 4 on which the other is, of 50: their formula in closed form."""
    a = {"only": rows(*[1.0] * 12 + [0.0] * 4 + [1.0] * 34)}
    b = {"only": rows(*[0.0] * 12 + [1.0] * 4 + [1.0] * 34)}
    centre, (low, high) = paired(a, b)
    n, won, lost = 52, 13, 5
    half = Z * ((won + lost) - (won - lost) ** 2 / n) ** 0.5 / n
    assert centre == pytest.approx(8 / 50)
    assert (low, high) == pytest.approx((centre - half, centre + half))


def test_the_same_answers_on_few_rows_are_not_taken_for_the_same() -> None:
    a: Scores = {"only": rows(*[1.0] * 8)}
    low, high = paired(a, a)[1]
    assert low < -0.05
    assert high > 0.05


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.2, 0.9), st.floats(0.2, 0.9))
def test_the_other_way_round_is_the_negative(seed: int, p: float, q: float) -> None:
    a, b = scores(seed, p), scores(seed + 1, q)
    (d, (low, high)), (e, (low_e, high_e)) = paired(a, b), paired(b, a)
    assert (d, low, high) == pytest.approx((-e, -high_e, -low_e))
    assert low <= d <= high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    truth, hit = 0.1, 0
    for k in range(300):
        rng = np.random.default_rng(k)
        a: Scores = {f"c{i}": (rng.random((1, 40)) < 0.8).astype(float) for i in range(5)}
        b: Scores = {f"c{i}": (rng.random((1, 40)) < 0.7).astype(float) for i in range(5)}
        low, high = paired(a, b)[1]
        hit += low <= truth <= high
    assert 0.91 <= hit / 300 <= 0.99


def test_losses_have_the_plain_interval_whatever_their_unit() -> None:
    d = np.random.default_rng(0).normal(0.3, 1.0, 50)
    one, ten = (paired({"only": u * d[None]}, {"only": 0 * d[None]})[1] for u in (1.0, 10.0))
    half = Z * float(d.std(ddof=1)) / 50**0.5
    assert one == pytest.approx((d.mean() - half, d.mean() + half))
    assert ten == pytest.approx((10 * one[0], 10 * one[1]))


def conclude(**right: float):  # type: ignore[no-untyped-def]
    found = {label: scores(7, p) for label, p in right.items()}
    means = {k: [float(np.mean([v[s].mean() for v in of.values()])) for s in range(3)] for k, of in found.items()}
    return concluded({k: {} for k in right}, means, found, metric="accuracy", higher=True, rounds=9, ratio=0.5)


def test_it_confirms_overturns_or_leaves_open() -> None:
    sure = conclude(ditto=0.9, fedavg=0.6, alone=0.5)
    assert (sure.verdict, sure.algorithm) == ("confirmed", "ditto")
    assert "better than fedavg, alone beyond the noise" in sure.words
    over = conclude(ditto=0.6, fedavg=0.9, alone=0.5)
    assert (over.verdict, over.algorithm) == ("overturned", "fedavg")
    assert "overturns" in over.words
    open_ = conclude(ditto=0.80, fedavg=0.805, alone=0.5)
    assert (open_.verdict, open_.algorithm) == ("open", "ditto")


def test_of_losses_the_lower_one_is_better() -> None:
    found = {"a": {"c": np.full((2, 30), 0.9)}, "b": {"c": np.full((2, 30), 0.1)}}
    means = {"a": [0.9, 0.9], "b": [0.1, 0.1]}
    proof = concluded({"a": {}, "b": {}}, means, found, metric="loss", higher=False, rounds=1, ratio=0.5)
    assert (proof.verdict, proof.algorithm) == ("overturned", "b")


def two_meanings(validation: float = 0.25) -> Federation:
    """Four clients, two of which call the classes by each other's names: one model for all cannot be right."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(800, 3, generator=g)
    client = torch.arange(800) % 4
    y = ((x[:, 0] > 0).long() + (client >= 2).long()) % 2
    split = Split(validation=validation, test=0.25)
    return Federation.from_arrays(x, y, [f"c{i}" for i in client.tolist()], split=split)


CONTENDERS = {k: {"algorithm": {"name": k}} for k in ("fedavg", "alone")}
BUDGET = Training(rounds=4, lr=0.5)


def test_an_advice_that_is_wrong_is_overturned_by_the_runs() -> None:
    proof = prove(two_meanings(), {"name": "linear"}, CONTENDERS, training=BUDGET, seeds=2, engine="stacked")
    assert (proof.verdict, proof.algorithm) == ("overturned", "alone")
    assert proof.contests[1].mean > 0.9
    assert len(proof.contests[0].by_seed) == 2
    assert proof.row()["part"] == "validation"


def test_test_rows_have_no_part_in_it() -> None:
    f = two_meanings()
    seen = on_validation(f)
    assert all(torch.equal(a, b) for a, b in zip(seen.test, f.validation, strict=True))
    assert int(seen.sizes("validation").sum()) == 0
    test = torch.cat(f.test)
    poisoned = replace(f, x=f.x.index_fill(0, test, 1e9), y=f.y.index_copy(0, test, 1 - f.y[test]))
    one, other = (
        prove(g, {"name": "linear"}, CONTENDERS, training=BUDGET, seeds=1, engine="stacked") for g in (f, poisoned)
    )
    assert [c.mean for c in one.contests] == [c.mean for c in other.contests]


def test_without_validation_rows_there_is_no_proof() -> None:
    with pytest.raises(InputError, match=r"federation\.split\.validation"):
        prove(two_meanings(0.0), {"name": "linear"}, CONTENDERS, training=BUDGET)
    with pytest.raises(InputError, match="name two"):
        prove(two_meanings(), {"name": "linear"}, {"fedavg": CONTENDERS["fedavg"]}, training=BUDGET)
