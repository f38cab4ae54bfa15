"""Run directories made from real ledgers of planted models."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedroute.evaluate.curve import curve_point
from fedroute.evaluate.describe import describe
from fedroute.evaluate.ledger import Ledger, make_ledger
from fedroute.run_directory import RunDirectory
from tests.evaluate.planted import federation, lookup_task, says


def ledger_of(names: Sequence[str], rows: int = 20, *, with_alone: bool = True, with_global: bool = True) -> Ledger:
    """Client i has labels i % 3. Personal: right. Global: always class 0. Alone: right at every second client."""
    labels = [i % 3 for i in range(len(names))]
    f = federation([[k] * rows for k in labels], names=names, labels=("cat", "dog", "<b>eel</b>"))
    right, wrong, zero = says(f, f.y), says(f, (f.y + 1) % 3), says(f, f.y * 0)
    return make_ledger(
        f,
        lookup_task(f),
        personal=lambda i: right,
        global_w=zero if with_global else None,
        alone=(lambda i: wrong if i % 2 else right) if with_alone else None,
        seed=0,
    )


def run_dir(path: Path, names: Sequence[str], **kind: Any) -> Path:
    """A finished run of these clients in `path`."""
    path.mkdir(parents=True, exist_ok=True)
    ledger = ledger_of(names, **kind)
    f = federation([[i % 3] * 20 for i in range(len(names))], names=names, labels=("cat", "dog", "<b>eel</b>"))
    right, zero = says(f, f.y), says(f, f.y * 0)
    directory = RunDirectory(path)
    directory.write_ledger(ledger.rows())
    for r in range(1, 6):
        point = curve_point(f, lookup_task(f), lambda i: right, zero, part="train")
        directory.append_metrics({"round": r, "train_loss": 1 / r, **point, "part": "validation"})
    directory.write_summary(
        {
            "schema": 1,
            "algorithm": {"name": "pfedme", "lam": 15.0, "private": ["norm"]},
            "rounds": 5,
            "seed": 7,
            "engine": "sequential",
            **ledger.summary(),
            "federation": describe(f),
            "traffic": {"up_bytes": 4000, "down_bytes": 8000},
            "manifest": [
                {"tensor": "body.weight", "role": "body", "leaves": True, "bytes": 2048},
                {"tensor": "bn.running_mean", "role": "norm", "leaves": False, "bytes": 64},
            ],
            "quarantined": [{"round": r, "client": names[0], "reason": "body.weight has NaN or Inf"} for r in (1, 3)],
            "void_rounds": [2],
            "time": {"train_s": 3.5, "evaluate_s": 0.5, "samples_per_s": 12345.6},
            "weights_sha256": {"server": "ab" * 32},
            "evaluate_every": 1,
            "notes": ["2 rows without a label were left out"],
        }
    )
    (path / "config.yaml").write_text("seed: 7  # <i>not markup</i>\n", encoding="utf-8")
    return path


def summary(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    return found
