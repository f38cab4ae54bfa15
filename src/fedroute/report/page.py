"""The page: every section of the report from what a run has left."""

import math
from collections.abc import Sequence
from typing import Any

from fedroute.report.caveats import caveats
from fedroute.report.ledger_view import KINDS, MANY, bar, dots, sketch, table, totals
from fedroute.report.pictures import Series, curve, histogram, mix
from fedroute.report.reading import Reading
from fedroute.report.routing_view import content as routing_content
from fedroute.report.template import render
from fedroute.report.words import Unit, count, duration, headline, listed, size, whole

METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1, over the classes present in a client's part",
    "auc": "AUC",
    "pr_auc": "PR-AUC (average precision)",
    "recall_at_fpr": "recall at 1 % false positives, threshold read off the same rows",
    "log_loss": "log-loss",
    "ece": "calibration error, 15 bins",
    "loss": "the task's loss",
}
LOWER = ("log_loss", "ece", "loss")


def page(run: Reading) -> str:
    """The whole of report.html."""
    return render("report.html.j2", content(run))


def content(run: Reading) -> dict[str, Any]:
    """What the template shows, as plain values."""
    s, clients = run.summary, run.clients
    unit = Unit(s.get("headline") or "accuracy")
    measured = s.get("measured") or {}
    part = measured.get("part", "test")
    head = s.get("accuracy") if unit.metric == "accuracy" else (s.get("metrics") or {}).get(unit.metric)
    head = head or {}
    joined, new = ([c for c in clients if bool(c.get("newcomer")) == late] for late in (False, True))
    worst = (head.get("personal") or {}).get("worst_client") if len(joined) > 1 else None
    rows = sum(int(c.get(part) or 0) for c in clients)
    one_line = all(e.get("personal") and e.get("personal") == e.get("global") for e in run.curve)
    many = len(clients) > MANY
    return {
        "run": run,
        "title": _title(run),
        "facts": _facts(run),
        "headline": headline(joined, rows),
        "bar": bar(joined) if joined else [],
        "tiles": _tiles(head, unit) + _newcomers(s, unit, len(new)),
        "new": {"n": len(new), "words": headline(new, sum(int(c.get(part) or 0) for c in new)), "bar": bar(new)},
        "metric": METRICS.get(unit.metric, unit.metric),
        "unit": unit,
        "part": part,
        "rows": count(rows, "row"),
        "many": many,
        "dots": dots(clients, unit, part, worst) if not many else {"rows": [], "ticks": []},
        "sketch": sketch(clients, unit) if many else {"picture": "", "ends": []},
        "table": table(clients, unit, worst),
        "totals": (totals(head, unit) if head else []) + _newcomer_totals(s, unit),
        "has": {k: any(c.get(k) not in (None, []) for c in clients) for k in (*KINDS, "majority", "notes")},
        "metrics": _metrics(s),
        "one_model": _one_model(clients),
        "one_line": one_line and bool(run.curve),
        "routing": routing_content(s.get("routing"), _routed(s, clients)),
        "curves": _curves(run.curve, one_line),
        "data": _data(s.get("federation") or {}, clients),
        "manifest": _manifest(s),
        "traffic": s.get("traffic") or {},
        "rounds": s.get("rounds") or 0,
        "size": size,
        "quarantined": _quarantined(s),
        "void": s.get("void_rounds") or [],
        "measured": measured,
        "kinds": KINDS,
        "caveats": caveats(s, clients, unit),
        "notes": [*(s.get("notes") or [])],
        "time": _time(s.get("time") or {}),
        "every": s.get("evaluate_every"),
        "hashes": s.get("weights_sha256") or {},
    }


def _routed(s: dict[str, Any], clients: Sequence[dict[str, Any]]) -> list[str]:
    """The clients of the router, in its order."""
    return list((s.get("routing") or {}).get("clients") or [c["name"] for c in clients])


def _name(algorithm: Any) -> str:
    if isinstance(algorithm, dict):
        options = ", ".join(f"{k} {_plain(v)}" for k, v in algorithm.items() if k != "name" and v not in ((), [], None))
        return f"{algorithm.get('name', '')}{f' ({options})' if options else ''}"
    return str(algorithm or "")


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _title(run: Reading) -> str:
    name = (run.summary.get("federation") or {}).get("name")
    return f"{name or run.name}"


