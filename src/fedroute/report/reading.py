"""What a run directory holds, as far as it is there and readable."""

import csv
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedroute.errors import InputError


@dataclass(frozen=True)
class Reading:
    """config: the text of config.yaml; summary: {} where the run has not ended; curve: the lines of metrics.jsonl;
    clients: those of the summary, or the lines of clients.csv; missing: what was looked for and not found, in words."""

    name: str
    config: str = ""
    summary: dict[str, Any] = field(default_factory=dict)
    curve: tuple[dict[str, Any], ...] = ()
    clients: tuple[dict[str, Any], ...] = ()
    missing: tuple[str, ...] = ()


def read(run_dir: Path) -> Reading:
    """Raises InputError where none of a run's files is there."""
    found = {n: _text(run_dir / n) for n in ("config.yaml", "summary.json", "metrics.jsonl", "clients.csv")}
    if all(text is None for text in found.values()):
        raise InputError(f"{run_dir}: no run here: name the folder that --out was given")
    missing = []
    summary = _object(found["summary.json"] or "")
    if not summary:
        missing.append(
            "summary.json is not there or not readable: the run has not ended. What follows is what it has left so "
            f"far; “fedroute resume {run_dir.name}” goes on from there."
        )
    curve = [line for text in (found["metrics.jsonl"] or "").splitlines() if "round" in (line := _object(text))]
    if not curve:
        missing.append("metrics.jsonl has no evaluated round, so there are no curves.")
    if found["config.yaml"] is None:
        missing.append("config.yaml is not there, so the configuration cannot be shown.")
    clients = summary.get("clients") or _ledger(found["clients.csv"] or "")
    return Reading(
        name=run_dir.resolve().name,
        config=found["config.yaml"] or "",
        summary=summary,
        curve=tuple(curve),
        clients=tuple(c for c in clients if isinstance(c, dict)),
        missing=tuple(missing),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:  # cut off by a kill; the caller says that it is missing
        return {}
    return value if isinstance(value, dict) else {}


def _ledger(text: str) -> list[dict[str, Any]]:
    """The lines of clients.csv in the form of summary.json."""
    return [_client(row) for row in csv.DictReader(text.splitlines())]


def _client(row: dict[str, str]) -> dict[str, Any]:
    def number(key: str) -> float | None:
        try:
            return float(row.get(key) or "")
        except ValueError:
            return None

    def pair(low: str, high: str) -> list[float] | None:
        a, b = number(low), number(high)
        return None if a is None or b is None else [a, b]

    return {
        "name": re.sub(r"^'(?=[=+\-@\t\r])", "", row.get("client", "")),  # put there against spreadsheets
        **{k: int(number(k) or 0) for k in ("train", "validation", "test")},
        **{k: number(k) for k in ("personal", "global", "alone", "majority", "difference")},
        "interval": pair("personal_low", "personal_high"),
        "difference_interval": pair("difference_low", "difference_high"),
        "better_off": row.get("better_off") or "n/a",
        "newcomer": row.get("newcomer") == "yes",
        "notes": [n for n in (row.get("notes") or "").split("; ") if n],
    }
