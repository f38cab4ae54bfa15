"""A run's folder: what a training leaves behind, and what it goes on from after a kill."""

import contextlib
import csv
import datetime
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakValueDictionary

from fedroute.checkpoint import fingerprint, load_newest, save
from fedroute.durable import taking, write, writing
from fedroute.errors import InputError
from fedroute.hub_run import goes_on, hub_of

if TYPE_CHECKING:
    from fedroute.rounds import State
    from fedroute.run import Run

__all__ = ["RunDirectory", "fingerprint"]

RESULTS = ("metrics.jsonl", "summary.json", "clients.csv", "report.html")
FILES = (*RESULTS, "config.yaml", "log.txt")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute: a name must not, and gets a ' before it
ALONE = "checkpoint-alone"  # of the clients trained alone, until the run has ended
CONFIG_HEADER = "# The complete config of this run, written by fedroute. `fedroute resume` reads it.\n"


class RunDirectory:
    """config.yaml, metrics.jsonl, summary.json, checkpoint/, router/, clients.csv, report.html, log.txt.

    `create` or `open` takes the folder for this process, until `close`, or until the last of this process's objects for
    the folder is gone, or the process has ended, however it ended. A second process gets InputError.
    fingerprint: what is trained here (`checkpoint.fingerprint`); checkpoints of anything else are refused.
    What is repaired on loading is said to `say`; `logging` sets it."""

    _held: ClassVar[WeakValueDictionary[Path, "_Lock"]] = WeakValueDictionary()

    def __init__(self, path: Path | str, fingerprint: Mapping[str, str] | None = None):
        self.path, self.fingerprint = Path(path), fingerprint
        self.say: Callable[[str], None] = self.log
        self._lock: _Lock | None = None

    # taking it

    def create(self, force: bool = False) -> Self:
        """A new run in this folder. Raises InputError where `check_free` does; `force` removes what a run leaves
        there, and nothing else."""
        with taking(self.path):
            if not self._take_over():
                self.check_free(force)
                self._take()
                for name in (*FILES, "checkpoint", ALONE, "router"):
                    old = self.path / name
                    shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
        return self

    def check_free(self, force: bool = False) -> None:
        """Raises InputError where the folder holds results of a run and not `force`, or a config.yaml that no run
        wrote, or where no run can be. A run that wrote no result yet is no reason."""
        with taking(self.path):
            if file := next((p for p in (self.path, *self.path.parents) if p.exists() and not p.is_dir()), None):
                raise InputError(f"{self.path}: cannot be made: {file} is a file: name another folder")
            config = self.path / "config.yaml"
            if config.exists() and not config.read_bytes().startswith(CONFIG_HEADER.encode()):
                raise InputError(f"{config}: is no run's and would be overwritten: name another folder for the run")
            here = [name for name in (*RESULTS, "checkpoint") if (self.path / name).exists()]
        if here and not force:
            found = "that has ended" if self.ended else f"already ({here[0]})"
            mend = "" if self.ended else f"go on with `fedroute resume {self.path}`, "
            raise InputError(
                f"{self.path}: holds a run {found}: {mend}name another folder, or give --force to replace it"
            )

    def open(self) -> Self:
        """A run that is there. Raises InputError where there is none, or another process works on it."""
        if not any((self.path / name).exists() for name in (*FILES, "checkpoint", ".lock")):
            raise InputError(f"{self.path}: no run here: name the folder that --out was given")
        if not self._take_over():
            self._take()
        return self

    def forget(self) -> None:
        """Removes a run that was refused before it was trained, and the folder where nothing else is in it: it would
        look like one that can be gone on with."""
        if any((self.path / name).exists() for name in (*RESULTS, "checkpoint", ALONE)):
            return
        for name in ("config.yaml", "log.txt", ".lock"):
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something of others is in it
            self.path.rmdir()

    def close(self) -> None:
        """Frees the folder, for all of this process's objects for it."""
        if lock := self._held.pop(self.path.resolve(), None):
            lock.file.close()
        self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _take_over(self) -> bool:
        """Whether this process has the folder already."""
        self._lock = self._held.get(self.path.resolve())
        return self._lock is not None

    def _take(self) -> None:
        with taking(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _Lock(self.path)
        self._held[self.path.resolve()] = self._lock

    # writing

    def write_config(self, config: Mapping[str, Any]) -> None:
        import yaml

        write(
            self.path / "config.yaml", CONFIG_HEADER + yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        )

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl. `row` has "round"; what is not a finite number becomes null."""
        self._append("metrics.jsonl", json.dumps(_finite(row)) + "\n")

    def log(self, text: str) -> None:
        """Lines of log.txt, with the time (UTC) at the first."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._append("log.txt", f"{now} {text.rstrip()}\n")

    def logging(self, log: Callable[[str], None]) -> Callable[[str], None]:
        """`log`, and log.txt with it; also for what `load_checkpoint` repairs."""

        def both(text: str) -> None:
            log(text)
            self.log(text)

        self.say = both
        return both

    def _append(self, name: str, text: str) -> None:
        with writing(self.path / name), (self.path / name).open("a", encoding="utf-8") as f:
            f.write(text)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write(self.path / "summary.json", json.dumps(_finite(summary), indent=1, ensure_ascii=False) + "\n")

    def write_ledger(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """clients.csv: a line per row, the columns of the first row; pairs such as intervals as `low..high`."""
        text = io.StringIO()
        table = csv.DictWriter(text, list(rows[0]) if rows else ["client"], lineterminator="\n")
        table.writeheader()
        table.writerows({k: _cell(v) for k, v in row.items()} for row in rows)
        write(self.path / "clients.csv", text.getvalue())

    # checkpoints

    def save_checkpoint(self, state: "State") -> None:
        """Raises RunFailed where the disk is full; the checkpoint before is then untouched."""
        save(self.path / "checkpoint", state, self.fingerprint or {})

    def load_checkpoint(self) -> "State | None":
        """The state to go on from, or None to start anew; metrics.jsonl then holds what that state knows and no more,
        so that no round appears twice. Raises InputError where the checkpoint is another run's."""
        state = load_newest(self.path / "checkpoint", self.fingerprint, self.say, put_aside=True)
        last = state.history[-1]["round"] if state and state.history else None
        self._cut_metrics(last if isinstance(last, int) else None)
        return state

    def save_alone(self, state: "State", fingerprint: Mapping[str, str]) -> None:
        """A checkpoint of the clients trained alone, as `save_checkpoint`."""
        save(self.path / ALONE, state, fingerprint)

    def load_alone(self, fingerprint: Mapping[str, str]) -> "State | None":
        """The state to go on from with them, or None to start anew."""
        return load_newest(self.path / ALONE, fingerprint, self.say, put_aside=True)

    def _cut_metrics(self, last: int | None) -> None:
        """Keeps the lines up to round `last` (None: none)."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            kept = [line for line in _whole_lines(path) if last is not None and line["round"] <= last]
            write(path, "".join(json.dumps(line) + "\n" for line in kept))

    # the end

    def finish(self, run: "Run") -> None:
        """clients.csv, the router where there is one, and then summary.json of a run that has ended."""
        self.write_ledger(run.ledger.rows())
        if run.router:
            run.router.save(self.path)
        self.write_summary(run.summary())
        shutil.rmtree(self.path / ALONE, ignore_errors=True)

    # reading

    @property
    def ended(self) -> bool:
        return (self.path / "summary.json").exists()

    def read_config(self) -> dict[str, Any]:
        from fedroute.config import load

        return load(self.path / "config.yaml").resolved()

    def read_metrics(self) -> list[dict[str, Any]]:
        """A line per evaluated round; a last line that a kill cut off is left out."""
        path = self.path / "metrics.jsonl"
        return _whole_lines(path) if path.exists() else []

    def read_summary(self) -> dict[str, Any]:
        """Raises InputError where the run has not ended."""
        path = self.path / "summary.json"
        if not path.exists():
            if hub := hub_of(self.path):
                raise InputError(goes_on(self.path, hub))
            raise InputError(f"{path}: not there: the run has not ended; `fedroute resume {self.path}` ends it")
        try:
            summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as e:
            raise InputError(f"{path}: not readable ({e}): `fedroute resume {self.path}` writes it anew") from e
        return summary


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    lines = []
    for line in path.read_bytes().split(b"\n"):
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # the end of a line that a kill cut off
    return [line for line in lines if isinstance(line, dict) and "round" in line]


def _finite(value: Any) -> Any:
    """JSON knows no NaN: what is undefined is null."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else "n/a"
    if isinstance(value, list | tuple):
        return "..".join(str(_cell(v)) for v in value)
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "n/a" if value is None else value


class _Lock:
    """A folder held by this process; the system frees it when the process ends, even by a kill."""

    def __init__(self, folder: Path) -> None:
        self.file = (folder / ".lock").open("a+")
        if not _locked(self.file):
            self.file.seek(0)
            who = self.file.read().strip() or "another process"
            raise InputError(f"{folder}: {who} works on this run: wait for it, or stop it first")
        self.file.truncate(0)
        self.file.write(f"process {os.getpid()}")
        self.file.flush()

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


def _locked(handle: IO[str]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