def _facts(run: Reading) -> list[tuple[str, str]]:
    s = run.summary
    facts = [
        ("algorithm", _name(s.get("algorithm"))),
        ("rounds", str(s.get("rounds") or (run.curve[-1]["round"] if run.curve else ""))),
        ("clients", str(len(run.clients) or "")),
        ("seed", "" if s.get("seed") is None else str(s["seed"])),
        ("engine", str(s.get("engine") or "")),
        ("run", run.name),
        ("fedroute", str(s.get("version") or "")),
    ]
    return [(k, v) for k, v in facts if v]


def _tiles(head: dict[str, Any], unit: Unit) -> list[dict[str, str]]:
    p, g, a = (head.get(k) or {} for k in KINDS)
    if p.get("mean") is None:
        return []
    tiles = [{"label": "personal, mean", "value": unit(p["mean"]), "note": "", "kind": "personal"}]
    if a.get("mean") is not None:
        d = p["mean"] - a["mean"]
        tiles[0]["note"] = f"{unit.gain(d)} against alone"
        tiles.append({"label": "alone, mean", "value": unit(a["mean"]), "note": "at the same budget", "kind": "alone"})
    if g.get("mean") is not None:
        tiles.insert(
            1, {"label": "global, mean", "value": unit(g["mean"]), "note": "one model for all", "kind": "global"}
        )
    tiles.append({"label": "worst client", "value": unit(p["worst"]), "note": str(p["worst_client"]), "kind": "worst"})
    tiles.append(
        {
            "label": "worst tenth",
            "value": unit(p["worst_tenth"]),
            "note": f"spread {unit.gain(p['std']).lstrip('+')}",
            "kind": "tenth",
        }
    )
    return tiles


def _newcomer_head(s: dict[str, Any], unit: Unit) -> dict[str, Any]:
    """kind -> the newcomers' aggregates in the headline metric; {} where there are none."""
    if unit.metric == "accuracy":
        return s.get("accuracy_newcomers") or {}
    return (s.get("metrics_newcomers") or {}).get(unit.metric) or {}


def _newcomers(s: dict[str, Any], unit: Unit, n: int) -> list[dict[str, str]]:
    mean = (_newcomer_head(s, unit).get("personal") or {}).get("mean")
    tile = {"label": "newcomers, mean", "value": unit(mean), "note": count(n, "client") + " not trained with"}
    return [tile | {"kind": "newcomers"}] if mean is not None else []


def _newcomer_totals(s: dict[str, Any], unit: Unit) -> list[tuple[str, list[str]]]:
    of = _newcomer_head(s, unit)
    return [("mean of newcomers", [unit((of.get(k) or {}).get("mean")) for k in KINDS])] if of else []


def _metrics(s: dict[str, Any]) -> list[dict[str, Any]]:
    """Every metric's mean and worst, with how many clients it is not defined for."""
    every = {"accuracy": s.get("accuracy") or {}} | (s.get("metrics") or {})
    lines = []
    for name, of in every.items():
        unit = Unit(name)
        cells = [(unit((of.get(k) or {}).get("mean")), unit((of.get(k) or {}).get("worst"))) for k in KINDS]
        undefined = (of.get("personal") or {}).get("undefined") or 0
        if any(mean != "n/a" for mean, _ in cells):
            lines.append(
                {"name": METRICS.get(name, name), "cells": cells, "undefined": undefined, "lower": name in LOWER}
            )
    return lines


def _one_model(clients: Sequence[dict[str, Any]]) -> bool:
    """Whether every client's personal model answers as the global one: one curve then stands for both."""
    pairs = [(c.get("personal"), c.get("global"), (c.get("metrics") or {})) for c in clients]
    return bool(pairs) and all(p == g and m.get("personal") == m.get("global") for p, g, m in pairs)


def _curves(lines: Sequence[dict[str, Any]], one_line: bool) -> list[dict[str, Any]]:
    """Pictures over rounds: the headline metric on validation rows, the loss there, the training loss."""
    kinds = ["personal"] if one_line else ["personal", "global"]
    figures = []
    part = next((str(e["part"]) for e in lines if e.get("part")), "validation")
    for metric in ("accuracy", "pr_auc", "loss"):
        unit = Unit(metric)
        series = []
        for kind in kinds:
            name = "personal = global" if one_line else kind
            for key, style, words_of in ((metric, kind, "mean"), (f"worst_{metric}", f"{kind} worst", "worst client")):
                points = tuple((float(e["round"]), _finite((e.get(kind) or {}).get(key))) for e in lines)
                if any(v is not None for _, v in points):
                    series.append(Series(f"{name}, {words_of}", style, points))
        if series:
            title = f"{METRICS[metric].split(' (')[0]} on {part} rows".replace("the task's loss", "loss").replace(
                "accuracy", "Accuracy", 1
            )
            bounds = (0.0, 1.0) if metric != "loss" else None
            figures.append(_figure(title[0].upper() + title[1:], series, unit, bounds))
    points = tuple((float(e["round"]), _finite(e.get("train_loss"))) for e in lines)
    if any(v is not None for _, v in points):
        figures.append(
            _figure(
                "Training loss",
                [Series("training loss", "train", points)],
                Unit("loss"),
                None,
            )
        )
    return figures


