"""report.html of a comparison: algorithms as lines, dots with intervals, cost beside accuracy, who is told apart."""

from collections.abc import Sequence
from typing import Any

from fedroute.report.template import render
from fedroute.report.words import Unit, count, duration, listed, size, ticks

FEW = 12  # algorithms up to which every two are shown in one table
MANY = 40  # clients beyond which there is no line for each


def compare_page(found: dict[str, Any], name: str) -> str:
    """found: what compare.json holds; name: of the comparison's folder."""
    return render("compare.html.j2", content(found, name))


def content(found: dict[str, Any], name: str) -> dict[str, Any]:
    """What the template shows, as plain values."""
    import yaml

    from fedroute.compare.table import verdict

    unit, totals = Unit(found["headline"]), found["algorithms"]
    first = found["winner"]["algorithm"] if found["winner"] else None
    training = found["config"]["training"]
    local = f"{training['local_steps']} steps" if training.get("local_steps") else count(
        training.get("local_epochs") or 1, "pass", "passes"
    )  # fmt: skip
    return {
        "title": found["federation"] or name,
        "headline": verdict(found),
        "facts": [
            ("algorithms", len(totals)),
            ("seeds", listed([str(s) for s in found["seeds"]], 8)),
            ("rounds", found["rounds"]),
            ("each round", f"{local} of batches of {training['batch_size']}"),
            ("clients", len(found["clients"])),
            ("folder", name),
            ("fedroute", found["version"] or ""),
        ],
        "unit": unit,
        "part": found["part"],
        "first": first,
        "plot": _plot(totals, unit),
        "table": _table(totals, unit),
        "has": {k: any(t[k] is not None for t in totals) for k in ("alone", "newcomers", "global", "validation")},
        "against": _against(found["pairs"], first, unit),
        "matrix": _matrix(found["pairs"], [t["algorithm"] for t in totals], unit) if len(totals) <= FEW else [],
        "clients": _clients(totals, found["clients"], unit) if len(found["clients"]) <= MANY else [],
        "labels": [t["algorithm"] for t in totals],
        "n_clients": len(found["clients"]),
        "caveats": _caveats(found),
        "missing": found["missing"],
        "runs": _runs(found["rows"], unit),
        "config": yaml.safe_dump(found["config"], sort_keys=False, allow_unicode=True),
    }


def _scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = 0.04 * (high - low) or 0.05
    return low - pad, high + pad


def _at(v: float | None, low: float, high: float) -> float | None:
    return None if v is None else round(100 * (v - low) / (high - low), 2)


def _marks(low: float, high: float, unit: Unit) -> list[dict[str, Any]]:
    return [
        {"at": _at(v, low, high), "words": f"{round(100 * v if unit.percent else v, 6):g}"} for v in ticks(low, high, 6)
    ]


def _plot(totals: Sequence[dict[str, Any]], unit: Unit) -> dict[str, Any]:
    """A line per algorithm: the mean of its clients with the interval over seeds, its worst client, each alone."""
    shown = [t for t in totals if t["mean"] is not None]
    values = [t[k] for t in shown for k in ("mean", "worst", "alone") if t[k] is not None]
    values += [min(1.0, max(0.0, v)) if unit.percent else v for t in shown for v in t["interval"] or ()]
    if not values:
        return {"rows": [], "ticks": []}
    low, high = _scale(values)
    rows = []
    for t in shown:
        at = {k: _at(t[k], low, high) for k in ("mean", "worst", "alone")}
        interval = [max(low, t["interval"][0]), min(high, t["interval"][1])] if t["interval"] else None
        rows.append(
            {
                "name": t["algorithm"],
                "validation": unit(t["validation"]),
                "at": at | {"interval": [_at(v, low, high) for v in interval] if interval else None},
                "words": f"{unit(t['mean'])} {unit.interval(t['interval'])}, worst client {unit(t['worst'])}",
                "mean": unit(t["mean"]),
                "cost": f"{_seconds(t['seconds'])}, {size((t['up_bytes'] or 0) + (t['down_bytes'] or 0))}",
            }
        )
    return {"rows": rows, "ticks": _marks(low, high, unit)}


def _table(totals: Sequence[dict[str, Any]], unit: Unit) -> list[dict[str, Any]]:
    slowest = max([t["seconds"] or 0 for t in totals] + [1e-9])
    heaviest = max([(t["up_bytes"] or 0) + (t["down_bytes"] or 0) for t in totals] + [1])
    return [
        {k: unit.number(t[k]) for k in ("validation", "weighted", "worst", "alone", "global", "newcomers")}
        | {
            "name": t["algorithm"],
            "options": ", ".join(f"{k} {_plain(v)}" for k, v in t["options"].items() if v not in ([], None)),
            "mean": unit.number(t["mean"]),
            "interval": unit.interval(t["interval"]),
            "better_off": t["better_off"],
            "seconds": _seconds(t["seconds"]),
            "seconds_width": round(100 * (t["seconds"] or 0) / slowest, 1),
            "up": size(t["up_bytes"] or 0),
            "down": size(t["down_bytes"] or 0),
            "bytes_width": round(100 * ((t["up_bytes"] or 0) + (t["down_bytes"] or 0)) / heaviest, 1),
        }
        for t in totals
    ]


