"""The command line. Each command is one function of the library; this file turns errors into words and exit codes.

Exit 0: done. 1: the job failed. 2: the input was wrong. 130: interrupted."""

import contextlib
import functools
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer

from fedroute import __version__
from fedroute.errors import InputError, RunFailed
from fedroute.federation import hub_commands, site_commands
from fedroute.progress import ProgressOnStderr
from fedroute.service import commands as serving
from fedroute.words import count, noun

if TYPE_CHECKING:
    from fedroute.run import Run

app = typer.Typer(
    help="Federated learning for clients that differ.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value to stdout and nothing else.")]
Out = Annotated[Path, typer.Option(help="The folder of the run.")]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="The config.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="a.b=c", help="Replaces a value of the config; may be repeated.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the run that is in the folder.")]


def main() -> None:
    """The entry point."""
    app()


P = ParamSpec("P")


def command(f: Callable[P, None], of: typer.Typer = app) -> Callable[P, None]:
    """A command whose errors are told in words, with the exit code that belongs to them."""

    @functools.wraps(f)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            f(*args, **kwargs)
            sys.stdout.flush()
        except InputError as e:
            leave(2, str(e))
        except RunFailed as e:
            leave(1, str(e) + going_on(kwargs))
        except KeyboardInterrupt:
            leave(130, "stopped" + going_on(kwargs))
        except BrokenPipeError:  # the reader of our output, such as head, has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            leave(1)
        except Exception as e:
            where = "; ".join(getattr(e, "__notes__", []))
            if not where:
                traceback.print_exc()
            leave(1, f"unexpected {type(e).__name__}: {e}" + (f"; {where}" if where else "") + going_on(kwargs))

    of.command(f.__name__)(wrapped)
    return wrapped


@contextlib.contextmanager
def naming(file: Path) -> Iterator[None]:
    """Puts the config's name before what is wrong with one of its parts."""
    try:
        yield
    except InputError as e:
        if re.match(r"(federation|model|algorithm|training|router|engine|seed)\b", str(e)):
            raise InputError(f"{file}: {e}") from e
        raise


def leave(code: int, text: str = "") -> NoReturn:
    for line in text.splitlines():
        print(f"fedroute: {line}", file=sys.stderr)
    raise typer.Exit(code) from None


def going_on(kwargs: dict[str, Any]) -> str:
    """How to go on with the run of a command that has one and left a checkpoint, or at least a config."""
    folder = kwargs.get("out") or kwargs.get("folder")
    if isinstance(folder, Path) and (folder / "compare.yaml").exists():
        return "\nthe same command again goes on"
    if isinstance(folder, Path) and (folder / "config.yaml").exists() and not (folder / "summary.json").exists():
        return f"\ngo on with: fedroute resume {folder}"
    return ""


def show(value: Any, as_json: bool, human: Callable[[], Any]) -> None:
    """One JSON value, or what `human` makes, which prints or returns a table."""
    if as_json:
        print(json.dumps(value, ensure_ascii=False))
    elif (table := human()) is not None:
        from rich.console import Console

        wide = Console() if sys.stdout.isatty() else Console(width=120)
        wide.print(table)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Any:
    from rich.table import Table
    from rich.text import Text  # names are text and no markup

    t = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for c in columns:
        t.add_column(c)
    for row in rows:
        t.add_row(*(Text(str(v)) for v in row))
    return t


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@command
def demo(out: Out = Path("demo"), as_json: Json = False) -> None:
    """The main job on bundled real data: ledger and report."""
    from fedroute.demo import demo as demonstrate
    from fedroute.demo import told

    interruptible()
    with ProgressOnStderr() as p:
        one, own = demonstrate(out, progress=p.show, log=p.say)
    finish(own, out, as_json, lambda: print(told(one, own, out)))


