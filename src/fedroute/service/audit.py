"""The audit: a line in SQLite for each answer and each refusal, without anything of the query."""

import hashlib
import hmac
import json
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedroute.errors import InputError

PAUSE = 0.25  # seconds between two writings, while lines come
RETRY = 0.5  # seconds after a writing that failed
MOST = 50_000  # lines that wait, beyond which nothing more is answered
SHORTEST = 16  # bytes of a key


@dataclass(frozen=True)
class Line:
    """request: its id; place: of the query in a batch; time: UTC; who: the token's name; what: route, predict, answer;
    asked, answered: clients; label: the answer; status: of HTTP; reason: of a refusal; ms: of the whole request; query:
    a keyed hash of the query, where a key is set."""

    request: str
    place: int
    time: str
    who: str
    what: str
    asked: str | None = None
    answered: str | None = None
    fallback: bool = False
    score: float | None = None
    abstained: bool = False
    label: str | None = None
    status: int = 200
    reason: str | None = None
    ms: float = 0.0
    query: str | None = None


COLUMNS = tuple(f.name for f in fields(Line))
TYPES = {"place": "INTEGER", "fallback": "INTEGER", "abstained": "INTEGER", "status": "INTEGER", "score": "REAL",
         "ms": "REAL"}  # fmt: skip


class Audit:
    """Lines wait in memory and are written by one thread, many in one transaction; `close` writes what is left. What
    cannot be written (a full disk) is kept and tried again, and `trouble` says why.

    path: None: no line is kept. Raises InputError where it is no such file, or cannot be written."""

    def __init__(self, path: Path | None):
        self.path, self.trouble = path, ""
        self._lines: list[Line] = []
        self._change = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._open: sqlite3.Connection | None = None  # of the thread
        if path is not None:
            self._connect(path).close()

    def add(self, lines: Sequence[Line]) -> None:
        """Never waits for the disk."""
        if self.path is None:
            return
        with self._change:
            if self._closing:
                raise RuntimeError("the audit is closed")
            self._lines.extend(lines)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fedroute-audit", daemon=True)
                self._thread.start()
            self._change.notify()

    @property
    def waiting(self) -> int:
        """Lines that are not written yet."""
        return len(self._lines)

    @property
    def full(self) -> bool:
        """Whether so many lines wait that nothing more should be answered."""
        return self.waiting > MOST

    def close(self) -> None:
        """Returns once every line is written, or cannot be: `trouble` then says why."""
        with self._change:
            self._closing = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._lines and not self._closing:
                    self._change.wait()
                lines, closing = list(self._lines), self._closing
            if not lines:
                self._forget()
                return
            done = self._written(lines)  # outside the lock: who adds never waits for the disk
            with self._change:
                if done:
                    del self._lines[: len(lines)]
                elif closing:
                    break
                self._change.wait_for(lambda: self._closing, timeout=PAUSE if done else RETRY)

    def _written(self, lines: list[Line]) -> bool:
        assert self.path is not None
        names = ", ".join(COLUMNS)
        marks = ", ".join("?" * len(COLUMNS))
        try:
            self._open = self._open or self._connect(self.path)
            with self._open:
                self._open.executemany(
                    f"INSERT INTO answers ({names}) VALUES ({marks})", map(attrgetter(*COLUMNS), lines)
                )
        except (sqlite3.Error, InputError) as e:
            self.trouble = f"{self.path}: the audit cannot be written ({e})"
            self._forget()
            return False
        self.trouble = ""
        return True

    def _forget(self) -> None:
        if self._open is not None:
            with suppress(sqlite3.Error):
                self._open.close()
        self._open = None

    def _connect(self, path: Path) -> sqlite3.Connection:
        with suppress(OSError):  # SQLite then says what is wrong; its files beside this one get the same mode
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            path.chmod(0o600)
        try:
            connection = sqlite3.connect(path, timeout=5)
            connection.execute("PRAGMA journal_mode=WAL")
            columns = ", ".join(f"{c} {TYPES.get(c, 'TEXT')}" for c in COLUMNS)
            connection.execute(f"CREATE TABLE IF NOT EXISTS answers (id INTEGER PRIMARY KEY, {columns})")
            connection.execute(f"SELECT {', '.join(COLUMNS)} FROM answers LIMIT 1")
        except sqlite3.Error as e:
            raise InputError(
                f"{path}: cannot be used as an audit ({e}); name another file in a folder that can be written"
            ) from None
        return connection


class QueryHash:
    """HMAC-SHA256 of a query's canonical JSON: who has the key can find a query that they know in the audit, and nobody
    can guess one without it. path: of the key; None: nothing is hashed.

    Raises InputError where the key cannot be read or is short."""

    def __init__(self, path: Path | None):
        self._key = b""
        if path is not None:
            try:
                self._key = path.read_bytes().strip()
            except OSError as e:
                raise InputError(f"{path}: the key of the audit cannot be read ({e.strerror})") from None
            if len(self._key) < SHORTEST:
                raise InputError(f"{path}: the key of the audit has {len(self._key)} bytes; give {SHORTEST} or more")

    def __call__(self, query: Any) -> str | None:
        if not self._key:
            return None
        text = json.dumps(query, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def now() -> str:
    """UTC, ISO 8601, to the millisecond."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
