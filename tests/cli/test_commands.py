"""Every command, its two kinds of output and its exit codes."""

import dataclasses
import errno
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import fedroute
from fedroute.algorithms import ALGORITHMS
from fedroute.algorithms.fedavg import FedAvg
from fedroute.data.load import load_federation
from fedroute.run_directory import RunDirectory
from tests.cli.conftest import CONFIG, Fedroute

FILES = {"config.yaml", "metrics.jsonl", "summary.json", "checkpoint", "clients.csv", "report.html", "log.txt"}


def test_help_names_every_command_of_this_version_and_no_other(fedroute: Fedroute) -> None:
    said = fedroute("--help")
    assert said.code == 0
    named = [line.split()[0] for line in said.out.partition("Commands:")[2].splitlines() if line.strip()]
    expected = [
        "demo",
        "run",
        "resume",
        "compare",
        "route",
        "profile",
        "advise",
        "tune",
        "report",
        "manifest",
        "check",
        "algorithms",
        "models",
        "sources",
        "serve",
        "token",
        "hub",
        "site",
    ]
    assert sorted(named) == sorted(expected)


def test_version(fedroute: Fedroute) -> None:
    assert fedroute("--version") == (0, _version() + "\n", "")


def _version() -> str:
    return fedroute.__version__


@pytest.mark.parametrize("words", [("nonsense",), ("run",), ("run", "c.yaml"), ("resume",), ("run", "--nonsense")])
def test_a_wrong_call_is_exit_2(fedroute: Fedroute, words: tuple[str, ...]) -> None:
    assert fedroute(*words).code == 2


@pytest.mark.parametrize("command", ["algorithms", "models", "sources"])
def test_what_there_is(fedroute: Fedroute, command: str) -> None:
    as_json, human = fedroute(command, "--json"), fedroute(command)
    rows = json.loads(as_json.out)
    assert (as_json.code, human.code, as_json.err) == (0, 0, "")
    assert len(rows) > 3
    for row in rows:
        assert row["name"] in human.out
        assert row["summary"]


def test_run_writes_the_run_directory_and_says_the_ledger(tmp_path: Path, config: Path, fedroute: Fedroute) -> None:
    said = fedroute("run", config, "--out", tmp_path / "r", "--set", "training.rounds=2")
    assert said.code == 0, said.err
    assert {p.name for p in (tmp_path / "r").iterdir()} - {".lock"} == FILES
    assert "client_" in said.out or "client" in said.out
    assert "round 2 of 2" in said.err
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["rounds"] == 2
    assert summary["quarantined"] == []
    assert summary["accuracy"].keys() == {"personal", "global", "alone"}
    assert set(summary["weights_sha256"]["clients"]) == {c["name"] for c in summary["clients"]}
    text = (tmp_path / "r" / "clients.csv").read_text().splitlines()
    assert len(text) == 1 + len(summary["clients"])


def test_json_is_all_of_stdout(tmp_path: Path, config: Path, fedroute: Fedroute) -> None:
    out = tmp_path / "r"
    for words in (("run", config, "--out", out), ("resume", out)):
        said = fedroute(*words, "--json")
        assert said.code == 0
        assert json.loads(said.out) == json.loads((out / "summary.json").read_text())
    assert json.loads(fedroute("report", out, "--json").out) == {"report": str(out / "report.html")}
    rows = json.loads(fedroute("manifest", config, "--json").out)
    assert all({"tensor", "role", "leaves", "bytes"} <= row.keys() for row in rows)
    assert sum(row["bytes"] for row in rows if row["leaves"]) == (64 * 10 + 10) * 4


def test_private_weights_stay_in_the_manifest(config: Path, fedroute: Fedroute) -> None:
    rows = json.loads(
        fedroute("manifest", config, "--set", "model.name=mlp", "--set", "algorithm.private=[head]", "--json").out
    )
    assert {row["role"]: row["leaves"] for row in rows} == {"body": True, "head": False}


