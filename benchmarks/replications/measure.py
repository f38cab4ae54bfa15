"""The runs of a setting, over seeds, and what they say with its interval."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fedroute
from benchmarks.replications.setting import Arm, Setting
from fedroute.compare.statistics import Estimate, over_seeds
from fedroute.config import Training
from fedroute.data.federation import Federation
from fedroute.run import Run

RESULTS = Path(__file__).parent / "results"
Scores = dict[str, float]  # kind -> percent


def run_setting(
    setting: Setting, seeds: int | None = None, quick: bool = False, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """As JSON: rows (a method's model: published, ours, interval, the value of each seed), differences, budget."""
    before, count = time.perf_counter(), seeds or (1 if quick else setting.seeds)
    training = {**setting.training, **(setting.quick if quick else {})}
    federations = [setting.federation(seed) for seed in range(count)]
    ratio = 0.0 if setting.redrawn else float(_rows(federations, "test") / _rows(federations, "train"))
    values: dict[str, list[float]] = {}
    rows = []
    for arm in setting.arms:
        scores, options = _arm(setting, arm, training, federations, quick)
        for kind, published in arm.reports.items():
            name = f"{arm.name}/{kind}"
            values[name] = [s[kind] for s in scores]
            rows.append(
                {
                    "method": arm.name,
                    "model": kind,
                    "published": [p._asdict() for p in published],
                    **_estimate(over_seeds(values[name], ratio)),
                    "values": values[name],
                    "options": options,
                }
            )
            say(f"  {line(rows[-1])}")
    differences = []
    for a, b in setting.pairs:
        paired = [x - y for x, y in zip(values[a], values[b], strict=True)]
        differences.append({"a": a, "b": b, **_estimate(over_seeds(paired, ratio)), "values": paired})
        say(f"  {difference(differences[-1])}")
    return {
        "setting": setting.name,
        "about": setting.about,
        "differs": list(setting.differs),
        "measure": setting.measure,
        "seeds": count,
        "quick": quick,
        "clients": len(federations[0].clients),
        "rows": {p: int(federations[0].sizes(p).sum()) for p in ("train", "validation", "test")},
        "model": dict(setting.model),
        "training": {k: v for k, v in Training(**training).model_dump(mode="json").items() if v is not None},
        "table": rows,
        "differences": differences,
        "seconds": round(time.perf_counter() - before),
        "version": fedroute.__version__,
    }


def save(name: str, parts: Sequence[dict[str, Any]]) -> Path:
    """results/NAME.json, or NAME-quick.json where the budget was that of a trial run."""
    path = RESULTS / f"{name}{'-quick' if any(p['quick'] for p in parts) else ''}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"name": name, "parts": list(parts)}, indent=1) + "\n", encoding="utf-8")
    return path


def line(row: Mapping[str, Any]) -> str:
    """A row of the table, for a terminal."""
    published = "; ".join(f"{p['value']:.2f} ({p['checked']}: {p['source']})" for p in row["published"])
    return f"{row['method']:<22} {row['model']:<9} ours {_percent(row)}   published {published or 'no number'}"


def difference(row: Mapping[str, Any]) -> str:
    """A paired difference, for a terminal."""
    return f"{row['a']} minus {row['b']}: {_percent(row)}"


def _percent(row: Mapping[str, Any]) -> str:
    interval = row["interval"]
    return f"{row['ours']:6.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else " [one value]")


def _estimate(e: Estimate) -> dict[str, Any]:
    """Rounded. A t interval knows no bounds: next to 0 or 100 it may reach over them."""
    interval = [round(v, 2) for v in e.interval] if e.interval else None
    return {"ours": round(e.mean, 2), "interval": interval}


def _arm(
    setting: Setting, arm: Arm, training: Mapping[str, Any], federations: Sequence[Federation], quick: bool
) -> tuple[list[Scores], dict[str, Any]]:
    """(the scores of each seed, the options that did best on the validation rows of the first seed)."""
    tried = []
    for options in arm.grid[:1] if quick else arm.grid:
        own = {**arm.training, **options.get("training", {})}
        algorithm = {**arm.algorithm, **options.get("algorithm", {})}
        t = Training(**{**training, **own, "alone": "alone" in arm.reports})
        tried.append((_fit(setting, algorithm, t, federations[0], 0), algorithm, own, t))
    first, algorithm, own, t = max(tried, key=lambda found: _validation(found[0]) if len(tried) > 1 else 0.0)
    later = (_fit(setting, algorithm, t, f, seed) for seed, f in enumerate(federations[1:], 1))
    scores = [_scores(first, setting.measure, arm), *(_scores(run, setting.measure, arm) for run in later)]
    return scores, {"algorithm": algorithm, "training": own}


def _fit(setting: Setting, algorithm: dict[str, Any], t: Training, f: Federation, seed: int) -> Run:
    model = dict(setting.model)
    return fedroute.fit(f, model, algorithm, training=t, seed=seed, engine=setting.engine, log=lambda text: None)


def _validation(run: Run) -> float:
    return float(run.validation["personal"]["accuracy"])


def _scores(run: Run, measure: str, arm: Arm) -> Scores:
    accuracy = run.ledger.aggregates("accuracy")
    return {kind: 100 * accuracy[kind][measure] for kind in arm.reports}


def _rows(federations: Sequence[Federation], part: str) -> float:
    return sum(float(f.sizes(part).sum()) for f in federations)
