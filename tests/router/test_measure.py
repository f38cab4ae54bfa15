"""What is said of routing is what was counted."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from fedroute.errors import InputError
from fedroute.evaluate.aggregate import aggregate
from fedroute.evaluate.intervals import paired_accuracy, wilson
from fedroute.evaluate.metrics import Yardstick
from fedroute.router.measure import (
    best_single,
    confusion,
    correct,
    cost,
    per_client,
    risk_coverage,
    routing,
)
from fedroute.router.rules import RULES, decide
from fedroute.router.scores import Scores

from .worlds import differing


def drawn(rows: int = 3000, seed: int = 0) -> tuple[Scores, torch.Tensor, torch.Tensor]:
    world = differing(6, 4, 2, seed, 0.5)
    x, owner, y = world.draw(rows, seed)
    return world.scores(x)._replace(common=world.pooled(x)), owner, y


def test_the_oracle_is_the_weighted_average_accuracy_exactly() -> None:
    """As a fraction, for any sizes: the sum over clients of (its share of the queries) times (its own accuracy)."""
    for seed in range(20):
        s, owner, y = drawn(101 + 37 * seed, seed)
        found = routing(s, owner, y)["system_accuracy"]["oracle"]
        parts = [owner == i for i in range(6)]
        hits = [int((s.heads[p, i].argmax(1) == y[p]).sum()) for i, p in enumerate(parts)]
        rows = [int(p.sum()) for p in parts]
        weighted = sum(
            (Fraction(n, len(y)) * Fraction(h, n) for h, n in zip(hits, rows, strict=True) if n), Fraction(0)
        )
        assert found == float(weighted)
        accuracies = [h / n if n else None for h, n in zip(hits, rows, strict=True)]
        ledger = aggregate(accuracies, rows, [str(i) for i in range(6)])
        assert found == pytest.approx(ledger["weighted"], abs=1e-15)
        assert routing(s, owner, y)["macro"]["oracle"] == pytest.approx(ledger["mean"], abs=1e-15)


def test_by_hand() -> None:
    heads = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]], dtype=torch.float64).log().expand(4, 2, 2)
    router = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], dtype=torch.float64)
    s = Scores(router, torch.tensor([0.75, 0.25], dtype=torch.float64), heads)
    owner, y = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 0, 1])
    found = routing(s, owner, y, rule="posterior", best=0)
    assert found["client_accuracy"] == 0.75
    assert found["client_accuracy_macro"] == pytest.approx((2 / 3 + 1) / 2)
    assert found["system_accuracy"]["posterior"] == 0.5
    assert found["system_accuracy"]["oracle"] == 0.75
    assert found["system_accuracy"]["best_single"] == 0.5
    assert found["macro"]["posterior"] == pytest.approx((1 / 3 + 1) / 2)
    assert found["macro"]["best_single"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["confusion"] == [[2, 1], [0, 1]]
    assert found["intervals"]["posterior"] == list(wilson(2, 4) or ())
    assert found["queries"] == 4


def test_every_rule_has_every_number_and_all_of_it_is_json() -> None:
    s, owner, y = drawn()
    found = routing(
        s, owner, y, best=0, arrival=s.prior, yard=Yardstick("accuracy", ("accuracy", "macro_f1", "log_loss"))
    )
    rules = {r for r in RULES if r != "joint"}
    for key in ("system_accuracy", "intervals", "macro", "macro_intervals", "differences", "metrics"):
        assert {*found[key]} == rules, key
    for r in rules:
        low, high = found["intervals"][r]
        assert low < found["system_accuracy"][r] < high
        low, high = found["macro_intervals"][r]
        assert low < found["macro"][r] < high
        assert found["metrics"][r]["accuracy"] == found["system_accuracy"][r]
    assert json.loads(json.dumps(found)) == found
    assert {*routing(s._replace(common=None), owner, y)["system_accuracy"]} == rules - {
        "arrival", "best_single", "global", "consensus_global", "mixture_global", "top_mixture_global"
    }  # fmt: skip
    assert {*routing(s, owner, y, rules=["vote", "density"])["macro"]} == {"vote", "density"}


def test_the_baseline_is_the_best_that_knows_no_owner_and_differences_are_paired() -> None:
    s, owner, y = drawn()
    found = routing(s._replace(common=None), owner, y, best=0, rule="consensus")
    rivals = {r: v for r, v in found["system_accuracy"].items() if RULES[r].baseline and r != "oracle"}
    assert found["baseline"] == max(rivals, key=rivals.__getitem__)
    a, b = (correct(decide(r, s).answer, y) for r in ("consensus", found["baseline"]))
    assert found["differences"]["consensus"] == [a.mean() - b.mean(), *(paired_accuracy(a, b) or ())]
    assert found["differences"][found["baseline"]][0] == 0
    low = found["differences"]["consensus"][1]
    assert found["pays"] == ("yes" if low > 0 else "unclear")


def test_the_macro_difference_is_that_of_macros_with_an_interval_that_covers_the_truth() -> None:
    world = differing(6, 4, 2, shift=0.5)
    x, owner, y = world.draw(20_000)
    s = world.scores(x)

    def part(rows: torch.Tensor) -> dict[str, Any]:
        some = Scores(s.router[rows], s.prior, s.heads[rows])
        return routing(some, owner[rows], y[rows], rules=["consensus", "mean"])

    true, inside = part(torch.arange(20_000))["macro_difference"][0], 0
    for rows in torch.arange(20_000).split(500):
        found = part(rows)
        difference, low, high = found["macro_difference"]
        assert found["macro_baseline"] == "mean"
        assert difference == pytest.approx(found["macro"]["consensus"] - found["macro"]["mean"])
        assert low < difference < high
        inside += low <= true <= high
    assert inside >= 36  # of 40


def test_routing_pays_where_it_does_and_not_where_all_heads_are_the_same() -> None:
    world = differing(6, 4, 3, shift=2.5)
    x, owner, y = world.draw(2000)
    assert routing(world.scores(x), owner, y)["pays"] == "yes"
    s, owner, y = drawn()
    same = s._replace(heads=s.heads[:, :1].expand_as(s.heads), common=None)
    assert routing(same, owner, y)["pays"] == "unclear"
    against = s._replace(heads=(1 - s.heads.exp()).clamp(min=1e-300).log().log_softmax(2))
    assert routing(against, owner, y)["pays"] == "no"


def test_whose_queries_they_are_changes_what_is_counted_and_no_prediction() -> None:
    """Owners shuffled: micro accuracies of every rule but the oracle are the same to the bit."""
    s, owner, y = drawn()
    a, b = routing(s, owner, y), routing(s, owner[torch.randperm(len(owner))], y)
    for r in a["system_accuracy"]:
        assert (a["system_accuracy"][r] == b["system_accuracy"][r]) == (r != "oracle"), r


def test_two_evaluations_agree_exactly() -> None:
    s, owner, y = drawn()
    assert routing(s, owner, y, best=1) == routing(s, owner, y, best=1)


def test_where_nobody_is_asked_in_particular_the_confusion_is_of_the_likeliest() -> None:
    s, owner, y = drawn()
    a, b = routing(s, owner, y, rule="mixture"), routing(s, owner, y, rule="posterior")
    assert a["confusion"] == b["confusion"]
    assert a["confusion_of"] == "posterior"
    table = np.array(a["confusion"])
    assert table.sum() == len(y)
    assert table.trace() / len(y) == pytest.approx(a["client_accuracy"])
    assert confusion(torch.tensor([-1, 1]), torch.tensor([0, 0]), 2) == [[0, 1], [0, 0]]


def test_answers_that_are_nan_are_never_right() -> None:
    p = torch.tensor([[torch.nan, 1.0], [0.2, 0.8]])
    assert correct(p, torch.tensor([0, 1])).tolist() == [False, True]
    assert correct(p, torch.tensor([1, 0])).tolist() == [False, False]


def test_a_client_without_queries_has_no_part_in_the_macro_mean() -> None:
    hit = np.array([True, False, True])
    share = per_client(hit, torch.tensor([0, 0, 2]), 4)
    assert share[[0, 2]].tolist() == [0.5, 1]
    assert np.isnan(share[[1, 3]]).all()


def test_no_query_at_all() -> None:
    s, owner, y = drawn()
    none = Scores(s.router[:0], s.prior, s.heads[:0])
    found = routing(none, owner[:0], y[:0])
    assert found["client_accuracy"] is None
    assert {*found["system_accuracy"].values()} == {None}
    assert found["pays"] == "n/a"
    json.dumps(found)
    with pytest.raises(InputError, match="3000 queries, 2999 owners"):
        routing(s, owner[1:], y)


def test_best_single_is_chosen_among_those_who_may_be() -> None:
    heads = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]]] * 3, dtype=torch.float64).log()
    s = Scores(torch.zeros(3, 3).double(), torch.full((3,), 1 / 3).double(), heads)
    y = torch.tensor([1, 1, 0])
    assert best_single(s, y) == 1
    assert best_single(s._replace(prior=torch.tensor([0.5, 0, 0.5])), y) == 2
    heads[:2, 1] = torch.nan
    assert best_single(s._replace(heads=heads), y) == 2


def test_risk_and_coverage_by_hand() -> None:
    curve = risk_coverage(torch.tensor([0.9, 0.1, 0.5, 0.7]), np.array([True, False, True, False]), points=4)
    assert curve["coverage"] == [0.25, 0.5, 0.75, 1]
    assert curve["risk"] == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert curve["area"] == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_queries_of_equal_score_are_answered_together() -> None:
    """Whatever their order: a constant score has the same risk at every coverage."""
    hit = np.array([True] * 30 + [False] * 10)
    curve = risk_coverage(torch.ones(40), hit)
    assert curve["risk"] == pytest.approx([0.25] * len(curve["risk"]))
    assert curve["area"] == pytest.approx(0.25)
    score = torch.rand(200, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    right = np.random.default_rng(0).random(200) < 0.6
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    assert risk_coverage(score, right)["risk"] == pytest.approx(
        risk_coverage(score[order], right[order.numpy()])["risk"]
    )


def test_a_score_that_knows_has_less_risk_than_one_that_does_not() -> None:
    s, _, y = drawn()
    d = decide("consensus", s)
    hit = correct(d.answer, y)
    known, none = risk_coverage(d.score, hit), risk_coverage(torch.ones(len(y)), hit)
    assert known["area"] < 0.8 * none["area"]
    assert known["risk"][-1] == pytest.approx(none["risk"][-1]) == pytest.approx(1 - hit.mean())


def test_what_a_query_costs() -> None:
    one, few, all_ = (cost(r, 8, 10, 3072, top=2) for r in ("posterior", "top_mixture", "consensus"))
    assert (one["asked"], few["asked"], all_["asked"], cost("global", 8, 10, 3072)["asked"]) == (1, 2, 8, 0)
    assert one["bytes"] == 3072 + 40
    assert all_["bytes"] == 8 * one["bytes"]
    assert all_["hosted"]["models"] == 1
    assert cost("consensus", 8, 10, 3072, bodies=8)["hosted"]["models"] == 8
    assert cost("top_mixture", 1, 10, 3072)["asked"] == 1
