"""A config file made into a run, a run gone on with, and what would leave a client: the work behind the commands."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.errors import InputError, RunFailed
from fedroute.hub_run import goes_on, hub_of

if TYPE_CHECKING:
    from fedroute.config import Config
    from fedroute.data.federation import Federation
    from fedroute.run import Run
    from fedroute.run_directory import RunDirectory

Log = Callable[[str], None]
Progress = Callable[[str, int, int, dict[str, Any]], None]
NOTES = 8  # how many lines about the data are said; log.txt has all


def start(
    config: "Config",
    out: Path,
    *,
    force: bool = False,
    federation: "Federation | None" = None,
    alone_run: Path | None = None,
    progress: Progress,
    log: Log,
) -> "Run":
    """A new run in the folder `out`, to its end: data loaded, trained, evaluated, ledger and report written.
    federation: that of the config, where it is loaded already. alone_run: as in `fit`.

    Raises InputError where config or data are wrong, or `out` holds a run and not `force`; RunFailed where the job
    cannot go on; KeyboardInterrupt after the last whole round was saved."""
    from fedroute.run_directory import RunDirectory

    directory = RunDirectory(out)
    directory.check_free(force)
    federation = federation or _load(config)
    with directory.create(force):
        directory.write_config(config.resolved())
        try:
            return _train(config, federation, directory, False, alone_run, progress, log)
        except InputError:
            directory.forget()
            raise


def resume(
    out: Path,
    *,
    federation: "Federation | None" = None,
    alone_run: Path | None = None,
    progress: Progress,
    log: Log,
) -> "Run | None":
    """The run in the folder `out` gone on with from its last checkpoint to the same end, bit for bit. None where it
    has ended already: then nothing is done.

    Raises InputError where there is no run, where it is a hub's, where another process works on it, or where the
    data have changed."""
    from fedroute.config import load
    from fedroute.run_directory import RunDirectory

    directory = RunDirectory(out).open()
    with directory:
        if not directory.ended and (hub := hub_of(out)):
            raise InputError(goes_on(out, hub))
        if directory.ended:
            if not (directory.path / "report.html").exists():
                write_report(directory.path)
            return None
        config = load(directory.path / "config.yaml")
        return _train(config, federation or _load(config), directory, True, alone_run, progress, log)


def route(folder: Path, queries: Path) -> tuple[dict[str, Any], list[str]]:
    """({run, rule, queries: [{client, answer, score, reason, runner_up, ...}]}, notes): what the router of the run in
    `folder` says of the queries in a file. Needs nothing but the folder.

    Raises InputError where the run has no router, or the file is not what the models read: file, column, mend."""
    from fedroute.config import load
    from fedroute.data.queries import read_queries
    from fedroute.router.router import Router

    router = Router.load(folder)
    config = folder / "config.yaml"
    x, notes = read_queries(queries, router.form, load(config).federation if config.exists() else None)
    routed = router.route(x)
    return {"run": str(folder), "router": router.kind, "rule": router.rule, "queries": routed.rows()}, notes


def manifest(config: "Config") -> list[dict[str, Any]]:
    """What leaves a client in a round, tensor by tensor: {tensor, role, leaves, bytes, ...}."""
    return preview(config)[0]


def preview(config: "Config") -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """What a run would do, before any training: (what leaves a client, as `manifest`; each client's say, {client, rows,
    effective, by_rows, rounds, say}; what is to be said of it)."""
    from fedroute.algorithms import make
    from fedroute.core import Task
    from fedroute.manifest import manifest as entries
    from fedroute.models import build
    from fedroute.rounds import judged, prepare
    from fedroute.say import announce, planned
    from fedroute.task import loss_for

    federation, t = _load(config), config.training
    task = Task(*build(config.model, federation, config.seed), loss_for(federation.y))
    algorithm = prepare(make(config.algorithm), task, t)
    says = planned(algorithm, federation, t, config.seed, copies=True)
    sent = [e.row() for e in entries(algorithm, federation, judged(algorithm, federation, t))]
    return sent, [s._asdict() for s in says], announce(says, algorithm, federation, t)


def _load(config: "Config") -> "Federation":
    from fedroute.data.load import load_federation

    return load_federation(config.federation, config.seed)


def _train(
    config: "Config",
    federation: "Federation",
    directory: "RunDirectory",
    resume: bool,
    alone_run: Path | None,
    progress: Progress,
    log: Log,
) -> "Run":
    from fedroute.training import fit

    with logged(directory):
        notes = [f"data: {note}" for note in federation.notes]
        for note in notes:
            directory.log(note)
        for note in notes[:NOTES]:
            log(note)
        if more := len(notes[NOTES:]):
            log(f"data: {more} more in {directory.path / 'log.txt'}")
        run = fit(
            federation,
            config.model,
            config.algorithm,
            training=config.training,
            seed=config.seed,
            engine=config.engine.model_dump(exclude_none=True),
            router=config.router,
            out=directory.path,
            resume=resume,
            progress=progress,
            log=log,
            alone_run=alone_run,
        )
        write_report(directory.path)
    return run


def write_report(out: Path) -> Path:
    """report.html of the run or the comparison in `out`, ended or not. Raises InputError where there is neither."""
    from fedroute.compare.plan import FILE
    from fedroute.report import write

    if (out / FILE).exists():
        from fedroute.compare.results import write_results

        write_results(out)
        return out / "report.html"
    return write(out)


@contextmanager
def logged(directory: "RunDirectory") -> Iterator[None]:
    """Why a run ended before its end, in log.txt: with the traceback where that is news."""
    try:
        yield
    except KeyboardInterrupt:
        directory.log("interrupted")
        raise
    except (InputError, RunFailed) as e:
        _try_to_log(directory, str(e))
        raise
    except Exception as e:
        _try_to_log(directory, traceback.format_exc())
        e.add_note(f"the traceback is in {directory.path / 'log.txt'}")
        raise


def _try_to_log(directory: "RunDirectory", text: str) -> None:
    with suppress(RunFailed):  # where the log cannot be written either, the first error is the one to tell
        directory.log(text)
