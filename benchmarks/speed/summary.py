"""From turns to numbers: medians, and ratios of contenders that ran next to each other in time."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

Turn = dict[str, Any]  # one JSON line of a contender, and `repeat`: which pass it belongs to
BUSY = 0.9  # below this share of the core, something else was running


def summarise(turns: Sequence[Turn]) -> dict[str, Any]:
    """{workload: {contenders: {name: medians}, ratios: {name: {other: ratio}}}}.

    A ratio is taken within a pass and only then is the median taken: what slows a machine for a minute slows both.
    """
    return {w: _workload([t for t in turns if t["workload"] == w]) for w in _in_order(t["workload"] for t in turns)}


def _workload(turns: Sequence[Turn]) -> dict[str, Any]:
    by_name: dict[str, dict[int, Turn]] = {name: {} for name in _in_order(t["contender"] for t in turns)}
    for turn in turns:
        by_name[turn["contender"]][turn["repeat"]] = turn
    return {
        "contenders": {name: _medians(list(passes.values())) for name, passes in by_name.items()},
        "ratios": {a: {b: _ratio(by_name[a], by_name[b]) for b in by_name if b != a} for a in by_name},
    }


def _medians(turns: Sequence[Turn]) -> dict[str, Any]:
    by_cpu = [t for t in turns if t["cpu_seconds"]]
    medians = {
        "samples_per_s": median(t["samples_per_s"] for t in turns),
        "samples_per_cpu_s": median(t["samples"] / t["cpu_seconds"] for t in by_cpu) if by_cpu else None,
        "core_share": median(t["cpu_seconds"] / t["seconds"] for t in by_cpu) if by_cpu else None,
        "peak_rss_mb": max(t["peak_rss_mb"] for t in turns),
        "probe_loss": turns[-1]["probe_loss"],
        "turns": len(turns),
        "samples": sum(t["samples"] for t in turns),
        "versions": turns[-1]["versions"],
    }
    if all("evaluate_s" in t for t in turns):
        added = [t["evaluate_s"] / (t["seconds"] - t["evaluate_s"]) for t in turns]
        medians["evaluation_adds"] = {"median": median(added), "min": min(added), "max": max(added)}
    return medians


def _ratio(a: dict[int, Turn], b: dict[int, Turn]) -> dict[str, Any] | None:
    """How many times as fast a is as b, by the wall and, where it is known, by processor time."""
    both = [(a[r], b[r]) for r in sorted(a.keys() & b.keys())]
    if not both:
        return None
    result: dict[str, Any] = {"pairs": len(both)}
    for kind, seconds in (("wall", "seconds"), ("cpu", "cpu_seconds")):
        if all(x[seconds] and y[seconds] for x, y in both):
            speed = [x["samples"] / x[seconds] * (y[seconds] / y["samples"]) for x, y in both]
            result |= {kind: median(speed), f"{kind}_min": min(speed), f"{kind}_max": max(speed)}
    return result


def table(summary: dict[str, Any], base: str = "bare") -> str:
    """For a terminal: a block for each workload, every contender beside `base` and, where it ran, beside fedroute."""
    lines = []
    for workload, result in summary.items():
        names, ratios = list(result["contenders"]), result["ratios"]
        columns = [c for c in dict.fromkeys((base, "fedroute")) if c in names]
        heads = "".join(f"{f'/ {c}':>12}{'min..max':>12}{'by cpu':>8}{'min..max':>12}" for c in columns)
        lines += ["", f"{workload:<20}{'samples/s':>11}{'per cpu s':>11}{'core':>6}{'peak MB':>9}{heads}{'loss':>9}"]
        for name in names:
            m = result["contenders"][name]
            row = f"{name:<20}{m['samples_per_s']:>11,.0f}{_or_dash(m['samples_per_cpu_s'], 11, ',.0f')}"
            row += f"{_or_dash(m['core_share'], 6, '.0%')}{m['peak_rss_mb']:>9,.0f}"
            lines.append(f"{row}{''.join(_cells(ratios[name].get(c)) for c in columns)}{m['probe_loss']:>9.4f}")
        for name in names:
            if a := result["contenders"][name].get("evaluation_adds"):
                lines.append(f"  {name}: evaluation adds {a['median']:.0%} ({a['min']:.0%}..{a['max']:.0%})")
        if two := ratios.get("fedroute-workers-2", {}).get("fedroute-workers-1"):
            lines.append(
                f"  two workers against one: {two['wall']:.2f}x ({two['wall_min']:.2f}..{two['wall_max']:.2f})"
            )
        if min(m["core_share"] or 1 for m in result["contenders"].values()) < BUSY:
            lines.append("  the machine was busy with something else: read `by cpu`, which does not count the waiting")
    return "\n".join(lines[1:])


def _cells(ratio: dict[str, Any] | None) -> str:
    """A ratio and its spread, by the wall and by processor time."""

    def pair(kind: str, width: int) -> str:
        if ratio is None or kind not in ratio:
            return f"{'-':>{width}}{'':>12}"
        spread = f"{ratio[f'{kind}_min']:.2f}..{ratio[f'{kind}_max']:.2f}"
        return f"{ratio[kind]:>{width - 1}.2f}x{spread:>12}"

    return pair("wall", 12) + pair("cpu", 8)


def _or_dash(value: float | None, width: int, form: str) -> str:
    return f"{'-' if value is None else format(value, form):>{width}}"


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
