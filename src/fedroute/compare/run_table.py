"""compare(): the runs of a plan, each in a folder of its own, those that are there already left as they are."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.compare.plan import ALONE, Plan, make_plan, read_plan
from fedroute.durable import taking
from fedroute.errors import InputError, RunFailed

if TYPE_CHECKING:
    from fedroute.compare.one_run import Job
    from fedroute.config import Config

Progress = Callable[[str, int, int, dict[str, Any]], None]


def compare(
    config: "Config",
    algorithms: str | Sequence[str | Mapping[str, Any]],
    out: Path | str,
    *,
    seeds: int | None = None,
    processes: int | None = None,
    progress: Progress = lambda phase, done, of, line: None,
    log: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Runs every algorithm with every seed on the config's federation, model and training, and returns what
    compare.json then holds (see `results`).

    algorithms: as in `make_plan`, such as "fedavg,fedprox:mu=0.1;private=[norm]". out: a folder; the run of algorithm A
    with seed s is in out/A/seed-s, and each client alone, trained once for all algorithms, in out/alone/seed-s. What
    has ended there is not run again, what was interrupted is gone on with, and further algorithms or seeds are added to
    those that are there. seeds: how many, from config.seed upward; by default as many as there are, or 3. processes:
    how many runs at a time, each on one thread; by default one for each core.

    Raises InputError where the parts do not fit, or the folder holds a comparison of another config; RunFailed where
    every run failed. A run that fails is listed under "missing", with the reason, and the others go on."""
    out = Path(out)
    with taking(out):
        old = read_plan(out)
        full = old is None and out.exists() and any(p for p in out.iterdir() if not p.name.startswith("."))
    new = make_plan(config, algorithms, seeds or (old.seeds if old else 3))
    if full:
        raise InputError(f"{out}: is not empty and holds no comparison: name another folder with --out")
    plan = old.merged(new, out) if old else new
    check_fit(config, plan)
    with taking(out):
        out.mkdir(parents=True, exist_ok=True)
        plan.write(out)
    failed = _run_all(config, plan, out, processes, progress, log)
    from fedroute.compare.results import write_results

    found = write_results(out, failed)
    if not found["rows"]:
        label, reason = next((m["algorithm"], m["reason"]) for m in found["missing"])
        raise RunFailed(f"{out}: every run failed, the first, {label}: {reason}")
    return found


def check_fit(config: "Config", plan: Plan) -> None:
    """Raises InputError where an algorithm cannot run on this federation and model: before anything has run."""
    from fedroute.algorithms import make
    from fedroute.core import Task
    from fedroute.data.load import load_federation
    from fedroute.models import build
    from fedroute.rounds import prepare
    from fedroute.task import loss_for

    federation = load_federation(config.federation, config.seed)
    for label, spec in plan.algorithms.items():
        try:
            task = Task(*build(config.model, federation, config.seed), loss_for(federation.y))
            prepare(make(spec), task, config.training)
        except InputError as e:
            raise InputError(f"--algorithms {label}: {e}") from None


def jobs_of(config: "Config", plan: Plan, out: Path, engine: Mapping[str, Any]) -> tuple[list["Job"], list["Job"]]:
    """(each client alone, a run for each seed, needed by the others first; the runs of the algorithms), seed by seed,
    so that those of one seed read the data once. Those that have ended are not among them."""
    from fedroute.compare.one_run import Job
    from fedroute.run_directory import RunDirectory

    base = config.resolved() | {"engine": dict(engine)}
    first, then = list[Job](), list[Job]()
    alone = _alone_spec()
    shared = config.training.alone and config.training.sampling != "loss"  # else each has clients of its own in a round
    listed = [label for label, spec in plan.algorithms.items() if spec == alone]
    for seed in plan.all_seeds:
        folder = out / ALONE / f"seed-{seed}"
        training = base["training"] | {"alone": False}
        if shared or listed:
            job = Job(ALONE, seed, base | {"algorithm": alone, "seed": seed, "training": training}, str(folder), None)
            first += [] if RunDirectory(folder).ended else [job]
        for label, spec in plan.algorithms.items():
            own = out / plan.folders[label] / f"seed-{seed}"
            if label not in listed and not RunDirectory(own).ended:
                run = base | {"algorithm": spec, "seed": seed}
                then.append(Job(label, seed, run, str(own), str(folder) if shared else None))
    return first, then


def _alone_spec() -> dict[str, Any]:
    from fedroute.algorithms import make

    return {k: list(v) if isinstance(v, tuple) else v for k, v in make(ALONE).describe().items()}


def _run_all(
    config: "Config", plan: Plan, out: Path, processes: int | None, progress: Progress, log: Callable[[str], None]
) -> dict[tuple[str, int], str]:
    """(label, seed) -> why it failed, of those that did."""
    from fedroute.compare.processes import run_jobs
    from fedroute.engines.workers import available_cores

    engine = config.engine.model_dump(mode="json")
    at_once = processes or (1 if engine["name"] == "workers" else available_cores())
    if at_once > 1 and engine["name"] == "auto":
        engine["workers"] = 1  # the other cores have runs of their own
    first, then = jobs_of(config, plan, out, engine)
    of = len(plan.algorithms) * plan.seeds
    if ended := of - len(then) - (len(first) if ALONE in plan.algorithms else 0):
        log(f"compare: {ended} of {of} runs have ended already")
    failed: dict[tuple[str, int], str] = {}
    for phase, jobs in (("alone", first), ("compare", then)):
        blocked = {seed for label, seed in failed if label == ALONE}
        runnable = [job for job in jobs if not (job.alone and job.seed in blocked)]
        with closing(run_jobs(runnable, min(at_once, len(runnable)))) as ended_jobs:
            for done, (job, error) in enumerate(ended_jobs, 1):
                if error:
                    failed[job.label, job.seed] = error
                    log(f"{job.label}, seed {job.seed}: failed: {error}")
                progress(phase, done, len(runnable), {"run": f"{job.label}, seed {job.seed}"})
        for job in jobs:
            if job not in runnable:
                failed[job.label, job.seed] = "each client alone could not be trained: " + failed[ALONE, job.seed]
    return failed
