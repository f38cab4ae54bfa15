"""Two banks, 50 to 1 in size, 0.02 % and 4 % fraud: weighting by rows harms the small one, and the ledger says so."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedroute.config import load
from fedroute.jobs import start
from fedroute.run import Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "two-banks"


@pytest.fixture(scope="module")
def make() -> Any:
    spec = importlib.util.spec_from_file_location("two_banks", EXAMPLE / "make.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def banks(make: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tenth of the example."""
    folder: Path = tmp_path_factory.mktemp("banks")
    make.write(folder, scale=0.1)
    (folder / "two-banks.yaml").write_text((EXAMPLE / "two-banks.yaml").read_text())
    return folder


def run(banks: Path, name: str, *options: str) -> tuple[Run, list[str]]:
    heard = list[str]()
    config = load(banks / "two-banks.yaml", options)
    return start(config, banks / name, progress=lambda *_: None, log=heard.append), heard


def line(made: Run, client: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in made.summary()["clients"] if c["name"] == client)
    return found


def test_the_banks_are_as_they_are_said_to_be(make: Any) -> None:
    for name, rows, frauds in (("large", 1_000_000, 200), ("small", 20_000, 800)):
        x, y = make.bank(name)
        assert x.shape == (rows, 6)
        assert y.sum() == frauds
        assert np.array_equal(make.bank(name)[1], y)
    assert not np.array_equal(make.bank("small", seed=1)[0], make.bank("small")[0])


def test_by_rows_the_small_bank_is_worse_off_and_what_mends_it(banks: Path) -> None:
    by_rows, heard = run(banks, "by-rows")
    assert any("large has 98.0% of the say" in text for text in heard)  # before training
    assert by_rows.ledger.yardstick.headline == "pr_auc"
    small = line(by_rows, "small")
    assert small["better_off"] == "no"
    assert small["global"] < 0.15  # PR-AUC
    assert small["alone"] > 0.45
    recall = {kind: small["metrics"][kind]["recall_at_fpr"] for kind in ("global", "alone")}
    assert recall["alone"] > recall["global"] + 0.2
    assert small["metrics"]["global"]["accuracy"] > 0.9  # which is why accuracy is no measure here

    capped, heard = run(banks, "capped", "training.weighting.cap=0.5", "training.alone=false")
    assert any("the cap leaves large 50.0% of the say, of 98.0%" in text for text in heard)
    assert line(capped, "small")["global"] > small["global"] + 0.25

    own, _ = run(banks, "own-models", "algorithm=apfl")
    assert line(own, "small")["better_off"] != "no"
    assert line(own, "small")["personal"] > small["global"] + 0.3
