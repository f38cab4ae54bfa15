"""kill -9, Ctrl-C and two at once: a run that is gone on with ends where an uninterrupted one ends, hash for hash."""

import json
import random
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from fedroute import jobs
from fedroute.algorithms import ALGORITHMS
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.run_directory import RunDirectory
from fedroute.training import fit
from tests.robustness.conftest import begin, config, go_on, hashes, slowly

Spawn = Callable[..., BaseProcess]


def kill_while_it_writes(process: BaseProcess, out: Path, delay: float) -> bool:
    """Kills the process `delay` seconds after it began to write a checkpoint. Whether one was left half written."""
    working = out / "checkpoint" / ".writing"
    while process.is_alive() and not working.exists():
        time.sleep(0.0001)
    time.sleep(delay)
    process.kill()  # SIGKILL
    process.join()
    return working.exists()


def test_killed_while_writing_again_and_again_it_ends_as_if_never_stopped(tmp_path: Path, spawn: Spawn) -> None:
    begin(tmp_path / "whole", {"rounds": 8})
    out, half_written, moments, wait = tmp_path / "killed", 0, random.Random(1), 0.02
    process = spawn(slowly, begin, out, {"rounds": 8})
    for _ in range(60):
        half = kill_while_it_writes(process, out, moments.uniform(0, wait))
        half_written += half
        wait *= 1.5 if half else 0.5  # about half of the kills come in the midst of a write
        if RunDirectory(out).ended:
            break
        whole = [p for p in (out / "checkpoint").iterdir() if p.name[0] != "."]
        assert len(whole) <= 3
        process = spawn(slowly, go_on, out)
    go_on(out)
    assert half_written >= 2
    assert hashes(out) == hashes(tmp_path / "whole")
    assert [row["round"] for row in RunDirectory(out).read_metrics()] == [2, 4, 6, 8]


def test_killed_at_any_moment_it_ends_as_if_never_stopped(tmp_path: Path, spawn: Spawn) -> None:
    begin(tmp_path / "whole", {"rounds": 30})
    out, moments = tmp_path / "killed", random.Random(2)
    process = spawn(begin, out, {"rounds": 30})
    while not (out / "config.yaml").exists():
        assert process.is_alive()
        time.sleep(0.001)
    for _ in range(6):
        process.join(moments.uniform(0.05, 0.5))
        process.kill()
        process.join()
        process = spawn(go_on, out)
    process.join()
    assert process.exitcode == 0
    assert hashes(out) == hashes(tmp_path / "whole")
    assert [row["round"] for row in RunDirectory(out).read_metrics()] == list(range(2, 31, 2))


class Stop(Exception):
    pass


