"""The suite that judges the advice: its halves, its results, its arithmetic, and the page made of them."""

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.advice.contenders import contenders
from benchmarks.advice.federations import halves, suite
from benchmarks.advice.hindsight import RESULTS, packed, read, unpacked
from benchmarks.advice.page import DOCS, page
from benchmarks.advice.score import advice_of, mixed, outcome, proved, scores
from fedroute.advise.job import advise_federation
from tests.profile.worlds import world

FILES = sorted(RESULTS.glob("*.json"))
KINDS = {"natural", "label", "same", "feature", "both", "concept", "quantity", "duplicates", "one class", "time"}


def test_half_is_held_out_and_nobody_chose_which() -> None:
    cases, half = suite(), halves()
    assert len(cases) >= 40
    assert {c.kind for c in cases.values()} == KINDS
    counts = Counter(half.values())
    assert abs(counts["design"] - counts["held out"]) <= 1
    for kind in KINDS:
        of = Counter(half[n] for n, c in cases.items() if c.kind == kind)
        assert abs(of["design"] - of["held out"]) <= 1


@pytest.mark.skipif(not FILES, reason="benchmarks/advice/results is not in this copy")
def test_results_are_of_the_suite_with_eight_methods_and_two_seeds() -> None:
    cases, half = suite(), halves()
    assert {path.stem for path in FILES} == cases.keys()
    for path in FILES:
        found = read(path)
        case = cases[path.stem]
        assert (found["kind"], found["half"], found["model"]) == (case.kind, half[path.stem], case.model)
        assert found["training"] == case.training
        assert len(found["seeds"]) >= 2
        assert len(scores(found, "test")) >= 8
        assert set(scores(found, "test")) <= set(contenders(case.model["name"]))
        assert advice_of(found).keys() == found["seeds"].keys()


@pytest.mark.skipif(not FILES, reason="benchmarks/advice/results is not in this copy")
def test_the_page_says_what_the_results_say() -> None:
    assert DOCS.read_text(encoding="utf-8") == page(), "run `python -m benchmarks.advice page`"


def test_answers_survive_packing() -> None:
    answers = np.random.default_rng(0).random(37) < 0.5
    assert np.array_equal(unpacked(packed(answers), 37), answers)


def made_up() -> dict[str, Any]:
    """Two clients, two seeds: `alone` is right at the first client, fedavg at the second, fedper at both but for a row
    of each."""

    def run(a: list[int], b: list[int]) -> dict[str, Any]:
        both = [packed(np.array(v, dtype=bool)) for v in (a, b)]
        return {"seconds": 1, "up_bytes": 0, "validation": both, "test": both}

    yes, no, most = [1] * 8, [0] * 8, [1] * 7 + [0]
    runs = {"alone": run(yes, no), "fedavg": run(no, yes), "fedper": run(most, most)}
    seed = {"clients": [["a", 20, 8, 8], ["b", 20, 8, 8]], "runs": runs}
    about = {"name": "made up", "kind": "label", "training": {"rounds": 1}}
    return about | {"seeds": {"0": seed, "1": seed | {"runs": runs | {"fedper": run(yes, yes)}}}}


def test_regret_is_behind_the_best_over_all_seeds() -> None:
    o = outcome(made_up(), "alone")
    assert o.best == "fedper"
    assert (o.accuracy, o.regret) == pytest.approx((0.5, (0.875 + 1) / 2 - 0.5))
    assert not o.near
    assert outcome(made_up(), "fedper").regret == 0
    both = outcome(made_up(), {"0": "fedavg", "1": "fedper"})
    assert both.accuracy == pytest.approx((0.5 + 1) / 2)
    assert outcome(made_up(), "fedper_fedbn").chosen == {"0": "fedper_fedbn", "1": "fedper_fedbn"}
    assert outcome(made_up(), "fedper_fedbn").regret == 0  # without norms to keep it is fedper


def test_a_mixture_takes_each_seed_from_its_own_method() -> None:
    of = mixed(scores(made_up(), "test"), {"0": "alone", "1": "fedavg"})
    assert {k: float(v.mean()) for k, v in of.items()} == {"0/a": 1, "0/b": 0, "1/a": 0, "1/b": 1}


def test_the_proof_takes_what_validation_rows_favour() -> None:
    a = {"label": "alone", "runner_up": "fedper"}
    assert proved(made_up(), {"0": a, "1": a}) == {"0": "fedper", "1": "fedper"}
    b = {"label": "fedper", "runner_up": "alone"}
    assert proved(made_up(), {"0": b, "1": b}) == {"0": "fedper", "1": "fedper"}


def test_the_advice_does_not_look_at_answers_of_test_rows() -> None:
    f = world("label", seed=3)
    test = torch.cat(f.test)
    other = replace(f, y=f.y.index_copy(0, test, (f.y[test] + 1) % 4), x=f.x.index_copy(0, test, f.x[test.flip(0)]))
    one, two = (advise_federation(g, {"name": "mlp"}) for g in (f, other))
    assert one.row() | {"personal": None} == two.row() | {"personal": None}


@pytest.mark.skipif("FEDROUTE_DATA" not in os.environ, reason="FEDROUTE_DATA is not set")
@pytest.mark.parametrize("name", ["heart", "stroke_small_hospitals", "digits_repeated", "cifar_colour", "gas_units"])
def test_a_federation_is_the_one_that_was_run_whenever_it_is_made(name: str) -> None:
    a, b = (suite()[name].make(1) for _ in range(2))
    assert a.clients == b.clients
    sizes = zip(*(a.sizes(p).tolist() for p in ("train", "validation", "test")), strict=True)
    assert read(RESULTS / f"{name}.json")["seeds"]["1"]["clients"] == [
        [c, *n] for c, n in zip(a.clients, sizes, strict=True)
    ]
    assert torch.equal(a.x, b.x)
    assert all(torch.equal(p, q) for p, q in zip(a.test, b.test, strict=True))
