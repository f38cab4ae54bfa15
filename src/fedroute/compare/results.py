"""What the runs of a comparison show together: compare.json, from the summaries in its sub-folders."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedroute.compare.plan import ALONE, FILE, Plan, read_plan
from fedroute.compare.statistics import Estimate, holm, over_seeds
from fedroute.durable import write
from fedroute.errors import InputError
from fedroute.run_directory import RunDirectory

LOWER_IS_BETTER = ("loss", "log_loss", "ece")
MEANS = (
    "weighted", "worst", "worst_tenth", "global", "alone", "validation", "newcomers", "seconds", "up_bytes",
    "down_bytes",
)  # fmt: skip
VERDICTS = ("yes", "no", "unclear", "n/a")
Summaries = dict[tuple[str, int], dict[str, Any]]


def write_results(out: Path, failed: Mapping[tuple[str, int], str] | None = None) -> dict[str, Any]:
    """Writes compare.json and report.html of the comparison in `out` from the runs that have ended, and returns what
    compare.json holds. failed: (label, seed) -> why that run could not end.

    Raises InputError where there is no comparison, RunFailed where the disk is full."""
    from fedroute.report.compare_page import compare_page

    plan = read_plan(out)
    if plan is None:
        raise InputError(f"{out}: no comparison here, {FILE} is not there: name the folder that --out was given")
    runs, baseline = _summaries(out, plan.folders, plan.all_seeds), _summaries(out, {ALONE: ALONE}, plan.all_seeds)
    found = results(plan, runs, failed or {})
    found["refused"] = [
        {"algorithm": label, "seed": seed, "void_rounds": len(s["void_rounds"]), "quarantined": len(s["quarantined"])}
        for (label, seed), s in (runs | baseline).items()
        if s["void_rounds"] or s["quarantined"]
    ]
    write(out / "compare.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    write(out / "report.html", compare_page(found, out.resolve().name))
    return found


def results(plan: Plan, summaries: Summaries, failed: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    """All numbers are of the clients' personal models in the headline metric on their test rows, newcomers apart,
    unless they say otherwise.

    {schema, headline, higher, config, seeds, rounds, clients, rows: [one for each run], algorithms: [one for each
    algorithm, best validation first], pairs: [one for each two algorithms], winner, missing: [{algorithm, seed,
    reason}]}. `write_results` adds refused: [{algorithm, seed, void_rounds, quarantined}]."""
    some = next(iter(summaries.values()), {})
    metric = str(some.get("headline", "accuracy"))
    higher = metric not in LOWER_IS_BETTER
    rows = [
        _row(plan, label, seed, summaries[label, seed], metric)
        for label, seed in _cells(plan)
        if (label, seed) in summaries
    ]
    ratio = _ratio(summaries.values())
    totals = [
        t
        for label in plan.algorithms
        if (t := _total(plan, label, [r for r in rows if r["algorithm"] == label], ratio, summaries, metric))
    ]
    totals.sort(key=lambda t: _rank(t["validation"], higher))
    pairs = _pairs(plan, summaries, [t["algorithm"] for t in totals], ratio, higher)
    federation = some.get("federation") or {}
    return {
        "schema": 1,
        "version": some.get("version"),
        "headline": metric,
        "higher": higher,
        "part": (some.get("measured") or {}).get("part", "test"),
        "federation": federation.get("name"),
        "clients": [c["name"] for c in some.get("clients", [])],
        "seeds": plan.all_seeds,
        "rounds": plan.config["training"]["rounds"],
        "test_to_train": ratio,
        "config": plan.config,
        "rows": rows,
        "algorithms": totals,
        "pairs": pairs,
        "winner": _winner(totals, pairs, metric),
        "missing": [
            {"algorithm": label, "seed": seed, "reason": failed.get((label, seed), "has not ended")}
            for label, seed in _cells(plan)
            if (label, seed) not in summaries
        ],
    }


def _cells(plan: Plan) -> list[tuple[str, int]]:
    return list(itertools.product(plan.algorithms, plan.all_seeds))


def _summaries(out: Path, folders: Mapping[str, str], seeds: Sequence[int]) -> Summaries:
    """Those of the runs that have ended."""
    found: Summaries = {}
    for (label, folder), seed in itertools.product(folders.items(), seeds):
        directory = RunDirectory(out / folder / f"seed-{seed}")
        if directory.ended:
            found[label, seed] = directory.read_summary()
    return found


def _head(s: Mapping[str, Any], metric: str, of: str = "") -> dict[str, Any]:
    """kind -> aggregates; of: "_newcomers" for theirs."""
    found = s.get(f"accuracy{of}") if metric == "accuracy" else (s.get(f"metrics{of}") or {}).get(metric)
    return dict(found or {})


def _row(plan: Plan, label: str, seed: int, s: dict[str, Any], metric: str) -> dict[str, Any]:
    head, rounds = _head(s, metric), s["rounds"]
    personal, time = head.get("personal") or {}, s.get("time") or {}
    began = time.get("from_round") or 0  # of a run gone on with only the rounds after that were timed
    seconds = time["train_s"] * rounds / (rounds - began) if began < rounds else None
    return {
        "algorithm": label,
        "seed": seed,
        "folder": f"{plan.folders[label]}/seed-{seed}",
        **{k: personal.get(k) for k in ("mean", "weighted", "worst", "worst_client", "worst_tenth")},
        **{kind: (head.get(kind) or {}).get("mean") for kind in ("global", "alone")},
        "validation": ((s.get("validation") or {}).get("personal") or {}).get(metric),
        "newcomers": (_head(s, metric, "_newcomers").get("personal") or {}).get("mean"),
        "better_off": s.get("better_off"),
        "seconds": seconds,
        "up_bytes": s["traffic"]["up_bytes"] * rounds,
        "down_bytes": s["traffic"]["down_bytes"] * rounds,
        "engine": s.get("engine"),
        "void_rounds": len(s.get("void_rounds") or []),
        "quarantined": len(s.get("quarantined") or []),
    }


def _total(
    plan: Plan, label: str, rows: Sequence[dict[str, Any]], ratio: float, summaries: Summaries, metric: str
) -> dict[str, Any] | None:
    """An algorithm over its seeds: means, that on test rows with its interval, and counts of verdicts in all seeds."""
    if not rows:
        return None
    options = plan.algorithms[label]
    means = [r["mean"] for r in rows if r["mean"] is not None]
    estimate = over_seeds(means, ratio) if means else Estimate(math.nan, None, None)
    of_client: dict[str, list[float]] = {}
    for r in rows:
        for client, value in _personal(summaries[label, r["seed"]]).items():
            of_client.setdefault(client, []).append(value)
    return {
        "algorithm": label,
        "name": options["name"],
        "options": {k: v for k, v in options.items() if k != "name"},
        "folder": plan.folders[label],
        "seeds": len(rows),
        "mean": estimate.mean if means else None,
        "interval": estimate.interval and _possible(estimate.interval, metric),
        **{k: _mean([r[k] for r in rows]) for k in MEANS},
        "better_off": {v: sum((r["better_off"] or {}).get(v, 0) for r in rows) for v in VERDICTS},
        "adapt_epochs": options.get("adapt_epochs", 0),
        "clients": {client: _mean(values) for client, values in of_client.items()},
    }


def _possible(interval: tuple[float, float], metric: str) -> tuple[float, float]:
    """Without what no value of the metric can be: all but losses are between 0 and 1."""
    return interval if "loss" in metric else (max(0.0, interval[0]), min(1.0, interval[1]))


def _pairs(plan: Plan, summaries: Summaries, labels: Sequence[str], ratio: float, higher: bool) -> list[dict[str, Any]]:
    """Every two algorithms on the seeds that both have, a minus b, client by client on the same rows."""
    of = {key: _personal(s) for key, s in summaries.items()}
    pairs = []
    for a, b in itertools.combinations(labels, 2):
        by_client: dict[str, dict[int, float]] = {}
        for seed in plan.all_seeds:
            mine, other = of.get((a, seed), {}), of.get((b, seed), {})
            for client in mine:
                if client in other:
                    by_client.setdefault(client, {})[seed] = mine[client] - other[client]
        by_seed = {s: _mean([d[s] for d in by_client.values() if s in d]) for s in plan.all_seeds}
        values = [v for v in by_seed.values() if v is not None]
        if not values:
            continue
        e = over_seeds(values, ratio)
        clients = [
            {"client": c, **_estimate(over_seeds(list(d.values()), ratio)), "by_seed": d} for c, d in by_client.items()
        ]
        pairs.append(
            {"a": a, "b": b, "seeds": len(values), **_estimate(e), "p": e.p, "by_seed": by_seed, "clients": clients}
        )
    for pair, p in zip(pairs, holm([pair["p"] for pair in pairs]), strict=True):
        sure = p is not None and p < 0.05
        pair |= {
            "p_adjusted": p,
            "better": (pair["a"] if (pair["difference"] > 0) == higher else pair["b"]) if sure else None,
        }
    return pairs


def _estimate(e: Estimate) -> dict[str, Any]:
    return {"difference": e.mean, "interval": e.interval}


def _personal(s: Mapping[str, Any]) -> dict[str, float]:
    """client -> its personal model's headline metric, of those who trained."""
    return {c["name"]: c["personal"] for c in s["clients"] if c["personal"] is not None and not c.get("newcomer")}


