"""The file `left` of a site's folder: it has left the federation for good."""

import datetime
import json
from dataclasses import dataclass
from pathlib import Path

from fedroute.durable import write


@dataclass(frozen=True)
class Left:
    """at: when, ISO 8601 in UTC. heard: whether the hub has heard it."""

    at: str
    heard: bool


def left(folder: Path) -> Left | None:
    """None where the site has not left."""
    try:
        text = (folder / "left").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
        return Left(str(found["at"]), found["heard"] is True)
    except (ValueError, KeyError, TypeError):
        return Left(text.strip(), False)


def leave(folder: Path, heard: bool = False) -> None:
    """From now on it has left; the day on which it did so first stands."""
    before = left(folder)
    at = before.at if before else datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    write(folder / "left", json.dumps({"at": at, "heard": heard or bool(before and before.heard)}) + "\n")


def come_back(folder: Path) -> None:
    (folder / "left").unlink(missing_ok=True)
