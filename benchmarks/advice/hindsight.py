"""What each method makes of each federation of the suite: one JSON file a federation, gone on with where it stopped."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedroute
from benchmarks.advice.contenders import contenders
from benchmarks.advice.federations import Case
from fedroute.data.federation import Federation
from fedroute.durable import write
from fedroute.run import Run

RESULTS = Path(__file__).parent / "results"
ADVICE = RESULTS / "advice"
Right = np.ndarray[Any, np.dtype[np.bool_]]  # one for each row: whether the answer is right


def measure(case: Case, half: str, seeds: Iterable[int], say: Callable[[str], None], also: bool = True) -> None:
    """Runs what is not in the file of the case yet, and writes it after each run. Of each run the file has which of the
    validation and test rows of each client were answered right, by the client's own model."""
    path = RESULTS / f"{case.name}.json"
    path.parent.mkdir(exist_ok=True)
    found = read(path) if path.exists() else _empty(case, half)
    for seed in seeds:
        part = found["seeds"].setdefault(str(seed), {"runs": {}})
        todo = {k: c for k, c in contenders(case.model["name"], also).items() if k not in part["runs"]}
        if not todo:
            continue
        federation = case.make(seed)
        sizes = zip(*(federation.sizes(p).tolist() for p in ("train", "validation", "test")), strict=True)
        part["clients"] = [[name, *n] for name, n in zip(federation.clients, sizes, strict=True)]
        engine = "sequential"  # the fastest for so few rows, measured once
        for label, contender in todo.items():
            before = time.perf_counter()
            run = fedroute.fit(
                federation,
                dict(case.model),
                dict(contender.config),
                seed=seed,
                engine=engine,
                log=lambda text: None,
                **(dict(case.training) | dict(contender.training) | {"alone": False, "evaluate_every": 10**6}),
            )
            part["runs"][label] = {
                "seconds": round(time.perf_counter() - before, 2),
                "up_bytes": run.state.up_bytes,
                **{p: [packed(right(run, federation, i, p)) for i in range(len(federation.clients))] for p in PARTS},
            }
            write(path, json.dumps(found) + "\n")
        say(f"{case.name}, seed {seed}: {sum(part['runs'][k]['seconds'] for k in todo):.0f} s for {len(todo)} runs")


PARTS = ("validation", "test")


def ask(case: Case, seeds: Iterable[int], say: Callable[[str], None]) -> None:
    """Writes what is advised for the case as each seed draws it: a function of its training and validation rows."""
    from fedroute.advise.rules import advise
    from fedroute.profile.profile import profile

    found = {}
    for seed in seeds:
        row = profile(case.make(seed), seed).row()
        a = advise(row, case.model, case.model["name"].endswith("_bn"))
        skew = {k: [v["strength"], v["verdict"]] for k, v in row["skew"].items()}
        about: dict[str, Any] = {
            "label": a.label,
            "runner_up": a.runner_up,
            "why": list(a.why),
            "leave_out": [c.client for c in a.leave_out],
        }
        found[str(seed)] = about | {"top": row["top"], "parts": row["parts"], "skew": skew}
    ADVICE.mkdir(parents=True, exist_ok=True)
    write(ADVICE / f"{case.name}.json", json.dumps(found, indent=1) + "\n")
    say(f"{case.name}: {', '.join(dict.fromkeys(a['label'] for a in found.values()))}")


def right(run: Run, federation: Federation, client: int, part: str) -> Right:
    """(rows,) whether the client's own model is right."""
    rows = getattr(federation, part)[client]
    if not len(rows):
        return np.zeros(0, dtype=bool)
    x = federation.x.index_select(0, rows)
    answers: Right = (run.predict(client, x).argmax(1) == federation.y[rows]).numpy()
    return answers


def packed(answers: Right) -> str:
    """As hexadecimal digits."""
    return np.packbits(answers).tobytes().hex()


def unpacked(text: str, rows: int) -> Right:
    found: Right = np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8), count=rows).astype(bool)
    return found


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _empty(case: Case, half: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    about = {"name": case.name, "kind": case.kind, "half": half}
    return {**about, "model": dict(case.model), "training": dict(case.training), "seeds": {}}