def _winner(totals: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]], metric: str) -> dict[str, Any] | None:
    """The best on validation rows of those with all seeds, and over which others its lead on test rows is more than
    noise. None where nobody has validation rows, or there is nothing to choose from."""
    most = max((t["seeds"] for t in totals), default=0)
    ranked = [t for t in totals if t["validation"] is not None and t["seeds"] == most]
    if len(ranked) < 2:
        return None
    first = ranked[0]
    found: dict[str, list[str]] = {"better_than": [], "worse_than": [], "not_told_apart_from": []}
    for pair in pairs:
        if first["algorithm"] in (pair["a"], pair["b"]):
            other = pair["b"] if pair["a"] == first["algorithm"] else pair["a"]
            key = {None: "not_told_apart_from", other: "worse_than"}.get(pair["better"], "better_than")
            found[key].append(other)
    return {"by": "validation", "metric": metric, "algorithm": first["algorithm"], "validation": first["validation"],
            "mean": first["mean"], "interval": first["interval"], **found}  # fmt: skip


def _ratio(summaries: Any) -> float:
    """Test rows to training rows."""
    for s in summaries:
        rows = {part: sum(c[part] for c in s["clients"]) for part in ("train", "test")}
        if rows["train"]:
            return float(rows["test"] / rows["train"])
    return 0.0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def _rank(validation: float | None, higher: bool) -> tuple[bool, float]:
    return validation is None, 0.0 if validation is None else -validation if higher else validation
