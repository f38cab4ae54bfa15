"""Which algorithms with which options: the text that names them, folders, and the refusal of another config."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroute.compare.plan import Plan, folder_of, make_plan, read_plan
from fedroute.config import Config, from_dict
from fedroute.errors import InputError


def config(**parts: Any) -> Config:
    digits = {"source": "bundled", "name": "digits"}
    document = {"federation": digits, "model": "mlp_bn", "algorithm": {"name": "fedprox", "mu": 0.3}}
    return from_dict(document | parts)


def test_names_and_options() -> None:
    plan = make_plan(config(), "fedavg, fedprox:mu=1; private=[norm,head] ,scaffold:option=I", 2)
    assert list(plan.algorithms) == ["fedavg", "fedprox:mu=1;private=[norm,head]", "scaffold:option=I"]
    assert plan.algorithms["fedprox:mu=1;private=[norm,head]"] == {
        "name": "fedprox",
        "mu": 1.0,
        "private": ["norm", "head"],
    }
    assert plan.algorithms["scaffold:option=I"]["option"] == "I"
    assert plan.all_seeds == [0, 1]


def test_the_name_of_the_configs_algorithm_has_the_configs_options() -> None:
    assert make_plan(config(), "fedprox", 1).algorithms["fedprox"]["mu"] == 0.3
    assert make_plan(config(), "fedprox:mu=1", 1).algorithms["fedprox:mu=1"]["mu"] == 1.0
    assert make_plan(config(algorithm="fedavg"), "fedprox", 1).algorithms["fedprox"]["mu"] != 0.3


def test_a_list_of_specs_does_as_well() -> None:
    spec = {"name": "fedprox", "mu": 1.0, "private": ["norm"]}
    assert make_plan(config(), ["fedavg", spec], 1).algorithms == make_plan(
        config(), "fedavg,fedprox:mu=1.0;private=[norm]", 1
    ).algorithms  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names none"),
        ("fedavg,fedprx", "fedprx: name: no algorithm 'fedprx'; did you mean fedprox"),
        ("fedprox:nu=1", "nu: unknown key"),
        ("fedprox:mu=-1", "fedprox:mu=-1: mu"),
        ("fedprox:mu", "'mu' is no option"),
        ("fedprox:mu=[1", "is not YAML"),
        ("fedavg,fedavg", "one algorithm"),
        ("fedprox,fedprox:mu=0.3", "one algorithm"),
    ],
)
def test_what_is_wrong_is_told(text: str, words: str) -> None:
    with pytest.raises(InputError) as e:
        make_plan(config(), text, 1)
    assert words in str(e.value)


@given(st.lists(st.text(min_size=1, max_size=30), unique=True, max_size=20))
def test_folders_are_plain_and_differ_where_labels_do(labels: list[str]) -> None:
    folders = [folder_of(label) for label in labels]
    assert len({*folders}) == len(labels)
    for folder in folders:
        assert folder not in ("", ".", "..")
        assert "/" not in folder
        assert "\\" not in folder


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = make_plan(config(), "fedavg,fedprox:mu=1;private=[norm]", 3)
    assert read_plan(tmp_path) is None
    plan.write(tmp_path)
    assert read_plan(tmp_path) == plan
    (tmp_path / "compare.yaml").write_text("- 1\n")
    with pytest.raises(InputError, match="no plan that fedroute wrote"):
        read_plan(tmp_path)


def test_algorithms_and_seeds_are_added_and_nothing_else_may_change() -> None:
    old = make_plan(config(), "fedavg,fedprox", 3)
    both = old.merged(make_plan(config(), "scaffold", 5), Path("x"))
    assert (list(both.algorithms), both.seeds) == (["fedavg", "fedprox", "scaffold"], 5)
    assert old.merged(make_plan(config(), "fedavg", 1), Path("x")) == old
    changed = {
        "training.lr was 0.05 and is 0.2": make_plan(config(training={"lr": 0.2}), "fedavg", 3),
        "seed was 0 and is 7": make_plan(config(seed=7), "fedavg", 3),
        "fedprox.mu was 0.3 and is 0.4": make_plan(config(algorithm={"name": "fedprox", "mu": 0.4}), "fedprox", 3),
    }
    for words, new in changed.items():
        with pytest.raises(InputError) as e:
            old.merged(new, Path("x"))
        assert words in str(e.value)
        assert "name another folder" in str(e.value)


def test_each_client_alone_is_always_the_same_baseline() -> None:
    given = config(algorithm={"name": "alone", "private": ["head"]})
    assert make_plan(given, "alone", 1).algorithms["alone"]["private"] == []
    assert isinstance(make_plan(given, "alone", 1), Plan)