def _against(pairs: Sequence[dict[str, Any]], first: str | None, unit: Unit) -> dict[str, Any]:
    """Every other algorithm minus the first, on a scale with zero on it."""
    mine = [_turned(p, first) for p in pairs if first in (p["a"], p["b"])]
    if not mine:
        return {"rows": [], "ticks": [], "zero": None}
    low, high = _scale([0.0, *(v for p in mine for v in (p["difference"], *(p["interval"] or ())))])
    rows = []
    for p in mine:
        better = p["better"] == p["b"] if p["better"] else None
        chip = {True: ("yes", "▲ better"), False: ("no", "▼ worse"), None: ("unclear", "· not told apart")}[better]
        rows.append(
            {
                "name": p["b"],
                "at": _at(p["difference"], low, high),
                "interval": [_at(v, low, high) for v in p["interval"]] if p["interval"] else None,
                "words": f"{unit.gain(p['difference'])} {unit.interval(p['interval'], True)}",
                "gain": unit.gain(p["difference"]),
                "chip": chip,
            }
        )
    return {"rows": rows, "ticks": _marks(low, high, unit), "zero": _at(0.0, low, high)}


def _turned(pair: dict[str, Any], first: str | None) -> dict[str, Any]:
    """The pair as b minus a with a the first."""
    if pair["b"] == first:
        return pair | {"a": pair["b"], "b": pair["a"]}
    interval = pair["interval"]
    return pair | {"difference": -pair["difference"], "interval": [-interval[1], -interval[0]] if interval else None}


def _matrix(pairs: Sequence[dict[str, Any]], labels: Sequence[str], unit: Unit) -> list[dict[str, Any]]:
    """The line's algorithm minus the column's."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for p in pairs:
        for a, sign in ((p["a"], 1), (p["b"], -1)):
            style = "" if p["better"] is None else "yes" if p["better"] == a else "no"
            key = (p["a"], p["b"]) if sign == 1 else (p["b"], p["a"])
            cells[key] = {"words": unit.number(sign * p["difference"], True), "style": style}
    blank = {"words": "", "style": ""}
    return [{"name": a, "cells": [cells.get((a, b), blank) for b in labels]} for a in labels]


def _clients(totals: Sequence[dict[str, Any]], names: Sequence[str], unit: Unit) -> list[dict[str, Any]]:
    """A line per client: its mean over seeds with each algorithm; the best is marked, without a claim."""
    lines = []
    for name in names:
        values = [t["clients"].get(name) for t in totals]
        known = [v for v in values if v is not None]
        best = (max(known) if unit.higher else min(known)) if known else None
        cells = [{"words": unit.number(v), "best": v is not None and v == best} for v in values]
        lines.append({"name": name, "cells": cells})
    return lines


def _runs(rows: Sequence[dict[str, Any]], unit: Unit) -> list[dict[str, Any]]:
    return [
        {
            "algorithm": r["algorithm"],
            "seed": r["seed"],
            "link": f"{r['folder']}/report.html",
            "mean": unit.number(r["mean"]),
            "worst": unit.number(r["worst"]),
            "worst_client": r["worst_client"] or "",
            "seconds": _seconds(r["seconds"]),
            "engine": r["engine"] or "",
            "refused": r["quarantined"] + r["void_rounds"],
        }
        for r in rows
    ]


def _caveats(found: dict[str, Any]) -> list[str]:
    seeds, totals = len(found["seeds"]), found["algorithms"]
    said = []
    if seeds == 1:
        said.append("One seed: nothing is known of how much another would change, so no two algorithms are told apart.")
    else:
        said.append(
            f"Intervals are at 95 % over {seeds} seeds. Each seed draws its own split of the same rows, so that seeds "
            "are not independent; the intervals are widened for that (Nadeau and Bengio 2003)."
        )
        said.append(
            "Two algorithms are called different only where that holds after correcting for how many are compared "
            "(Holm 1979). Not told apart does not mean equal."
        )
    if seeds < 5:
        said.append(
            f"With {count(seeds, 'seed')} only large differences can be told apart: --seeds 10 adds to these runs."
        )
    said.append(
        "The order is that of the validation rows. Test rows were looked at once in each run; choosing by their "
        "numbers would make them too good."
    )
    adapting = [t["algorithm"] for t in totals if t["adapt_epochs"]]
    if adapting:
        said.append(
            f"{listed(adapting)}: each client makes further passes over its own rows at the end, and its model trained "
            "alone makes as many."
        )
    if refused := found["refused"]:
        which = listed([f"{r['algorithm']} with seed {r['seed']}" for r in refused])
        said.append(f"Answers of clients were refused or rounds were void in {which}: their log.txt says why.")
    said.append("Seconds are those of training on the machine at hand, several runs at a time, without evaluation.")
    return said


def _seconds(value: float | None) -> str:
    return "n/a" if value is None else duration(value)


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
