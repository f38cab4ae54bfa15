"""The ledger as the page shows it: dots with intervals, a table, the aggregates."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from fedroute.report.pictures import caterpillar
from fedroute.report.words import Unit, ticks

KINDS = ("personal", "global", "alone")
MANY = 40  # clients beyond which each gets a pixel or two and no line of its own
VERDICTS = {"yes": "▲ yes", "no": "▼ no", "unclear": "· unclear", "n/a": "n/a"}
WORDS = {"yes": "better off", "no": "worse off", "unclear": "unclear", "n/a": "not compared"}
TOTALS = {
    "mean": "mean of clients",
    "weighted": "mean by rows",
    "worst": "worst client",
    "worst_tenth": "worst tenth",
    "std": "spread (std)",
}


def bar(clients: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The verdicts as parts of one bar."""
    counts = {v: sum(c.get("better_off", "n/a") == v for c in clients) for v in WORDS if clients}
    return [
        {"verdict": v.replace("/", ""), "words": WORDS[v], "n": n, "share": 100 * n / len(clients)}
        for v, n in counts.items()
        if n
    ]


def dots(clients: Sequence[dict[str, Any]], unit: Unit, part: str, worst: str | None) -> dict[str, Any]:
    """A line per client: where its numbers stand on one scale, in percent of the width."""
    shown = [c for c in clients if c.get("personal") is not None]
    values = [c[k] for c in shown for k in KINDS if c.get(k) is not None]
    values += [v for c in shown for v in c.get("interval") or ()]
    if not values:
        return {"rows": [], "ticks": []}
    low, high = min(values), max(values)
    pad = 0.04 * (high - low) or 0.05
    low, high = low - pad, high + pad

    def at(v: float | None) -> float | None:
        return None if v is None else round(100 * (v - low) / (high - low), 2)

    rows = []
    for c in shown:
        interval, majority = c.get("interval"), c.get("majority")
        place: dict[str, Any] = {k: at(c.get(k)) for k in KINDS}
        place |= {
            "majority": at(majority) if majority is not None and low <= majority <= high else None,
            "interval": [at(v) for v in interval] if interval else None,
        }
        words = ", ".join(f"{k} {unit(c.get(k))}" for k in KINDS if c.get(k) is not None)
        rows.append(
            {
                "name": c["name"],
                "rows": c.get(part, 0),
                "at": place,
                "words": words,
                "gain": unit.gain(c.get("difference")),
            }
            | _verdict(c)
            | {"worst": c["name"] == worst, "newcomer": bool(c.get("newcomer"))}
        )
    marks = [{"at": at(v), "words": f"{round(100 * v if unit.percent else v, 6):g}"} for v in ticks(low, high, 6)]
    return {"rows": rows, "ticks": marks}


def sketch(clients: Sequence[dict[str, Any]], unit: Unit) -> dict[str, Any]:
    """Many clients: the picture of all gains, and the names at its two ends."""
    gains = [
        (c["name"], c["difference"], c.get("difference_interval"), c.get("better_off", "n/a"))
        for c in clients
        if c.get("difference") is not None
    ]
    if not gains:
        return {"picture": Markup(""), "ends": []}
    title = f"Personal minus alone of {len(gains)} clients, sorted, with intervals"
    better = 1 if unit.higher else -1
    sure = [(sorted(better * v for v in g[2]), g) for g in gains if g[2]]  # least and most gain
    ends = [
        ("lose most surely", [g for _, g in sorted(sure, key=lambda e: (e[0][1], e[1][0]))[:8]]),
        ("gain most surely", [g for _, g in sorted(sure, key=lambda e: (-e[0][0], e[1][0]))[:8]]),
    ]
    return {
        "picture": caterpillar(gains, lambda v: unit.number(v, True), title),
        "ends": [(words, [(g[0], unit.gain(g[1]), unit.interval(g[2], True)) for g in some]) for words, some in ends],
    }


def table(clients: Sequence[dict[str, Any]], unit: Unit, worst: str | None) -> list[dict[str, Any]]:
    """A line per client, in words; personal and difference with their intervals."""
    return [
        {k: unit.number(c.get(k)) for k in ("global", "alone", "majority")}
        | {
            "name": c["name"],
            "worst": c["name"] == worst,
            "newcomer": bool(c.get("newcomer")),
            "sizes": [int(c.get(p) or 0) for p in ("train", "validation", "test")],
            "personal": (unit.number(c.get("personal")), unit.interval(c.get("interval"))),
            "difference": (
                unit.number(c.get("difference"), True),
                unit.interval(c.get("difference_interval"), True),
            ),
            "notes": "; ".join(c.get("notes") or ()),
        }
        | _verdict(c)
        for c in clients
    ]


def totals(aggregates: dict[str, Any], unit: Unit) -> list[tuple[str, list[str]]]:
    """The aggregates of one metric, a line each: (words, one cell per kind)."""
    of = [aggregates.get(k) or {} for k in KINDS]
    return [(words, [unit(a.get(key)) for a in of]) for key, words in TOTALS.items()]


def _verdict(client: dict[str, Any]) -> dict[str, str]:
    v = client.get("better_off", "n/a")
    v = v if v in VERDICTS else "n/a"
    return {"verdict": v.replace("/", ""), "verdict_words": VERDICTS[v]}
