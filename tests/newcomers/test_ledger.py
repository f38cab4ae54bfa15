"""Newcomers in a whole run: they change nothing for the others, and stand apart in ledger, summary and report."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fedroute.algorithms.alone import Alone
from fedroute.battery import _same
from fedroute.config import Training
from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.engines.base import Engine, Work
from fedroute.report import write
from fedroute.rounds import State, run_round
from fedroute.run import Run
from fedroute.training import fit
from tests.cli.conftest import Fedroute
from tests.report.html import Page

OPTIONS = {"rounds": 6, "lr": 0.1, "batch_size": 32}
MODEL = {"name": "mlp", "hidden": [8]}
NEW = ("clinic", "school")


@pytest.fixture(scope="module")
def digits() -> Federation:
    return load_federation("bundled:digits")


def trained(federation: Federation, algorithm: str | dict[str, object] = "fedavg", **options: object) -> Run:
    quiet = {"engine": "sequential", "log": lambda text: None} | OPTIONS | options
    return fit(federation, MODEL, algorithm, **quiet)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(digits: Federation) -> Run:
    return trained(digits.with_newcomers(NEW), {"name": "fedavg", "private": ["head"]})


def test_the_others_are_trained_as_if_the_newcomers_were_not_there(digits: Federation, run: Run) -> None:
    train = tuple(rows[:0] if c in NEW else rows for c, rows in zip(digits.clients, digits.train, strict=True))
    absent = trained(replace(digits, train=train), {"name": "fedavg", "private": ["head"]}, alone=False)
    _same(run.state.server, absent.state.server, 0.0, "the server's state")
    for i, c in enumerate(digits.clients):
        if c not in NEW:
            _same(run.state.privates[i], absent.state.privates[i], 0.0, f"the private state of {c}")


def test_a_newcomer_has_shared_weights_and_a_head_of_its_own(digits: Federation, run: Run) -> None:
    i, j = (digits.clients.index(c) for c in NEW)
    first = run.algorithm.init_client(run.algorithm.task.init())["w"]
    for k, v in run.personal(i).items():
        if k in run.algorithm.kept:
            assert not torch.equal(v, first[k])
            assert not torch.equal(v, run.personal(j)[k])
        else:
            assert torch.equal(v, run.state.server["w"][k])


def test_alone_a_newcomer_trains_as_long_as_the_others(digits: Federation) -> None:
    """Clients that train alone do not see each other: a newcomer's weights are those it would have as one of them."""
    some = [
        trained(f, alone=True).ledger.entries[digits.clients.index("school")].scores["alone"]
        for f in (digits, digits.with_newcomers(NEW))
    ]
    assert some[0] == some[1]


@pytest.mark.parametrize(("share", "turns"), [(1.0, 4), (0.5, 2), (0.25, 1)])
def test_alone_a_newcomer_has_the_rounds_that_the_others_have_on_average(
    digits: Federation, monkeypatch: pytest.MonkeyPatch, share: float, turns: int
) -> None:
    seen = list[tuple[int, ...]]()

    def watched(
        alg: Algorithm, engine: Engine, f: Federation, t: Training, state: State, work: Work, log: Any
    ) -> State:
        if isinstance(alg, Alone):
            seen.append(work.clients)
        return run_round(alg, engine, f, t, state, work, log)

    monkeypatch.setattr("fedroute.training.run_round", watched)
    federation = digits.with_newcomers(NEW)
    trained(federation, rounds=4, clients_per_round=share)
    assert [sum(i in clients for clients in seen) for i in federation.newcomers] == [turns, turns]


def test_they_are_aggregated_apart(run: Run) -> None:
    s = run.summary()
    by = {c["name"]: c for c in s["clients"]}
    assert {name for name, c in by.items() if c["newcomer"]} == set(NEW)
    for block, names in (("accuracy", by.keys() - NEW), ("accuracy_newcomers", set(NEW))):
        for kind in ("personal", "alone"):
            mean = sum(by[c][kind] for c in names) / len(names)
            assert abs(s[block][kind]["mean"] - mean) < 1e-12
            assert s[block][kind]["measured"] == len(names)
    assert sum(s["better_off"].values()) == 4
    assert sum(s["better_off_newcomers"].values()) == 2
    assert s["federation"]["newcomers"] == list(NEW)
    assert s["validation"]["measured"] == 4
    assert {row["client"] for row in run.ledger.rows() if row["newcomer"] == "yes"} == set(NEW)


def test_without_newcomers_nothing_is_said_of_them(digits: Federation) -> None:
    s = trained(digits, alone=False).summary()
    assert not [k for k in s if "newcomer" in k]


def test_the_terminal_shows_them(run: Run) -> None:
    text = io.StringIO()
    Console(file=text, width=120).print(run.ledger.table())
    lines = text.getvalue().splitlines()
    assert [line for line in lines if line.startswith("newcomer clinic")]
    assert [line for line in lines if line.startswith("newcomers ")]
    assert "Newcomers (2) are counted apart" in " ".join(text.getvalue().split())


def test_config_run_and_report(fedroute: Fedroute, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "federation: {source: bundled, name: digits, newcomers: [clinic]}\nmodel: {name: linear}\n"
        "algorithm: fedavg_ft\ntraining: {rounds: 2, local_steps: 2}\nengine: sequential\n"
    )
    out = tmp_path / "run"
    said = fedroute("run", config, "--out", out)
    assert said.code == 0
    assert "newcomers" in said.out
    page = Page(write(out).read_text(encoding="utf-8"))
    assert "1 client took no part in training" in page.text
    assert page.text.count("newcomer") >= 4
    for value, words in (("[clnic]", "did you mean 'clinic'"), ("1.5", "newcomers"), ("0", "newcomers")):
        said = fedroute("run", config, "--out", tmp_path / "x", "--set", f"federation.newcomers={value}")
        assert said.code == 2
        assert words in said.err