def stop_at(round: int, kind: type[BaseException]) -> Callable[..., None]:
    def progress(phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        if done == round:
            raise kind

    return progress


@pytest.mark.parametrize("server_optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_resumes_to_the_same_bits(
    tmp_path: Path, federation: Federation, name: str, server_optimizer: str
) -> None:
    """The server optimiser's, the algorithm's and the private state all come back, after two stops."""
    options: dict[str, Any] = {
        "rounds": 7, "lr": 0.2, "server_optimizer": server_optimizer, "clients_per_round": 2, "schedule": "cosine",
        "alone": False, "checkpoint_every": 2, "engine": "sequential", "log": lambda text: None,
    }  # fmt: skip
    private = [] if name == "feddrm" else ["norm"]  # what its router reads is shared; its heads are private anyway
    spec, model = {"name": name, "private": private}, {"name": "mlp_bn", "hidden": [4]}
    whole = fit(federation, model, spec, evaluate_every=1, **options)  # as often as it looks, it changes nothing
    for round, again in ((3, False), (5, True)):
        with pytest.raises(Stop):
            fit(federation, model, spec, out=tmp_path, resume=again, progress=stop_at(round, Stop), **options)
        RunDirectory(tmp_path).close()
    resumed = fit(federation, model, spec, out=tmp_path, resume=True, **options)
    assert resumed.summary()["weights_sha256"] == whole.summary()["weights_sha256"]
    assert resumed.state.up_bytes == whole.state.up_bytes


def test_a_resumed_run_keeps_the_engine_that_auto_took(tmp_path: Path, federation: Federation) -> None:
    """Engines differ by rounding: a trial that comes out otherwise the second time must not change the weights."""
    options: dict[str, Any] = {"rounds": 6, "alone": False, "log": lambda text: None}
    with pytest.raises(KeyboardInterrupt):
        fit(federation, "mlp", engine="stacked", out=tmp_path, progress=stop_at(3, KeyboardInterrupt), **options)
    resumed = fit(federation, "mlp", engine="auto", out=tmp_path, resume=True, **options)
    assert resumed.engine == "stacked"
    whole = fit(federation, "mlp", engine="stacked", **options)
    assert resumed.summary()["weights_sha256"] == whole.summary()["weights_sha256"]


def test_ctrl_c_saves_the_last_whole_round(tmp_path: Path, federation: Federation) -> None:
    options: dict[str, Any] = {"rounds": 9, "alone": False, "engine": "sequential", "log": lambda text: None}
    with pytest.raises(KeyboardInterrupt):
        fit(federation, "mlp", "fedavg", out=tmp_path, progress=stop_at(4, KeyboardInterrupt), **options)
    state = RunDirectory(tmp_path).load_checkpoint()
    assert state is not None
    assert state.round == 4


def test_a_run_with_other_data_or_options_does_not_go_on(tmp_path: Path, federation: Federation) -> None:
    options: dict[str, Any] = {"rounds": 3, "alone": False, "engine": "sequential", "log": lambda text: None}
    fit(federation, "mlp", "fedprox", out=tmp_path, **options)
    with pytest.raises(InputError, match=r"the checkpoint of another run: algorithm was FedProx.*, is FedAvg"):
        fit(federation, "mlp", "fedavg", out=tmp_path, resume=True, **options)
    with pytest.raises(InputError, match=r"training.lr was 0.05, is 0.1"):
        fit(federation, "mlp", "fedprox", out=tmp_path, resume=True, lr=0.1, **options)
    with pytest.raises(InputError, match="model was"):
        fit(federation, "linear", "fedprox", out=tmp_path, resume=True, **options)
    federation.x[5, 2] += 1
    with pytest.raises(InputError, match="federation was"):
        fit(federation, "mlp", "fedprox", out=tmp_path, resume=True, **options)


def hold(out: Path, ready: str) -> None:
    RunDirectory(out).open()
    Path(ready).touch()
    time.sleep(600)


def test_two_processes_do_not_work_on_one_run_and_a_killed_one_holds_nothing(tmp_path: Path, spawn: Spawn) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        jobs.start(config(), out, progress=stop_at(2, KeyboardInterrupt), log=lambda text: None)
    ready = tmp_path / "ready"
    process = spawn(hold, out, str(ready))
    while not ready.exists():
        assert process.is_alive()
        time.sleep(0.01)
    with pytest.raises(InputError, match=f"process {process.pid} works on this run: wait for it, or stop it first"):
        go_on(out)
    with pytest.raises(InputError, match="works on this run"):
        RunDirectory(out).create(force=True)
    process.kill()
    process.join()
    go_on(out)
    assert RunDirectory(out).ended


def test_a_line_of_metrics_that_a_kill_cut_off_is_mended(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        jobs.start(config(rounds=8), out, progress=stop_at(4, KeyboardInterrupt), log=lambda text: None)
    metrics = out / "metrics.jsonl"
    with metrics.open("a") as f:
        f.write('{"round": 6, "train_loss": 1.0}\n{"round": 8, "trai')
    go_on(out)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["round"] for row in rows] == [2, 4, 6, 8]
    assert rows[2]["train_loss"] != 1.0
