"""A comparison goes on where it stopped, trains each client alone once, and gives what single runs give."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedroute.compare.one_run import Job, run_job
from fedroute.compare.plan import make_plan
from fedroute.compare.processes import _Process, run_jobs
from fedroute.compare.run_table import compare, jobs_of
from fedroute.config import Config, from_dict, load
from fedroute.data.load import load_federation
from fedroute.errors import InputError, RunFailed
from fedroute.run_directory import RunDirectory
from fedroute.training import fit
from tests.cli.conftest import Fedroute

TEXT = """\
federation: {source: bundled, name: digits, newcomers: [clinic]}
model: {name: mlp, hidden: [8]}
algorithm: {name: fedprox, mu: 0.1}
training: {rounds: 3, local_steps: 3, lr: 0.1, evaluate_every: 1, checkpoint_every: 1}
engine: sequential
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def config(file: Path) -> Config:
    return load(file)


def table(
    config: Config, out: Path, algorithms: str, seeds: int | None = None, **options: Any
) -> tuple[dict[str, Any], list[str]]:
    """(what compare.json holds, the runs that were made)."""
    ran: list[str] = []
    options.setdefault("processes", 1)
    found = compare(
        config, algorithms, out, seeds=seeds, progress=lambda p, i, n, line: ran.append(line["run"]), **options
    )
    assert found == json.loads((out / "compare.json").read_text()) or _int_keys(found, out)
    return found, ran


def _int_keys(found: dict[str, Any], out: Path) -> bool:
    """JSON has texts for keys: the seeds of by_seed."""
    return bool(json.loads(json.dumps(found)) == json.loads((out / "compare.json").read_text()))


def hashes(out: Path) -> dict[str, Any]:
    return {
        str(p.parent.relative_to(out)): json.loads(p.read_text())["weights_sha256"]
        for p in out.glob("*/*/summary.json")
    }


def test_runs_are_those_of_fit_and_alone_is_trained_once(config: Config, tmp_path: Path) -> None:
    out = tmp_path / "table"
    found, ran = table(config, out, "fedavg,fedavg_ft:adapt_epochs=2", 2)
    assert ran == [f"{k}, seed {s}" for k in ("alone",) for s in (0, 1)] + [
        f"{k}, seed {s}" for s in (0, 1) for k in ("fedavg", "fedavg_ft:adapt_epochs=2")
    ]
    assert not found["missing"]
    for row in found["rows"]:
        spec = make_plan(config, [row["algorithm"]], 1).algorithms[row["algorithm"]]
        federation = load_federation(config.federation, row["seed"])
        log = lambda text: None  # noqa: E731
        single = fit(
            federation, config.model, spec, training=config.training, seed=row["seed"], engine="sequential", log=log
        )
        there = RunDirectory(out / row["folder"]).read_summary()
        want = json.loads(json.dumps(single.summary()))
        assert there["weights_sha256"] == want["weights_sha256"]
        assert there["clients"] == want["clients"]  # with alone, to the last digit, after the same passes at the end
        assert row["mean"] == want["accuracy"]["personal"]["mean"]
        assert row["validation"] == want["validation"]["personal"]["accuracy"]
    losses = [
        [c["metrics"]["alone"]["log_loss"] for c in RunDirectory(out / row["folder"]).read_summary()["clients"]]
        for row in found["rows"]
    ]
    assert losses[0] != losses[2]  # alone makes further passes where the algorithm makes them


