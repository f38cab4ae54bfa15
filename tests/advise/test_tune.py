"""The tuner: what it may turn, that it goes on where it was, and that test rows have no part in it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute.advise.space import Dial, space, tuned
from fedroute.advise.tune import without_test
from fedroute.config import Config, from_dict, load
from fedroute.data.load import load_federation
from fedroute.errors import InputError

pytest.importorskip("optuna", reason="the tuner is an extra: fedroute[tune]")


def config(algorithm: str = "ditto", model: str = "mlp_bn", **training: Any) -> Config:
    return from_dict(
        {
            "federation": {"source": "bundled", "name": "digits", "partition": {"method": "dirichlet", "clients": 4}},
            "model": {"name": model, "hidden": [8]} if model != "linear" else {"name": model},
            "algorithm": {"name": algorithm},
            "training": {"rounds": 4, "local_steps": 2, "lr": 0.1} | training,
            "engine": "stacked",
        }
    )


def dials(c: Config, *over: str) -> dict[str, Dial]:
    return {d.key: d for d in space(c, load_federation(c.federation, c.seed), over)}


def test_the_dials_of_ditto_on_a_model_with_norms() -> None:
    found = dials(config())
    assert list(found) == ["training.lr", "training.local_steps", "algorithm.lam", "algorithm.private"]
    assert (found["training.lr"].low, found["training.lr"].high) == pytest.approx((0.01, 1.0))
    assert (found["training.local_steps"].low, found["training.local_steps"].high) == (1, 4)
    assert found["algorithm.private"].choices == ("", "norm", "head", "norm+head")


def test_roles_that_make_no_difference_are_no_choice() -> None:
    assert dials(config("fedper"))["algorithm.private"].choices == ("", "norm")  # it keeps the head anyhow
    assert dials(config("fedavg", "mlp"))["algorithm.private"].choices == ("", "head")  # no norms
    assert "algorithm.private" not in dials(config("fedavg", "linear"))  # all of it is head, and something is shared


def test_numbers_stay_within_their_bounds() -> None:
    found = dials(config("interpolation"))
    assert 0 < found["algorithm.held_out"].low < found["algorithm.held_out"].high < 1
    assert found["algorithm.adapt_epochs"].low >= 1
    share = dials(config("knn_per"))["algorithm.lam"]
    assert 0 <= share.low < share.high <= 1


def test_only_what_is_named() -> None:
    assert list(dials(config(), "lr", "algorithm.lam")) == ["training.lr", "algorithm.lam"]
    with pytest.raises(InputError, match=r"--over lamb: .* did you mean lam\?"):
        dials(config(), "lamb")


def test_values_reach_their_part_of_the_config() -> None:
    c = tuned(config(), {"training.lr": 0.3, "algorithm.lam": 2.0, "algorithm.private": "norm+head"})
    assert (c.training.lr, c.algorithm["lam"], c.algorithm["private"]) == (0.3, 2.0, ["norm", "head"])
    assert c.training.local_steps == 2


def test_a_study_gone_on_with_is_the_study_that_was_not_interrupted(tmp_path: Path) -> None:
    from fedroute.advise.tune import tune

    c = config(rounds=2)
    whole = tune(c, tmp_path / "whole", trials=10)  # the last ones are drawn by what the others found
    tune(c, tmp_path / "parts", trials=4)
    assert tune(c, tmp_path / "parts", trials=10) == whole
    assert whole["trials"][0]["values"] == {k: d.now for k, d in dials(c).items()}
    assert len({json.dumps(t["values"]) for t in whole["trials"]}) == len(whole["trials"])
    assert whole["best"]["score"] >= whole["now"]["score"]
    best = load(tmp_path / "whole" / "best.yaml")
    assert best.training.lr == whole["best"]["values"]["training.lr"]
    assert best.federation == c.federation
    with pytest.raises(InputError, match="another config"):
        tune(config("fedprox"), tmp_path / "parts", trials=8)


def test_trials_that_fall_behind_are_given_up(tmp_path: Path) -> None:
    from fedroute.advise.tune import tune

    found = tune(config("fedavg", "linear", rounds=4), tmp_path / "t", trials=10)
    pruned = [t for t in found["trials"] if t["state"] == "pruned"]
    assert pruned
    assert all(t["rounds"] < 4 for t in pruned)


def test_test_rows_are_gone_before_anything_runs() -> None:
    c = config()
    f = load_federation(c.federation, c.seed)
    assert int(f.sizes("test").sum()) > 0
    seen = without_test(f)
    assert int(seen.sizes("test").sum()) == 0
    assert all(torch.equal(a, b) for a, b in zip(seen.validation, f.validation, strict=True))


def test_the_trials_see_no_test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedroute.advise.tune import tune

    seen: list[int] = []
    fit = __import__("fedroute.training", fromlist=["fit"]).fit

    def watched(federation: Any, *args: Any, **options: Any) -> Any:
        seen.append(int(federation.sizes("test").sum()))
        return fit(federation, *args, **options)

    monkeypatch.setattr("fedroute.training.fit", watched)
    tune(config("fedavg", "linear", rounds=2), tmp_path / "t", trials=2)
    assert seen == [0, 0]


def test_nothing_to_judge_by_and_other_folders_are_refused(tmp_path: Path) -> None:
    from fedroute.advise.tune import tune

    c = config()
    none = c.model_copy(
        update={"federation": c.federation | {"split": {"validation": 0.0, "test": 0.25, "by": "label"}}}
    )
    with pytest.raises(InputError, match=r"federation\.split\.validation"):
        tune(none, tmp_path / "t")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="holds no study"):
        tune(c, tmp_path / "full")
