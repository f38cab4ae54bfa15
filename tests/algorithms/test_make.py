"""Algorithms from a config, and as `fedroute algorithms` describes them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import fedroute.algorithms as package
from fedroute.algorithms import ALGORITHMS, describe, make, options
from fedroute.algorithms.alone import Alone
from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.fedavg_ft import FedAvgFT
from fedroute.algorithms.fednova import FedNova
from fedroute.algorithms.fedprox import FedProx
from fedroute.algorithms.scaffold import Scaffold
from fedroute.certificates.rig import UNIFORM, classes, network, train
from fedroute.config import Training
from fedroute.core import Algorithm
from fedroute.errors import InputError
from fedroute.rounds import prepare
from fedroute.weighting import Weighting


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ("fedavg", FedAvg()),
        ({"name": "fedprox", "mu": 0.1, "private": ["norm"]}, FedProx(mu=0.1, private=("norm",))),
        ({"name": "fedprox", "mu": 1}, FedProx(mu=1.0)),
        ({"name": "scaffold", "option": "I"}, Scaffold(option="I")),
        ({"name": "fednova", "mu": 0.5}, FedNova(mu=0.5)),
        ({"name": "fedavg_ft", "adapt_epochs": 3}, FedAvgFT(adapt_epochs=3)),
        ("alone", Alone()),
    ],
)
def test_make(spec: str | dict[str, Any], want: Algorithm) -> None:
    made = make(spec)
    assert made == want
    assert type(made) is type(want)
    name = spec if isinstance(spec, str) else spec["name"]
    assert made.describe()["name"] == name


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("fedprx", "algorithm.name: no algorithm 'fedprx'; did you mean fedprox?"),
        ("zzz", "take one of a"),
        ({}, "algorithm.name is missing"),
        ({"name": 3}, "algorithm.name: no algorithm 3"),
        ({"name": "fedprox", "mu_": 1}, "algorithm.mu_: unknown key; did you mean mu?"),
        ({"name": "fedprox", "mu": -1}, "algorithm.mu: Input should be greater than or equal to 0, but it is -1"),
        ({"name": "fedprox", "mu": "strong"}, "algorithm.mu: Input should be a valid number"),
        ({"name": "fedprox", "mu": [1]}, "algorithm.mu: Input should be a valid number, but it is [1]"),
        ({"name": "fedprox", "mu": True}, "algorithm.mu: Input should be a valid number"),
        ({"name": "fedprox", "mu": float("nan")}, "algorithm.mu: Input should be a finite number"),
        ({"name": "fedprox", "private": "norm"}, "algorithm.private: Input should be a list such as [norm]"),
        (
            {"name": "fedavg_ft", "adapt_epochs": 0},
            "algorithm.adapt_epochs: Input should be greater than or equal to 1",
        ),
        ({"name": "fedavg_ft", "adapt_epochs": 1.5}, "algorithm.adapt_epochs: Input should be a valid integer"),
        ({"name": "scaffold", "option": "III"}, "algorithm.option: Input should be 'I' or 'II'"),
        ({"name": "fedavg", "server_lr": 0.1}, "algorithm.server_lr: belongs to the part training"),
    ],
)
def test_make_says_what_is_wrong(spec: str | dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        make(spec)


def test_a_class_of_the_user_goes_by_its_own_name() -> None:
    class Mine(FedProx):
        pass

    assert Mine(mu=0.5).describe() == {"name": "Mine", "private": (), "mu": 0.5}


def test_a_role_that_no_weight_has() -> None:
    with pytest.raises(InputError, match="no weight has the role or name 'haed'"):
        FedAvg(private=("haed",)).bind(network())


def test_describe() -> None:
    rows = {row["name"]: row for row in json.loads(json.dumps(describe()))}
    assert rows.keys() == ALGORITHMS.keys()
    for name, row in rows.items():
        assert row["summary"].endswith("."), f"{name}: the file's first line is its summary"
        assert re.search(r' \d{4}, ".+"$', row["paper"]), f"{name}: the docstring begins with authors, year and title"
        assert all(o["meaning"] for o in row["options"]), f"{name}: an option without a meaning"
        assert row["options"][0]["name"] == "private"
    assert rows["fedprox"]["options"][1] == {
        "name": "mu",
        "default": 0.01,
        "meaning": "strength of the spring to the server's weights",
    }
    assert rows["scaffold"]["sends"].keys() == {"dw", "dc"}
    assert rows["alone"]["sends"] == {}


def test_a_file_for_each_algorithm_and_its_name() -> None:
    files = {p.stem for p in Path(package.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == ALGORITHMS.keys()
    for name, cls in ALGORITHMS.items():
        assert cls.__module__ == f"fedroute.algorithms.{name}"
        assert "Deviation" in (cls.__doc__ or "") or name == "alone"
        assert [o["default"] for o in options(cls)]


def test_scaffold_refuses_a_cap_and_says_why() -> None:
    capped = Training(weighting=Weighting(by="examples", cap=0.4))
    with pytest.raises(InputError, match="SCAFFOLD's c is the mean of c_i over all clients"):
        prepare(Scaffold(), network(), capped)
    prepare(FedAvg(), network(), capped)


def test_scaffold_with_weights_by_examples_keeps_the_weighted_mean() -> None:
    """c = sum p_i c_i over all clients, also where few answer."""
    f, training = (
        classes([5, 40, 20, 12]),
        Training(rounds=6, batch_size=8, clients_per_round=0.5, weighting=Weighting()),
    )
    _, state = train(Scaffold(), f, network(), training)
    p = f.sizes().double() / f.sizes().sum()
    for k, c in state.server["c"].items():
        want = sum(p[i] * state.privates[i]["c"][k] for i in range(4))
        assert float((c - want).abs().max()) < 1e-12
    assert UNIFORM.raw(f.sizes()).tolist() == [1.0] * 4


@pytest.mark.parametrize("private", ["head", "norm"])
def test_scaffold_has_no_control_for_private_weights(private: str) -> None:
    task = network()
    alg, state = train(Scaffold(private=(private,)), classes([5, 40]), task, Training(rounds=2, batch_size=8))
    names = set(task.trainable) - task.named(private)
    assert set(state.server["c"]) == set(state.privates[0]["c"]) == names
    assert alg.kept == task.named(private)
