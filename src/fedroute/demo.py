"""The main job on bundled real data: one model for all, one each with a part that stays home, and each client alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.durable import taking
from fedroute.errors import InputError
from fedroute.jobs import Log, Progress, start

if TYPE_CHECKING:
    from fedroute.run import Run

GLOBAL = "one_model"  # the folder of the run that trains one model for all, inside that of the personalised run


def config(algorithm: str) -> dict[str, Any]:
    return {
        "federation": {"source": "bundled", "name": "digits"},
        "model": {"name": "cnn", "channels": [8, 16], "hidden": 64},
        "algorithm": {"name": algorithm},
        "training": {
            "rounds": 25, "local_epochs": 1, "batch_size": 16, "lr": 0.05, "momentum": 0.9, "evaluate_every": 1,
        },
        "router": {"kind": "lda", "random_features": 0} if algorithm == "fedper" else None,
        "seed": 0,
    }  # fmt: skip


def demo(out: Path, *, progress: Progress, log: Log) -> tuple["Run", "Run"]:
    """(the run with one global model, the run whose clients keep their own head). The second is a run directory at
    `out`, the first one inside it. An earlier demo there is replaced.

    Raises InputError where `out` holds a run that is no demo."""
    from fedroute.config import from_dict

    with taking(out):
        other = (out / "summary.json").exists() and not (out / GLOBAL).is_dir()
    if other:
        raise InputError(f"{out}: holds a run that is no demo: name another folder with --out")
    log("1 of 2: fedavg, one model for all six offices; then each office alone")
    one = start(from_dict(config("fedavg")), out / GLOBAL, force=True, progress=progress, log=log)
    log("2 of 2: fedper, the last layer never leaves its office; then each office alone")
    own = start(from_dict(config("fedper")), out, force=True, progress=progress, log=log)
    return one, own


def told(one: "Run", own: "Run", out: Path) -> str:
    """What the demo did and found, for a terminal."""
    single, personal = one.ledger.aggregates("accuracy"), own.ledger.aggregates("accuracy")
    rows = [
        ("one model for all (fedavg)", single["global"]),
        ("own last layer (fedper)", personal["personal"]),
        ("each office alone", personal["alone"]),
    ]
    lines = [f"  {name:<28}{a['mean']:.3f}   worst {a['worst']:.3f} ({a['worst_client']})" for name, a in rows]
    counts = own.ledger.verdicts()
    return "\n".join(
        [
            "Six offices scan handwritten digits, each with its own scanner and its own mix of digits. No row left its",
            "office. Mean accuracy of the offices on their own test rows, every model with the same number of steps:",
            *lines,
            f"Better off with their own last layer than alone: {counts['yes']} yes, {counts['no']} no, "
            f"{counts['unclear']} unclear (intervals are for few rows, and wide).",
            *_routed(single, own),
            f"The other run, with one model for all, is in {out / GLOBAL}.",
            "",
        ]
    )


def _routed(single: dict[str, Any], own: "Run") -> list[str]:
    """What a scan from outside gets that does not say which office it is from."""
    if not own.routing:
        return []
    shares, rule = own.routing["system_accuracy"], own.routing["rule"]
    names = {
        f"sent to an office ({rule})": shares[rule],
        "one model for all (fedavg)": single["global"]["weighted"],
        "majority of all offices": shares["vote"],
        "any office": shares["random"],
    }
    return [
        "The same test scans, none saying which office it is from; the router names the right office for "
        f"{own.routing['client_accuracy']:.0%}:",
        *(f"  {name:<28}{share:.3f}" for name, share in names.items()),
    ]
