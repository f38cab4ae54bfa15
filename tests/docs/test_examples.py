"""The example of each algorithm on the page of algorithms is a run from which the clients come out with a model."""

import re
from pathlib import Path

import pytest

from fedroute.algorithms import ALGORITHMS
from fedroute.config import load
from fedroute.jobs import start

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^### (\w+)\n\n```yaml\n(.*?)^```", PAGE, re.M | re.S))


def test_every_algorithm_has_an_example() -> None:
    assert EXAMPLES.keys() == ALGORITHMS.keys()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    file, heard = tmp_path / "example.yaml", list[str]()
    file.write_text(EXAMPLES[name])
    config = load(file, ["engine=sequential", "training.alone=false"])
    assert config.algorithm["name"] == name
    run = start(config, tmp_path / "run", progress=lambda *a: None, log=heard.append)
    assert run.state.round == 5
    assert not run.state.quarantined
    assert run.ledger.aggregates("accuracy")["personal"]["mean"] > 0.3  # of ten labels
    assert sum(text.startswith("say: ") for text in heard) == 1
    assert (tmp_path / "run" / "report.html").exists()
