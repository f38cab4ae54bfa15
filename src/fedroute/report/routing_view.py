"""Routing as the page and the terminal show it: what every rule is worth, who is taken for whom, whether it pays."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fedroute.report.pictures import Series, curve, mix
from fedroute.report.words import Unit, count, size, ticks

MANY = 40  # clients beyond which the confusion is a picture and no table
RULES = {
    "density": "the likeliest client, where all send equally often",
    "posterior": "the likeliest client",
    "arrival": "the likeliest client, by the stated arrivals",
    "consensus": "the client whose answer the mixture likes best",
    "joint": "the client whose answer the cells like best",
    "mixture": "all answers, weighted",
    "top_mixture": "the answers of the few likeliest, weighted",
    "consensus_global": "consensus, the global model a voice",
    "mixture_global": "mixture, the global model a voice",
    "top_mixture_global": "the few likeliest, the global model a voice",
    "vote": "majority of all clients",
    "mean": "mean of all clients",
    "confidence": "whoever is surest",
    "best_single": "always the one best client",
    "random": "any client",
    "global": "the global model, no routing",
    "oracle": "the client whose query it is: nobody knows that",
}
BASELINES = ("vote", "mean", "confidence", "best_single", "random", "global")
_ACCURACY = Unit("accuracy")


def verdict(routing: Mapping[str, Any]) -> str:
    """Whether routing pays, in a few sentences: the rule in use against the global model, the best single client and
    the best of all that need no router, on the same queries."""
    rule, shares, rows = routing.get("rule"), routing.get("system_accuracy") or {}, routing.get("queries") or 0
    mine = shares.get(rule)
    if mine is None or not rows:
        return "There are no test rows to say whether routing pays."
    against, baseline = routing.get("against") or {}, routing.get("baseline")
    begin = {
        "yes": "Routing pays here",
        "no": "Routing does not pay here",
    }.get(str(routing.get("pays")), "It is not shown that routing pays here")
    said = f"{begin}: {rule} answers {_ACCURACY(mine)} of {count(rows, 'outside query', 'outside queries')} rightly"
    beside = [f"{name} {_ACCURACY(shares[key])}{_gap(against.get(key))}" for key, name in _rivals(routing, baseline)]
    said += f"; {', '.join(beside)}." if beside else "."
    if "global" not in shares:
        said += " This algorithm has no global model to compare with; fedavg has one."
    if routing.get("pays") == "no" and baseline:
        said += f" Take {_named(routing, baseline)} instead."
    if (best := shares.get("oracle")) is not None and best > mine:
        said += f" If each query were known to be whose it is, {_ACCURACY(best)} would be right."
    return said


def _rivals(routing: Mapping[str, Any], baseline: str | None) -> list[tuple[str, str]]:
    shares = routing.get("system_accuracy") or {}
    keys = [k for k in dict.fromkeys(("global", "best_single", baseline)) if k in shares]
    return [(str(k), _named(routing, str(k))) for k in keys]


def _named(routing: Mapping[str, Any], key: str) -> str:
    best = routing.get("best_single")
    names = {"global": "the global model", "best_single": f"the best single client ({best})" if best else "one client"}
    return names.get(key, f"{key} ({RULES.get(key, key)})")


def _gap(pair: Sequence[float] | None) -> str:
    return f" ({_ACCURACY.gain(pair[0])} {_ACCURACY.interval(pair[1:], True)})" if pair else ""


def content(routing: Mapping[str, Any] | None, clients: Sequence[str]) -> dict[str, Any] | None:
    """What the template shows; None where the run has no router."""
    if not routing:
        return None
    chosen = routing.get("chosen") or {}
    return {
        "verdict": verdict(routing),
        "pays": {"yes": ("yes", "▲ pays"), "no": ("no", "▼ does not pay")}.get(
            str(routing.get("pays")), ("unclear", "· not shown")
        ),
        "plot": _plot(routing),
        "rule": routing.get("rule"),
        "client_accuracy": _ACCURACY(routing.get("client_accuracy")),
        "facts": _facts(routing, chosen),
        "tried": _tried(routing.get("tried") or ()),
        "confusion": _confusion(routing.get("confusion"), clients),
        "confusion_of": routing.get("confusion_of"),
        "coverage": _coverage(routing.get("coverage") or {}),
        "abstained": _abstained(routing.get("abstain")),
        "queries": routing.get("queries") or 0,
    }


def _facts(routing: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[tuple[str, str]]:
    cost = routing.get("cost") or {}
    facts = [
        ("fit", str(chosen.get("kind") or "")),
        ("reads", str(chosen.get("input") or "")),
        ("random features", str(chosen.get("random_features") or "")),
        ("rule", str(routing.get("rule") or "")),
        ("names the right client", _ACCURACY(routing.get("client_accuracy"))),
        ("a query asks", count(int(cost["asked"]), "client") if "asked" in cost else ""),
        ("bytes of a query", str(cost.get("bytes") or "")),
        ("a client uploads", size(chosen["upload_bytes"]) if chosen.get("upload_bytes") else ""),
    ]
    return [(k, v) for k, v in facts if v]


def _plot(routing: Mapping[str, Any]) -> dict[str, Any]:
    """A line for each rule and baseline: all queries alike with the interval, and the mean of clients."""
    shares, macro = routing.get("system_accuracy") or {}, routing.get("macro") or {}
    intervals = routing.get("intervals") or {}
    known = {r: v for r, v in shares.items() if v is not None}
    if not known:
        return {"rows": [], "ticks": []}
    values = [v for r, v in known.items() for v in (v, *(intervals.get(r) or ()), macro.get(r, v)) if v is not None]
    low, high = min(values), max(values)
    pad = 0.04 * (high - low) or 0.05
    low, high = low - pad, high + pad

    def at(v: float | None) -> float | None:
        return None if v is None else round(100 * (v - low) / (high - low), 2)

    rows = [
        {
            "name": r,
            "says": RULES.get(r, ""),
            "kind": "oracle" if r == "oracle" else "baseline" if r in BASELINES else "rule",
            "used": r == routing.get("rule"),
            "at": at(v),
            "macro_at": at(macro.get(r)),
            "interval": [at(e) for e in intervals[r]] if intervals.get(r) else None,
            "words": f"{_ACCURACY(v)} {_ACCURACY.interval(intervals.get(r))}",
            "macro": _ACCURACY.number(macro.get(r)),
            "micro": _ACCURACY.number(v),
        }
        for r, v in sorted(known.items(), key=lambda e: (-e[1], e[0]))
    ]
    return {"rows": rows, "ticks": [{"at": at(v), "words": f"{round(100 * v, 6):g}"} for v in ticks(low, high, 6)]}


def _tried(tried: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {k: str(t.get(k) or "") for k in ("kind", "input", "random_features", "rule")}
        | {"validation": _ACCURACY(t.get("validation")), "client": _ACCURACY(t.get("client_accuracy"))}
        for t in tried
    ]


def _confusion(table: Sequence[Sequence[int]] | None, clients: Sequence[str]) -> dict[str, Any] | None:
    """Owner by client asked: a table, or of many clients a picture."""
    if not table or len(table) != len(clients) or not any(map(sum, table)):
        return None
    shares = [[n / max(1, sum(row)) for n in row] for row in table]
    if len(clients) > MANY:
        columns = [list(c) for c in zip(*shares, strict=True)]
        return {"picture": mix(columns, (37, 99, 235)), "n": len(clients), "rows": []}
    rows = [
        {"name": c, "cells": [{"n": n, "share": round(s, 4)} for n, s in zip(row, of, strict=True)]}
        for c, row, of in zip(clients, table, shares, strict=True)
    ]
    return {"picture": "", "n": len(clients), "rows": rows}


def _coverage(found: Mapping[str, Any]) -> Markup:
    points = tuple((100 * c, 1 - r) for c, r in zip(found.get("coverage") or (), found.get("risk") or (), strict=True))
    if not points:
        return Markup("")
    line = Series("right among those answered", "personal", points)
    return curve("Right answers by share of queries answered", [line], _ACCURACY, (0.0, 1.0), along="% answered")


def _abstained(found: Mapping[str, Any] | None) -> str:
    if not found or found.get("share") is None:
        return ""
    said = (
        f"Queries unlike any client's rows are turned away: at most {_ACCURACY(found['alpha'])} of known ones, by a "
        f"threshold set on validation rows; of the test rows {_ACCURACY(found['share'])}"
    )
    if found.get("accuracy_of_answered") is not None:
        said += f", and {_ACCURACY(found['accuracy_of_answered'])} of those answered were right"
    if found.get("accuracy_of_abstained") is not None:
        said += f", {_ACCURACY(found['accuracy_of_abstained'])} of those turned away would have been"
    return said + "."
