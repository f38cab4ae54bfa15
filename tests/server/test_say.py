"""What weighting and sampling make of each client is said before training, and refused where it would be ignored."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedroute import fit
from fedroute.algorithms import ALGORITHMS, make
from fedroute.certificates.rig import classes, network, train
from fedroute.config import Training
from fedroute.errors import InputError
from fedroute.robust import Robust
from fedroute.rounds import clients_of_round, prepare, weighting_of, work_of_round
from fedroute.say import announce, doubled, planned
from fedroute.tree import flatten
from fedroute.weighting import Weighting

SIZES = (8, 40, 16, 24)
UNEQUAL = Weighting(by="power", power=1.0)


REFUSED = {name for name, cls in ALGORITHMS.items() if not cls.weighting}


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - REFUSED))
def test_a_weighting_has_a_part(name: str) -> None:
    """Rounds weighted by rows and uniformly end otherwise, unless nothing is sent."""
    f = replace(classes(SIZES), labels=("a", "b", "c"))
    states = []
    for weighting in (UNEQUAL, Weighting(by="uniform")):
        t = Training(rounds=2, lr=0.1, batch_size=8, weighting=weighting)
        states.append(flatten(train(make(name), f, network(), t)[1].server))
    assert any(not torch.equal(v, states[1][k]) for k, v in states[0].items()) == (name != "alone")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_where_it_has_none_it_is_refused(name: str) -> None:
    f, t = classes(SIZES), Training(rounds=1, lr=0.1, batch_size=8)
    with pytest.raises(InputError, match=f"training.weighting: {name} settles itself what each client counts"):
        prepare(make(name), network(), t.model_copy(update={"weighting": UNEQUAL}))
    assert [s.say for s in planned(prepare(make(name), network(), t), f, t, 0)] == [None] * 4


def test_who_is_refused() -> None:
    assert {"afl", "fedamp", "fedfomo"} == REFUSED


def test_drawn_by_rows_means_weighted_uniformly() -> None:
    f, alg = classes(SIZES), make("fedavg")
    for sampling in ("weighted", "loss"):
        t = Training(sampling=sampling, clients_per_round=0.5)
        assert weighting_of(alg, f, t).by == "uniform"
        everybody = t.model_copy(update={"clients_per_round": 1.0})
        assert weighting_of(alg, f, everybody).by == "examples"
        assert weighting_of(alg, f, t.model_copy(update={"clients_per_round": 4.0})).by == "examples"
        assert weighting_of(alg, f, t.model_copy(update={"weighting": UNEQUAL})) == UNEQUAL
    assert weighting_of(alg, f, Training(clients_per_round=0.5)).by == "examples"
    assert weighting_of(make("scaffold"), f, Training()).by == "uniform"
    assert weighting_of(alg, f, Training(robust=Robust(rule="median"))).by == "uniform"


def test_counting_size_twice_is_said() -> None:
    f = classes(SIZES)
    t = Training(sampling="weighted", clients_per_round=0.5)
    assert doubled(f, t) == ""
    for w in (Weighting(), Weighting(by="effective"), Weighting(by="power"), Weighting(by="validation")):
        assert "counts these rows once more" in doubled(f, t.model_copy(update={"weighting": w}))
    for w in (Weighting(by="uniform"), Weighting(by="power", power=0.0)):
        assert doubled(f, t.model_copy(update={"weighting": w})) == ""
    assert doubled(f, Training(sampling="uniform", clients_per_round=0.5, weighting=Weighting())) == ""
    assert doubled(f, Training(sampling="weighted", weighting=Weighting())) == ""  # all take part


@pytest.mark.parametrize("sampling", ["uniform", "weighted", "stratified"])
def test_the_plan_is_what_the_rounds_do(sampling: str) -> None:
    f = replace(classes((8, 40, 16, 24, 12, 30)), labels=("a", "b", "c"))
    t = Training(rounds=40, clients_per_round=0.4, sampling=sampling, batch_size=8)  # type: ignore[arg-type]
    alg = prepare(make("fedavg"), network(), t)
    says = planned(alg, f, t, 3)
    turns = Counter(i for r in range(40) for i in work_of_round(alg, f, t, 3, r).clients)
    assert [s.rounds for s in says] == [turns[i] for i in range(6)]
    assert sum(s.say or 0.0 for s in says) == pytest.approx(1)
    sizes, weighting, mean = f.training_sizes(), weighting_of(alg, f, t), torch.zeros(6, dtype=torch.float64)
    for r in range(40):
        chosen = list(clients_of_round(f, t, 3, r))
        mean[chosen] += weighting.say(sizes[chosen]) / 40
    assert [s.say for s in says] == pytest.approx(mean.tolist())
    assert planned(alg, f, t, 3, most=10) == planned(alg, f, t.model_copy(update={"rounds": 10}), 3)


def test_weighted_sampling_gives_about_the_say_of_rows() -> None:
    f = classes((10, 20, 30, 40) * 3)
    t = Training(rounds=2000, clients_per_round=2, sampling="weighted", batch_size=8)
    for s in planned(prepare(make("fedavg"), network(), t), f, t, 0):
        assert s.say == pytest.approx(s.by_rows, abs=0.02)


def test_by_loss_nobody_knows_who_takes_part() -> None:
    f, t = classes(SIZES), Training(sampling="loss", clients_per_round=0.5)
    alg = prepare(make("fedavg"), network(), t)
    says = planned(alg, f, t, 0)
    assert [s.rounds for s in says] == [None] * 4
    assert "who takes part depends on the losses" in announce(says, alg, f, t)[0]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("fedavg", {}, "say: c00 9.1%, c01 45.5%, c02 18.2%, c03 27.3% (by examples)"),
        ("scaffold", {}, "say: c00 25.0%, c01 25.0%, c02 25.0%, c03 25.0% (by uniform)"),
        ("afl", {}, "say: afl settles itself what each client counts; its rows do not"),
        ("alone", {}, "say: alone sends nothing, so nobody has one"),
        ("fedavg", {"robust": {"rule": "median"}}, "25.0% (one answer, one say)"),
        ("fedavg", {"weighting": {"by": "validation"}}, "its quality on validation rows, which each round tells"),
    ],
)
def test_it_is_said_in_a_line(name: str, options: dict[str, Any], words: str) -> None:
    f, t = classes(SIZES), Training(**options)
    alg = prepare(make(name), network(), t)
    says = planned(alg, f, t, 0)
    if "validation" in words:
        f = replace(f, validation=f.train, labels=("a", "b", "c"))
    assert words in announce(says, alg, f, t)[0]


def test_where_nothing_is_sent_nothing_is_judged() -> None:
    f, t = classes(SIZES), Training(weighting=Weighting(by="validation"), batch_size=8)  # no validation rows
    alg = prepare(make("alone"), network(), t)
    assert announce(planned(alg, f, t, 0), alg, f, t) == ["say: alone sends nothing, so nobody has one"]
    assert not work_of_round(alg, f, t, 0, 0).judged
    assert work_of_round(prepare(make("fedavg"), network(), t), f, t, 0, 0).judged


def test_of_many_clients_the_ends_are_said() -> None:
    f, t = classes(tuple(range(10, 31))), Training()
    alg = prepare(make("fedavg"), network(), t)
    line = announce(planned(alg, f, t, 0), alg, f, t)[0]
    assert line == "say: c20 7.1%, c19 6.9%, c18 6.7%, ... c00 2.4% of 21 clients (by examples)"


def test_a_run_says_it_and_keeps_it() -> None:
    f, heard = classes(SIZES), list[str]()
    f = replace(f, x=f.x.float(), labels=("a", "b", "c"))
    run = fit(f, "mlp", rounds=2, alone=False, log=heard.append)
    assert heard[0].startswith("say: c00 9.1%")
    assert run.summary()["say"] == pytest.approx({"c00": 8 / 88, "c01": 40 / 88, "c02": 16 / 88, "c03": 24 / 88})
