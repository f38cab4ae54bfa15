"""The examples of routing run as their pages say, and their verdicts are those that the numbers bear."""

import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedroute import jobs
from fedroute.config import load
from fedroute.run import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_data = pytest.mark.skipif("FEDROUTE_DATA" not in os.environ, reason="FEDROUTE_DATA is not set")


def made(name: str, folder: Path, **options: Any) -> None:
    """What the example's make.py writes."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), EXAMPLES / name / "make.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write(folder, **options)


def ran(name: str, folder: Path, *options: str) -> Run:
    file = shutil.copy(EXAMPLES / name / f"{name}.yaml", folder)
    config = load(file, [*options, "training.alone=false", "router.random_features=0"])
    return jobs.start(config, folder / "run", force=True, progress=lambda *_: None, log=lambda text: None)


def truthful(routing: dict[str, Any]) -> None:
    """The verdict is that of the interval against the best of what needs no router, and it is written down."""
    low, high = routing["against"][routing["baseline"]][1:]
    assert routing["pays"] == ("yes" if low > 0 else "no" if high < 0 else "unclear")
    shares = routing["system_accuracy"]
    rivals = [r for r in routing["against"] if r in shares]
    assert shares[routing["baseline"]] == max(shares[r] for r in rivals)


def as_documented(routing: dict[str, Any]) -> None:
    """The line of docs/routing.md, to a point: other machines round otherwise."""
    page = (Path(__file__).parents[2] / "docs" / "routing.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| right bank, .* \|$", page, re.M)
    said = [float(cell.strip(" *")) for cell in line.split("|")[3:-1]]
    shares = routing["system_accuracy"]
    told = [shares[routing["rule"]], shares["global"], shares["best_single"],
            max(shares[k] for k in ("vote", "mean", "confidence")), shares["random"], shares["oracle"],
            routing["client_accuracy"]]  # fmt: skip
    assert said == pytest.approx([100 * v for v in told], abs=1.0)


def test_the_right_bank_and_how_little_is_left_for_a_router_where_the_common_model_is_large(tmp_path: Path) -> None:
    made("right-bank", tmp_path)
    run = ran("right-bank", tmp_path)
    assert run.routing
    truthful(run.routing)
    assert run.routing["pays"] == "yes"
    assert run.routing["against"]["global"][1] > 0.05
    as_documented(run.routing)
    found, notes = jobs.route(tmp_path / "run", tmp_path / "queries.parquet")
    assert notes == []
    asked = [row["client"] for row in found["queries"]]
    truth = [bank for bank in ("border", "coast", "inland", "metro") for _ in range(3)]
    assert sum(a == t for a, t in zip(asked, truth, strict=True)) >= 8
    assert all(row["reason"] for row in found["queries"])
    wide = ran("right-bank", tmp_path, "model={name: mlp, hidden: [64]}")
    assert wide.routing
    truthful(wide.routing)
    assert wide.routing["against"]["global"][0] < run.routing["against"]["global"][0] - 0.05


@needs_data
def test_sensors_are_a_network_of_experts(tmp_path: Path) -> None:
    made("sensors", tmp_path, rows=3000)
    run = ran("sensors", tmp_path, "training.rounds=20")
    assert run.routing
    truthful(run.routing)
    assert run.routing["pays"] == "yes"
    assert run.routing["client_accuracy"] > 0.25  # of sixteen, four of each kind
    assert len(jobs.route(tmp_path / "run", tmp_path / "queries.parquet")[0]["queries"]) == 12


@needs_data
def test_a_patient_is_referred(tmp_path: Path) -> None:
    run = ran("referral", tmp_path)
    assert run.routing
    truthful(run.routing)
    assert run.routing["client_accuracy"] > 0.7  # what a hospital measures says which it is
    found, _ = jobs.route(tmp_path / "run", EXAMPLES / "referral" / "patients.csv")
    rows = found["queries"]
    assert rows[0]["client"] == "cleveland"
    assert rows[2]["client"] == "switzerland"
    assert "chol missing" in rows[2]["reason"]  # which is all of Switzerland