@command
def run(
    config: ConfigFile,
    out: Annotated[Path, typer.Option(help="The folder for the run.")],
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train, evaluate, and write the ledger and the report."""
    from fedroute import jobs
    from fedroute.config import load

    interruptible()
    with ProgressOnStderr() as p, naming(config):
        done = jobs.start(load(config, overrides or ()), out, force=force, progress=p.show, log=p.say)
    finish(done, out, as_json)


@command
def resume(folder: Folder, as_json: Json = False) -> None:
    """Go on with a run that was interrupted, to the same end."""
    from fedroute import jobs
    from fedroute.run_directory import RunDirectory

    interruptible()
    with ProgressOnStderr() as p:
        done = jobs.resume(folder, progress=p.show, log=p.say)
    if done:
        finish(done, folder, as_json)
    else:
        summary = RunDirectory(folder).read_summary()
        show(summary, as_json, lambda: print(f"{folder}: this run has ended; its report is {folder / 'report.html'}"))
        void(summary["void_rounds"])


@command
def compare(
    config: ConfigFile,
    algorithms: Annotated[
        str, typer.Option(metavar="A,B,...", help="Which, options after a colon: fedavg,fedprox:mu=0.1;private=[norm]")
    ],
    out: Annotated[Path, typer.Option(help="The folder of the comparison; what has ended there is not run again.")],
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many, from the config's seed upward; 3 where it is new.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Runs at a time; by default one a core.")] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Many algorithms, many seeds, equal budgets: one table and one report."""
    from fedroute.compare.run_table import compare as run_table
    from fedroute.compare.table import comparison_table
    from fedroute.config import load

    interruptible()
    with ProgressOnStderr() as p, naming(config):

        def show_run(phase: str, done: int, of: int, line: dict[str, Any]) -> None:
            if p.bar:
                p.show(phase, done, of, {})
            else:
                p.say(f"{done} of {of}: {line['run']}")

        loaded = load(config, overrides or ())
        found = run_table(loaded, algorithms, out, seeds=seeds, processes=processes, progress=show_run, log=p.say)
    show(found, as_json, lambda: comparison_table(found))
    print(f"report: {out / 'report.html'}", file=sys.stderr)
    if missing := found["missing"]:
        raise RunFailed(
            f"{len(missing)} of {len(missing) + len(found['rows'])} runs failed, the first: {missing[0]['algorithm']}, "
            f"seed {missing[0]['seed']}: {missing[0]['reason']}"
        )
    if void_runs := [r for r in found["refused"] if r["void_rounds"]]:
        names = ", ".join(f"{r['algorithm']} seed {r['seed']}" for r in void_runs[:4])
        raise RunFailed(
            f"{count(len(void_runs), 'run')} had void rounds, in which too few clients answered well: {names}"
        )


@command
def route(
    folder: Folder,
    queries: Annotated[
        Path, typer.Option("--input", metavar="FILE", help="CSV, Parquet, .npz or images: a query a row.")
    ],
    as_json: Json = False,
) -> None:
    """Which client answers a query, what, how sure, why, and who is next in line; or that no client fits."""
    from fedroute import jobs
    from fedroute.report.terminal import routes_table

    found, notes = jobs.route(folder, queries)
    for note in notes:
        print(note, file=sys.stderr)
    show(found, as_json, lambda: routes_table(found))


@command
def profile(
    federation: Annotated[str, typer.Argument(metavar="FEDERATION", help="A YAML file, or bundled:NAME.")],
    out: Annotated[Path | None, typer.Option(help="Also write the page here: a folder, or a file.html.")] = None,
    lang: Annotated[str, typer.Option(help="The language of words and page: en or zh.")] = "en",
    seed: Annotated[
        int | None, typer.Option(help="Draws splits, and the rows that are looked at; by default that of the file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """How the clients differ, how sure that is, and what is sick in their data."""
    from fedroute.report.profile_page import PROFILE, language, place, write_profile
    from fedroute.report.profile_words import told as in_words

    lang = language(lang)
    if out is not None:
        place(out, PROFILE)  # said before the work
    from fedroute.data.load import load_federation, read_seed, read_spec
    from fedroute.profile.profile import profile as profiled

    with naming(Path(federation)):
        spec, base = read_spec(federation)
        seed = read_seed(federation, seed)
        loaded = load_federation(spec, seed, base)
    for note in loaded.notes[:8]:  # such as images that cannot be read; the page and --json have all
        print(f"data: {note}", file=sys.stderr)
    found = profiled(loaded, seed).row()
    show(found, as_json, lambda: print(in_words(found, lang)))
    if out is not None:
        print(f"page: {write_profile(found, out, lang)}", file=sys.stderr)


@command
def advise(
    federation: Annotated[
        str, typer.Argument(metavar="FEDERATION", help="A YAML file, whose model and training count, or bundled:NAME.")
    ],
    prove: Annotated[
        bool, typer.Option("--prove", help="Run it, the runner-up, FedAvg and alone head to head on validation rows.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Of the proof.")] = 3,
    rounds: Annotated[int | None, typer.Option(min=1, help="Of the proof; by default the file's, 20 at most.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draws splits and runs; by default that of the file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the page here: a folder, or a file.html.")] = None,
    lang: Annotated[str, typer.Option(help="The language of words and page: en or zh.")] = "en",
    as_json: Json = False,
) -> None:
    """What to train and why, what it costs, and what would change that; with --prove, whether it is so."""
    from fedroute.report.profile_page import ADVICE, language, place, write_advice

    lang = language(lang)
    if out is not None:
        place(out, ADVICE)  # said before the work
    from fedroute.advise.job import advise_job
    from fedroute.advise.words import told as in_words

    interruptible()
    with ProgressOnStderr() as p, naming(Path(federation)):
        found = advise_job(federation, prove=prove, seeds=seeds, rounds=rounds, seed=seed, progress=p.show, log=p.say)
    show(found.row(), as_json, lambda: print(in_words(found, lang)))
    if out is not None:
        print(f"page: {write_advice(found, out, lang)}", file=sys.stderr)


@command
def tune(
    config: ConfigFile,
    out: Annotated[Path, typer.Option(help="The folder of the study; the same command again goes on with it.")],
    trials: Annotated[int, typer.Option(min=1, help="How many in all, those that have ended among them.")] = 30,
    over: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these, such as lr,lam; by default all there are.")
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Find learning rate, steps, the algorithm's numbers and private roles by trial, on validation rows."""
    from fedroute.advise.tune import told as in_words
    from fedroute.advise.tune import tune as tuned
    from fedroute.config import load

    interruptible()
    with ProgressOnStderr() as p, naming(config):
        names = [name.strip() for name in over.split(",") if name.strip()] if over else []
        found = tuned(load(config, overrides or ()), out, trials=trials, over=names, progress=p.show, log=p.say)
    show(found, as_json, lambda: print(in_words(found)))
    dials = {d["key"] for d in found["dials"]}
    kept = [text for text in overrides or () if text.partition("=")[0].strip() not in dials]
    said = f"; what was set is in it: {', '.join(kept)}" if kept else ""
    print(f"best config: {out / 'best.yaml'}{said}", file=sys.stderr)


@command
def report(folder: Folder, as_json: Json = False) -> None:
    """Write report.html of a run or a comparison anew."""
    from fedroute import jobs

    path = jobs.write_report(folder)
    show({"report": str(path)}, as_json, lambda: print(path))


@command
def manifest(
    config: ConfigFile,
    overrides: Overrides = None,
    say: Annotated[bool, typer.Option("--say", help="Instead, what each client counts in the mean.")] = False,
    as_json: Json = False,
) -> None:
    """What leaves a client, tensor by tensor, and what each client counts."""
    from fedroute import jobs
    from fedroute.config import load

    with naming(config):
        rows, says, said = jobs.preview(load(config, overrides or ()))
    if not as_json:
        print("\n".join(said), file=sys.stderr)
    if say:
        columns = ("client", "rows", "effective", "by_rows", "say", "rounds")
        cells = [[s["client"], s["rows"], s["effective"], *(share(s[k]) for k in columns[3:5]), s["rounds"]]
                 for s in says]  # fmt: skip
        show(says, as_json, lambda: table("What each client counts in the mean", columns, cells))
        return
    up, down = (sum(r[k] for r in rows if r["leaves"] or k != "bytes") for k in ("bytes", "down_bytes"))
    leaving = sum(r["leaves"] for r in rows)
    title = f"{leaving} of {count(len(rows), 'tensor')} leave a client: {up:,} bytes up a round, and {down:,} down"
    lines = [(r["tensor"], r["role"], "leaves" if r["leaves"] else "stays", f"{r['bytes']:,}") for r in rows]
    show(rows, as_json, lambda: table(title, ("tensor", "role", "", "bytes"), lines))


def share(part: float | None) -> str:
    return "n/a" if part is None else f"{part:.1%}"


@command
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[ALGORITHM ...]", help="All where none is named.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What the papers prove of the algorithms, measured here."""
    from fedroute.certificates import check as certificates

    found = certificates(names or None)
    lines = [
        (c.algorithm, c.claim, f"{c.measured:.6g}", f"{c.expected:.6g}", "holds" if c.passed else "FAILS")
        for c in found
    ]
    columns = ("algorithm", "claim", "measured", "expected", "")
    show([c._asdict() for c in found], as_json, lambda: table("", columns, lines))
    if failed := [c for c in found if not c.passed]:
        raise RunFailed(
            f"{len(failed)} of {len(found)} certificates fail, the first: {failed[0].algorithm}: {failed[0].claim}"
        )


@command
def algorithms(as_json: Json = False) -> None:
    """The algorithms there are."""
    from fedroute.algorithms import describe

    rows = describe()
    lines = [(r["name"], r["summary"], ", ".join(f"{o['name']}={o['default']}" for o in r["options"])) for r in rows]
    show(rows, as_json, lambda: table("", ("algorithm", "what it is", "options"), lines))


@command
def models(as_json: Json = False) -> None:
    """The models there are."""
    from fedroute.models import MODELS

    rows = [m.row(name) for name, m in MODELS.items()]
    lines = [(r["name"], r["summary"], ", ".join(f"{o['name']}={o['default']}" for o in r["options"])) for r in rows]
    show(rows, as_json, lambda: table("", ("model", "what it is", "options"), lines))


@command
def sources(as_json: Json = False) -> None:
    """The kinds of data that can be read."""
    from fedroute.data.sources import SOURCES

    rows = [{"name": k, "summary": v} for k, v in SOURCES.items()]
    show(rows, as_json, lambda: table("", ("source", "what it reads"), [(r["name"], r["summary"]) for r in rows]))


command(serving.serve)
command(serving.token)
for group, side in (("hub", hub_commands), ("site", site_commands)):
    own = typer.Typer(help=side.__doc__, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(own, name=group)
    for each in side.COMMANDS:
        command(each, own)


def finish(done: "Run", out: Path, as_json: bool, told: Callable[[], None] = lambda: None) -> None:
    def human() -> Any:
        told()
        if not done.routing:
            return done.ledger.table()
        from rich.console import Group

        from fedroute.report.terminal import routing_table

        return Group(done.ledger.table(), "", routing_table(done.routing))

    from fedroute.run_directory import RunDirectory

    show(RunDirectory(out).read_summary() if as_json else None, as_json, human)
    print(f"report: {out / 'report.html'}", file=sys.stderr)
    void(done.state.void_rounds)


def void(rounds: Sequence[int]) -> None:
    if rounds:
        which = ", ".join(map(str, rounds[:10])) + (", ..." if len(rounds) > 10 else "")
        raise RunFailed(
            f"{count(len(rounds), 'round was', 'rounds were')} void ({noun(len(rounds), 'round')} {which}): "
            "too few clients answered well, and the weights stayed; log.txt says who was left out and why"
        )


def interruptible() -> None:
    """A polite kill ends a run as Ctrl-C does, at a place from which `resume` goes on."""

    def stop(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
