"""The sites that have left for good, as the hub keeps them."""

import datetime
import json
import threading
from collections.abc import Iterable
from pathlib import Path

from fedroute.durable import write


class Departed:
    """Names, and when the hub heard it; from any thread. file: where they are kept; before: names known otherwise."""

    def __init__(self, file: Path, before: Iterable[str] = ()):
        self.file, self._lock = file, threading.Lock()
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else dict.fromkeys(before, "")
        self._when: dict[str, str] = dict(known)

    def names(self) -> frozenset[str]:
        return frozenset(self._when)

    def add(self, name: str) -> bool:
        """Whether that is new."""
        with self._lock:
            if name in self._when:
                return False
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            self._keep(self._when | {name: now})
            return True

    def back(self, name: str) -> None:
        """It has been let in again."""
        with self._lock:
            if name in self._when:
                self._keep({k: v for k, v in self._when.items() if k != name})

    def _keep(self, when: dict[str, str]) -> None:
        self._when = when
        write(self.file, json.dumps(when, ensure_ascii=False, indent=1) + "\n")
