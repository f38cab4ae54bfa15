"""The replications as programs: claims have sources, the numbers are what they are called, the page has no more."""

from pathlib import Path

import pytest
import torch

from benchmarks.replications.__main__ import NAMES, parts_of
from benchmarks.replications.measure import run_setting
from benchmarks.replications.page import budget, chapter, renewed, results, summary, table
from benchmarks.replications.setting import Arm, Setting
from benchmarks.replications.synthetic import synthetic
from fedroute.algorithms import make
from fedroute.config import Training
from fedroute.data.federation import Federation
from fedroute.models import build

PAGE = Path(__file__).parents[2] / "docs" / "replications.md"


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_whole(name: str) -> None:
    for part in parts_of(name):
        models = {f"{arm.name}/{kind}" for arm in part.arms for kind in arm.reports}
        assert {side for pair in part.pairs for side in pair} <= models
        assert part.differs
        Training(**{**part.training, **part.quick})
        for arm in part.arms:
            for options in arm.grid:
                make({**arm.algorithm, **options.get("algorithm", {})})
                Training(**{**part.training, **arm.training, **options.get("training", {})})
            for published in arm.reports.values():
                assert all(p.source and p.checked in ("verified", "recalled") and 0 < p.value < 100 for p in published)


def test_synthetic_clients_differ_as_the_papers_say() -> None:
    f, same = synthetic(3), synthetic(3)
    assert torch.equal(f.x, same.x)
    assert torch.equal(f.y, same.y)
    sizes = f.sizes("train") + f.sizes("test")
    assert len(f.clients) == 100
    assert int(sizes.min()) >= 250
    rows = torch.cat([f.train[0], f.test[0]])
    spread = f.x[rows].std(0)
    expected = torch.arange(1, 61) ** -0.6
    assert float((spread / expected - 1).abs().max()) < 0.25  # the diagonal of Sigma
    means = torch.stack([f.x[r].mean(0) for r in f.train])
    assert abs(float(means.var(0).mean()) - 1.5) < 0.3  # N(B_k, 1) over B_k ~ N(0, 0.5)
    task_of = build("linear", f, 0)[0]
    assert sum(p.numel() for p in task_of.parameters()) == 610


def three_clients(seed: int) -> Federation:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(90, 5, generator=g)
    y = (x[:, 0] > 0).long()
    return Federation.from_arrays(x, y, ["a", "b", "c"] * 30, labels=["no", "yes"], seed=seed)


def test_a_setting_is_run_over_its_seeds_in_pairs() -> None:
    arms = (
        Arm(name="fedavg", algorithm={"name": "fedavg"}, reports={"global": (), "alone": ()}),
        Arm(
            name="ditto",
            algorithm={"name": "ditto"},
            reports={"personal": ()},
            grid=({"training": {"lr": 1e-6}}, {"training": {"lr": 0.3}}),
        ),
    )
    setting = Setting(
        name="three", about="", federation=three_clients, model={"name": "linear"}, training={"rounds": 8, "lr": 0.3},
        quick={"rounds": 1}, arms=arms, differs=("none",), pairs=(("ditto/personal", "fedavg/alone"),), seeds=3,
    )  # fmt: skip
    said: list[str] = []
    found = run_setting(setting, say=said.append)
    fedavg, alone, ditto = found["table"]
    assert [len(r["values"]) for r in found["table"]] == [3, 3, 3]
    assert fedavg["ours"] == pytest.approx(sum(fedavg["values"]) / 3, abs=0.01)
    assert ditto["options"]["training"] == {"lr": 0.3}  # the other does not learn
    assert found["differences"][0]["values"] == [a - b for a, b in zip(ditto["values"], alone["values"], strict=True)]
    assert len(said) == 4
    assert found["seeds"] == 3
    assert run_setting(setting, quick=True, say=said.append)["training"]["rounds"] == 1


def test_the_page_says_what_the_results_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert results()
    assert summary() in text
    for name, parts in results().items():
        assert f"python -m benchmarks.replications {name}" in text
        for part in parts:
            assert table(part) in text
            assert budget(part) in text
            assert part["quick"] is False


def test_the_page_is_renewed_where_a_result_is_new() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert renewed(text) == text
    part = results()["both_skews"][0]
    new = chapter("niid_bench", [part])
    assert new.startswith("## CIFAR-10 among ten parties\n\n`python -m benchmarks.replications niid_bench`\n")
    assert table(part) in new
    assert budget(part) in new
    old = text.replace(summary(), summary().replace("| 5 |", "| 4 |"))
    assert old != text
    assert renewed(old) == text


def test_results_are_of_the_settings_as_they_are() -> None:
    """A result whose setting has changed since is no result of it."""
    for name, parts in results().items():
        for part, setting in zip(parts, parts_of(name), strict=True):
            assert part["setting"] == setting.name
            wanted = Training(**setting.training).model_dump(mode="json")
            assert part["training"] == {k: v for k, v in wanted.items() if v is not None}
            models = [(a, k) for a in setting.arms for k in a.reports]
            for row, (arm, kind) in zip(part["table"], models, strict=True):
                assert (row["method"], row["model"]) == (arm.name, kind)
                assert row["published"] == [p._asdict() for p in arm.reports[kind]]
                assert row["options"] in [
                    {
                        "algorithm": {**arm.algorithm, **g.get("algorithm", {})},
                        "training": {**arm.training, **g.get("training", {})},
                    }
                    for g in arm.grid
                ]