def test_what_has_ended_is_not_run_again_and_more_is_added(config: Config, tmp_path: Path) -> None:
    out = tmp_path / "table"
    table(config, out, "fedavg", 1)
    before = {p: p.stat().st_mtime_ns for p in out.glob("*/*/summary.json")}
    assert table(config, out, "fedavg")[1] == []
    assert table(config, out, "fedprox")[1] == ["fedprox, seed 0"]
    found, ran = table(config, out, "fedavg", 2)
    assert ran == ["alone, seed 1", "fedavg, seed 1", "fedprox, seed 1"]
    assert {t["algorithm"] for t in found["algorithms"]} == {"fedavg", "fedprox"}
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_an_interrupted_run_is_gone_on_with_to_the_same_end(config: Config, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "table"
    table(config, whole, "fedavg,fedprox", 1)
    first, then = jobs_of(config, make_plan(config, "fedavg,fedprox", 1), out, {"name": "sequential"})
    assert [run_job(job) for job in first] == [""]
    rounds = iter(range(1))

    def alive() -> None:
        if next(rounds, None) is None:
            raise KeyboardInterrupt

    make_plan(config, "fedavg,fedprox", 1).write(out)
    with pytest.raises(KeyboardInterrupt):
        run_job(then[0], alive)
    assert not RunDirectory(then[0].out).ended
    found, ran = table(config, out, "fedavg,fedprox", 1)
    assert ran == ["fedavg, seed 0", "fedprox, seed 0"]
    assert hashes(out) == hashes(whole)
    assert all(r["seconds"] > 0 for r in found["rows"])


def test_where_the_clients_of_a_round_depend_on_the_algorithm_alone_is_not_shared(
    config: Config, tmp_path: Path
) -> None:
    by_loss = {"sampling": "loss", "clients_per_round": 2.0}
    other = config.model_copy(update={"training": config.training.model_copy(update=by_loss)})
    out = tmp_path / "table"
    found, ran = table(other, out, "fedavg", 1)
    assert ran == ["fedavg, seed 0"]
    assert found["rows"][0]["alone"] is not None


def test_another_config_is_refused_in_words(config: Config, tmp_path: Path) -> None:
    out = tmp_path / "table"
    table(config, out, "fedavg", 1)
    other = config.model_copy(update={"training": config.training.model_copy(update={"lr": 0.2})})
    with pytest.raises(InputError, match=r"training.lr was 0.1 and is 0.2"):
        compare(other, "fedprox", out, processes=1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="is not empty"):
        compare(config, "fedavg", tmp_path / "other", processes=1)


def test_what_does_not_fit_is_told_before_anything_runs(config: Config, tmp_path: Path) -> None:
    out = tmp_path / "table"
    with pytest.raises(InputError, match=r"fedprox:private=\[norm\]: .*no weight has the role"):
        compare(config, "fedavg,fedprox:private=[norm]", out, processes=1)
    assert not out.exists()


def test_a_run_that_fails_is_listed_and_the_others_go_on(config: Config, tmp_path: Path) -> None:
    out = tmp_path / "table"
    (out / "fedprox").mkdir(parents=True)
    make_plan(config, "fedavg,fedprox", 1).write(out)
    (out / "fedprox" / "seed-0").write_text("a file where the folder should be")
    found, _ = table(config, out, "fedavg,fedprox", 1)
    assert [r["algorithm"] for r in found["rows"]] == ["fedavg"]
    assert [(m["algorithm"], m["seed"]) for m in found["missing"]] == [("fedprox", 0)]
    assert "is a file" in found["missing"][0]["reason"]


def test_where_nothing_ends_the_comparison_has_failed(config: Config, tmp_path: Path) -> None:
    out = tmp_path / "table"
    (out / "alone").mkdir(parents=True)
    make_plan(config, "fedavg", 1).write(out)
    (out / "alone" / "seed-0").write_text("")
    with pytest.raises(RunFailed, match="each client alone could not be trained"):
        compare(config, "fedavg", out, processes=1)


def test_processes_give_the_same_weights_and_one_that_dies_is_replaced(config: Config, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    table(config, one, "fedavg,fedprox", 1)
    table(config, two, "fedavg,fedprox", 1, processes=2)
    assert hashes(one) == hashes(two)
    (job,), _ = jobs_of(config, make_plan(config, "alone", 1), tmp_path / "three", {"name": "sequential"})
    process = _Process()
    try:
        process.process.kill()
        process.process.wait()
        assert "its process ended" in process.run(job)
        assert process.run(job) == ""
    finally:
        process.stop()
    assert RunDirectory(job.out).ended


def test_leaving_the_loop_stops_the_processes(config: Config, tmp_path: Path) -> None:
    long = config.model_copy(update={"training": config.training.model_copy(update={"rounds": 100000})})
    out = tmp_path / "table"
    _, jobs = jobs_of(from_dict(long.resolved()), make_plan(long, "fedavg,fedprox", 1), out, {"name": "sequential"})
    quick = Job("broken", 0, {}, str(tmp_path / "broken"), None)
    running = run_jobs([quick, jobs[0]._replace(alone=None)], 2)
    assert next(running)[0].label == "broken"
    checkpoints = Path(jobs[0].out) / "checkpoint"
    while not (checkpoints.exists() and any(p.name[0] != "." for p in checkpoints.iterdir())):
        pass
    running.close()
    assert not RunDirectory(jobs[0].out).ended
    RunDirectory(jobs[0].out).open().close()  # nobody holds it any more


def test_the_command(fedroute: Fedroute, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "table"
    words = ("compare", file, "--algorithms", "fedavg,fedprox:mu=1", "--seeds", 2, "--out", out, "--processes", 1)
    said = fedroute(*words, "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert found["schema"] == 1
    assert [t["algorithm"] for t in found["algorithms"]]
    said = fedroute(*words)
    assert said.code == 0
    assert "is first on validation rows" in " ".join(said.out.split())
    assert "4 of 4 runs have ended already" in said.err
    (out / "report.html").unlink()
    assert fedroute("report", out).code == 0
    assert "fedprox:mu=1" in (out / "report.html").read_text()
    said = fedroute("compare", file, "--algorithms", "fedprx", "--out", out)
    assert (said.code, said.out) == (2, "")
    assert "did you mean fedprox" in said.err