def _figure(title: str, series: Sequence[Series], unit: Unit, bounds: tuple[float, float] | None) -> dict[str, Any]:
    last = [(s.name, s.style, unit(next((v for _, v in reversed(s.points) if v is not None), None))) for s in series]
    words_of = "; ".join(f"{name}: {value} at the end" for name, _, value in last)

    def show(v: float) -> str:
        return f"{100 * v:.3g}\N{NO-BREAK SPACE}%" if unit.percent else f"{v:.3g}"

    return {"title": title, "picture": curve(f"{title}. {words_of}", series, show, bounds), "legend": last}


def _finite(value: Any) -> float | None:
    ok = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if ok else None


def _data(federation: dict[str, Any], clients: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The label mix and the sizes, a line per client, or of many clients their distribution."""
    sizes = federation.get("sizes") or {
        c["name"]: {p: c.get(p) or 0 for p in ("train", "validation", "test")} for c in clients
    }
    counts, labels = federation.get("label_counts") or {}, federation.get("labels") or []
    total = {name: sum(of.values()) for name, of in sizes.items()}
    found: dict[str, Any] = {
        "labels": labels,
        "rows": [],
        "picture": "",
        "mix": "",
        "n": len(sizes),
        "few_labels": len(labels) <= 12,
    }
    found |= {"all": whole(sum(total.values())), "notes": [*(federation.get("notes") or [])]}
    if not sizes:
        return found
    if len(sizes) <= MANY:
        top = max([*total.values(), 1])
        for name, of in sizes.items():
            mine = counts.get(name) or []
            n = max(sum(mine), 1)
            cells = [{"n": c, "share": round(c / n, 4)} for c in mine]
            bars = [{"part": p, "n": k, "width": round(100 * k / top, 2)} for p, k in of.items()]
            found["rows"].append({"name": name, "cells": cells, "bars": bars, "total": whole(total[name])})
        return found
    found["picture"] = histogram(list(total.values()), whole, f"Rows of {len(sizes)} clients")
    ordered = sorted(total.values())
    found["span"] = [whole(v) for v in (ordered[0], ordered[len(ordered) // 2], ordered[-1])]
    shares = [[c / max(sum(of), 1) for c in of] for of in counts.values() if of]
    if shares and labels:
        shares.sort(key=lambda p: (p.index(max(p)), -max(p)))
        found["mix"] = mix(shares, (37, 99, 235))
    return found


def _manifest(s: dict[str, Any]) -> dict[str, Any]:
    entries = [e for e in s.get("manifest") or [] if isinstance(e, dict)]
    out = sum(e.get("bytes") or 0 for e in entries if e.get("leaves"))
    kept = sum(e.get("bytes") or 0 for e in entries if not e.get("leaves"))
    top = max([e.get("bytes") or 0 for e in entries] + [1])
    rows = [
        e | {"words": size(e.get("bytes") or 0), "width": round(100 * (e.get("bytes") or 0) / top, 2)} for e in entries
    ]
    stays = sum(not e.get("leaves") for e in entries)
    return {
        "rows": rows,
        "out": size(out),
        "kept": size(kept),
        "leave": len(entries) - stays,
        "stay": stays,
    }


def _quarantined(s: dict[str, Any]) -> list[dict[str, Any]]:
    """Refused answers, those of one client for one reason together."""
    found: dict[tuple[str, str], list[int]] = {}
    for q in s.get("quarantined") or []:
        found.setdefault((str(q.get("client")), str(q.get("reason"))), []).append(int(q.get("round") or 0))
    return [
        {"client": c, "reason": r, "rounds": listed(list(map(str, rounds)), 6), "n": len(rounds)}
        for (c, r), rounds in found.items()
    ]


def _time(time: dict[str, Any]) -> list[tuple[str, str]]:
    names = {
        "train_s": "training",
        "evaluate_s": "evaluating on validation rows",
        "alone_s": "training every client alone",
        "ledger_s": "the ledger",
        "checkpoint_s": "checkpoints",
    }
    found = [(w, duration(float(time[k]))) for k, w in names.items() if time.get(k) is not None]
    if time.get("samples_per_s"):
        found.append(("training speed", f"{whole(time['samples_per_s'])} rows a second"))
    return found