def test_check_prints_certificates(fedroute: Fedroute) -> None:
    said = fedroute("check", "fedprox", "--json")
    rows = json.loads(said.out)
    assert said.code == 0
    assert {row["algorithm"] for row in rows} == {"fedprox"}
    assert all(row["passed"] for row in rows)
    wrong = fedroute("check", "fedporx")
    assert wrong.code == 2
    assert "did you mean fedprox?" in wrong.err


def test_check_of_an_algorithm_without_claims_says_where_to_add_one(
    fedroute: Fedroute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALGORITHMS, "fedclip", FedAvg)
    said = fedroute("check", "fedclip")
    assert said.code == 2
    assert "fedclip has no claims yet: add one in src/fedroute/certificates/fedclip.py" in said.err


def test_a_certificate_that_fails_is_exit_1(fedroute: Fedroute, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedroute.algorithms.fedprox import FedProx

    monkeypatch.setattr(FedProx, "direction", lambda self, g, w, ctx: g)
    said = fedroute("check", "fedprox")
    assert said.code == 1
    assert "certificates fail" in said.err


def test_a_run_is_not_overwritten_unless_told_to(tmp_path: Path, config: Path, fedroute: Fedroute) -> None:
    out = tmp_path / "r"
    first = json.loads(fedroute("run", config, "--out", out, "--json").out)
    said = fedroute("run", config, "--out", out, "--set", "seed=5")
    assert said.code == 2
    assert "holds a run that has ended: name another folder, or give --force" in said.err
    assert "resume" not in said.err
    assert json.loads((out / "summary.json").read_text()) == first
    (out / "mine.txt").write_text("keep")
    second = fedroute("run", config, "--out", out, "--set", "seed=5", "--force", "--json")
    assert json.loads(second.out)["weights_sha256"] != first["weights_sha256"]
    assert (out / "mine.txt").read_text() == "keep"


def test_a_config_of_the_user_is_never_overwritten(config: Path, fedroute: Fedroute) -> None:
    said = fedroute("run", config, "--out", config.parent, "--force")
    assert said.code == 2
    assert "is no run's and would be overwritten" in said.err
    assert config.read_text() == CONFIG


def test_a_run_that_was_cut_off_is_gone_on_with(tmp_path: Path, config: Path, fedroute: Fedroute) -> None:
    out = tmp_path / "r"
    fedroute("run", config, "--out", out)
    (out / "summary.json").unlink()
    said = fedroute("run", config, "--out", out)
    assert said.code == 2
    assert f"holds a run already (metrics.jsonl): go on with `fedroute resume {out}`" in said.err


PLACES = {"a parent that is a file": "file/run", "a file": "file", "a name that is too long": "n" * 300}


@pytest.mark.parametrize("command", ["run", "demo", "compare"])
@pytest.mark.parametrize("place", PLACES)
def test_no_run_can_be_there(tmp_path: Path, config: Path, fedroute: Fedroute, place: str, command: str) -> None:
    (tmp_path / "file").write_text("mine")
    unreachable(fedroute, config, command, tmp_path / PLACES[place])
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is there on Linux")
@pytest.mark.parametrize("command", ["run", "demo", "compare"])
def test_a_file_system_that_takes_no_folders(config: Path, fedroute: Fedroute, command: str) -> None:
    unreachable(fedroute, config, command, Path("/proc/x"))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_is_read_only(
    tmp_path: Path, config: Path, fedroute: Fedroute, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(self: Path, *args: Any, **kwargs: Any) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    unreachable(fedroute, config, "run", tmp_path / "r")


def unreachable(fedroute: Fedroute, config: Path, command: str, out: Path) -> None:
    given: dict[str, list[object]] = {"run": [config], "compare": [config, "--algorithms", "fedavg,fedprox"]}
    said = fedroute(command, *given.get(command, []), "--out", out)
    (line,) = [line for line in said.err.splitlines() if line.startswith("fedroute: ")]
    assert said.code == 2
    assert str(out) in line
    assert "name another folder" in line
    assert "Traceback" not in said.err


def test_notes_on_the_data_are_said_and_a_long_list_is_cut(
    tmp_path: Path, config: Path, fedroute: Fedroute, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(*args: Any) -> Any:
        return dataclasses.replace(load_federation(*args), notes=tuple(f"note {k}" for k in range(10)))

    monkeypatch.setattr("fedroute.data.load.load_federation", noted)
    out = tmp_path / "r"
    said = fedroute("run", config, "--out", out)
    assert [line for line in said.err.splitlines() if line.startswith("data: ")] == [
        *(f"data: note {k}" for k in range(8)),
        f"data: 2 more in {out / 'log.txt'}",
    ]
    assert "data: note 9" in (out / "log.txt").read_text()
    (out / "summary.json").unlink()
    assert "data: note 7" in fedroute("resume", out).err


@pytest.mark.parametrize("command", ["resume", "report"])
def test_no_run_there(tmp_path: Path, fedroute: Fedroute, command: str) -> None:
    said = fedroute(command, tmp_path / "nothing")
    assert said.code == 2
    assert not (tmp_path / "nothing").exists()


def test_void_rounds_are_exit_1_and_leave_the_weights(tmp_path: Path, config: Path, fedroute: Fedroute) -> None:
    """A learning rate beyond all bounds makes every client's weights NaN or absurd."""
    words = ("run", config, "--out", tmp_path / "r", "--set", "training.lr=1e30")
    said = fedroute(*words)
    assert said.code == 1
    assert "3 rounds were void (rounds 1, 2, 3)" in said.err
    assert "Traceback" not in said.err
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["void_rounds"] == [1, 2, 3]
    assert {q["client"] for q in summary["quarantined"]} == {c["name"] for c in summary["clients"]}
    assert fedroute("resume", tmp_path / "r").code == 1  # it has ended, and is no better for asking again
    log = (tmp_path / "r" / "log.txt").read_text()
    assert all(q["reason"] in log for q in summary["quarantined"])


def test_what_nobody_expected_is_exit_1_and_its_traceback_in_the_log(
    tmp_path: Path, config: Path, fedroute: Fedroute, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr("fedroute.training.make_ledger", broken)
    out = tmp_path / "r"
    said = fedroute("run", config, "--out", out)
    assert said.code == 1
    assert f"unexpected LookupError: a bug; the traceback is in {out / 'log.txt'}" in said.err
    assert f"go on with: fedroute resume {out}" in said.err
    assert "Traceback" not in said.err
    assert "LookupError: a bug" in (out / "log.txt").read_text()
    monkeypatch.undo()


def test_the_demo(tmp_path: Path, fedroute: Fedroute, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedroute import demo

    def short(algorithm: str) -> dict[str, Any]:
        found = whole(algorithm)
        small = {"model": {"name": "mlp", "hidden": [8]}, "engine": "sequential"}
        return found | small | {"training": found["training"] | {"rounds": 2}}

    whole = demo.config
    monkeypatch.setattr(demo, "config", short)
    out = tmp_path / "demo"
    for _ in range(2):  # the second replaces the first
        said = fedroute("demo", "--out", out)
        assert said.code == 0, said.err
        for words in ("one model for all", "each office alone", "clinic", "better off"):
            assert words in said.out
        assert {p.name for p in out.iterdir()} - {".lock"} == FILES | {demo.GLOBAL, "router"}
        assert "fedper" in said.out  # the name that the report has
        assert "fedper" in (out / "report.html").read_text()
    summary = json.loads(fedroute("demo", "--out", out, "--json").out)
    assert {row["role"]: row["leaves"] for row in summary["manifest"]} == {"body": True, "head": False}
    other = tmp_path / "other"
    other.mkdir()
    (other / "summary.json").write_text("{}")
    assert fedroute("demo", "--out", other).code == 2


HEEDING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # also where a parent ignores it
COMMAND = [sys.executable, "-c", f"{HEEDING}; from fedroute.cli import main; main()"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_says_how_to_go_on_and_so_it_does(
    tmp_path: Path, config: Path, fedroute: Fedroute, number: signal.Signals
) -> None:
    out = tmp_path / "r"
    long = ("--set", "training.rounds=100000", "--set", "training.alone=false", "--set", "training.evaluate_every=1")
    words = [*COMMAND, "run", str(config), "--out", str(out), *long]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").stat().st_size:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        stdout, err = process.communicate()
    assert process.returncode == 130
    assert stdout == ""
    assert f"fedroute: stopped\nfedroute: go on with: fedroute resume {out}\n" in err
    assert "Traceback" not in err
    state = RunDirectory(out).load_checkpoint()
    assert state is not None
    assert state.round >= 1


def test_a_terminal_gets_a_bar(tmp_path: Path, config: Path) -> None:
    ours, theirs = pty.openpty()
    words = [*COMMAND, "run", str(config), "--out", str(tmp_path / "r"), "--json"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        while chunk := _read(ours):
            seen += chunk
        assert process.stdout is not None
        summary = json.loads(process.stdout.read())
    os.close(ours)
    assert process.returncode == 0
    assert summary["rounds"] == 3
    assert "together" in seen.decode()
    assert "3/3" in seen.decode()
    assert "\u2501" in seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side is closed
        return b""


def test_a_reader_that_stops_early_is_no_error_to_shout_about(tmp_path: Path) -> None:
    words = [*COMMAND, "models", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
    assert b"Traceback" not in err


def test_manifest_says_how_much_leaves_and_what_each_client_counts(
    tmp_path: Path, config: Path, fedroute: Fedroute
) -> None:
    bn = ("--set", "model={name: mlp_bn, hidden: [8]}", "--set", "algorithm=fedbn")
    said = fedroute("manifest", config, *bn)
    assert "3 of 8 tensors leave a client" in said.out  # a weight, and the weight and bias of the head
    assert "say: client_0 33.3%, client_1 33.3%, client_2 33.3% (by examples)" in said.err
    says = json.loads(fedroute("manifest", config, "--say", "--json").out)
    assert [s["client"] for s in says] == ["client_0", "client_1", "client_2"]
    assert sum(s["say"] for s in says) == pytest.approx(1)
    table = fedroute("manifest", config, "--say", "--set", "algorithm=afl")
    assert table.out.count("n/a") == 3
    assert "afl settles itself what each client counts" in table.err
    judged = fedroute("manifest", config, "--set", "training.weighting.by=validation")
    assert "quality" in judged.out


def test_names_in_a_table_are_no_markup(fedroute: Fedroute, tmp_path: Path) -> None:
    """Brackets in a client's name are shown as they are."""
    rows = "site,x,y\n" + "".join(f"{c},{i % 7},{i % 2}\n" for i in range(40) for c in ("[north] ward", "x[/red]"))
    (tmp_path / "d.csv").write_text(rows)
    (tmp_path / "c.yaml").write_text(
        "federation: {source: csv, path: d.csv, client: site, label: y}\nmodel: linear\nalgorithm: fedavg\n"
    )
    said = fedroute("manifest", str(tmp_path / "c.yaml"), "--say")
    assert said.code == 0, said.err
    assert "[north] ward" in said.out
    assert "x[/red]" in said.out


def test_a_run_that_is_refused_leaves_nothing_that_looks_like_a_run(
    config: Path, fedroute: Fedroute, tmp_path: Path
) -> None:
    refused = ("run", config, "--set", "algorithm.private=[head]", "--out")
    assert fedroute(*refused, tmp_path / "new").code == 2
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    said = fedroute(*refused, tmp_path / "mine")
    assert said.code == 2
    assert "resume" not in said.err
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]
