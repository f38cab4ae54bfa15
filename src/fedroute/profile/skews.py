"""What the five measures say: verdicts with numbers and sentences, and the diagnosis that they add up to."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedroute.profile import concept, feature, label, quantity, sample, sentences, time
from fedroute.profile.verdict import ALPHA, KINDS, Kind, Level, Skew, level

Floats = NDArray[np.float64]
Top = Literal["iid", "label", "feature", "quantity", "concept", "time"]
APART = 0.5  # of the information that a row's time has about its client, beyond which only drift can be told
STILL = 0.05  # p from which on features count as alike at all clients
OVERLAP = 0.2  # of features once aligned, below which their meaning cannot be compared
SMALL = 0.5  # of the strength of a concept skew, below which a feature skew beside a label skew is put down to it
SIZE = 0.5  # what a strength of quantity skew counts beside one of another kind


def diagnose(skew: Mapping[Kind, Skew], moved: bool) -> tuple[Top, tuple[Kind, ...]]:
    """The top diagnosis and all its parts. moved: whether features, whatever the label, differ between clients at
    all.

    Where features mean different things at different clients while the features themselves are the same (not
    `moved`), a difference in labels is what that makes of them and no part of its own. Where both labels and meanings
    differ, the label mix cannot be made equal, and a feature skew below half the concept skew's strength is put down
    to that. Quantity is named first only where nothing else is half as strong: sizes follow from how rows were
    dealt."""
    parts = [k for k in KINDS if skew[k].present]
    if "concept" in parts and "label" in parts:
        if not moved:
            parts.remove("label")
        elif "feature" in parts and skew["feature"].strength < SMALL * skew["concept"].strength:
            parts.remove("feature")
    parts.sort(key=lambda k: -skew[k].strength * (SIZE if k == "quantity" else 1))
    return (parts[0] if parts else "iid"), tuple(parts)


def skews(
    drawn: sample.Sample, labels: label.LabelMix, told: feature.Telling, plain: feature.Telling,
    trusted: feature.Telling, sizes: quantity.Sizes, meaning: concept.Meaning, overlap: float,
    drift: time.Drift | None, shown: NDArray[np.int64], moved: Floats, dates: tuple[str, ...] = (),
) -> dict[Kind, Skew]:  # fmt: skip
    """The five verdicts with their numbers and sentences. told: of features at the same labels, plain: whatever the
    label, trusted: at the same labels without clients whose labels may be wrong; overlap: of features once aligned;
    shown: the features that differ most, moved: how far (N, len(shown)); dates: columns that look like a time."""
    who, apart = drawn.clients, drift is not None and drift.share >= APART
    v = level("label", labels.strength, labels.p)
    numbers: dict[str, Any] = {
        "tv": round(labels.tv, 4), "tv_random": round(labels.random, 4), "tv_largest": round(labels.largest, 4),
        "jensen_shannon": round(labels.js, 4), "effective_classes": round(float(labels.effective.mean()), 3),
        "classes": len(drawn.labels),
    }  # fmt: skip
    skew: dict[Kind, Skew] = {
        "label": Skew(kind="label", strength=labels.strength, interval=labels.interval, p=labels.p, verdict=v,
                      numbers=numbers, sentences=sentences.of_label(v, labels, drawn.known, drawn.labels, who, apart))
    }  # fmt: skip
    p = None if told.test is None or plain.test is None else max(told.test.p, plain.test.p)
    v = level("feature", told.strength, p)
    numbers = {"auc": round(told.auc, 4), "pairs": len(told.pairs), "features": _features(drawn, told, shown, moved)}
    if len(told.pairs):
        a, b = (who[i] for i in told.pairs[int(told.aucs.argmax())])
        numbers["most_apart"] = {"clients": [a, b], "auc": round(float(told.aucs.max()), 4)}
    said = sentences.of_feature(v, told, drawn.features, who, apart)
    skew["feature"] = Skew(kind="feature", strength=told.strength, interval=told.interval, p=p, verdict=v,
                      numbers=numbers, sentences=said)  # fmt: skip
    v = level("quantity", sizes.strength, sizes.p)
    numbers = {"gini": round(sizes.gini, 4), "gini_random": round(sizes.random, 4), "largest": who[sizes.who],
               "largest_share": round(sizes.largest, 4), "effective_clients": round(sizes.clients, 2)}  # fmt: skip
    said = sentences.of_quantity(v, sizes, who)
    skew["quantity"] = Skew(kind="quantity", strength=sizes.strength, interval=sizes.interval, p=sizes.p,
                      verdict=v, numbers=numbers, sentences=said)  # fmt: skip
    p, usage = None if meaning.p is None or overlap < OVERLAP else meaning.p, False
    given = trusted.test and trusted.test.p < ALPHA and trusted.strength > meaning.strength
    if trusted.test and given and plain.test and plain.test.p > STILL:
        # the rows are alike, and yet those of a label are not: labels are given otherwise
        usage, p = True, trusted.test.p
        meaning = replace(meaning, strength=trusted.strength, interval=trusted.interval)
    v = level("concept", meaning.strength, p)
    numbers = {"usage": usage, "own": round(meaning.own, 4), "others": round(meaning.others, 4),
               "overlap": round(overlap, 4)}  # fmt: skip
    said = sentences.of_concept(v, meaning, who, overlap, apart, usage)
    skew["concept"] = Skew(kind="concept", strength=meaning.strength, interval=meaning.interval, p=p, verdict=v,
                      numbers=numbers, sentences=said)  # fmt: skip
    skew["time"] = drifted(drift, drawn.labels, dates)
    return skew


def drifted(drift: time.Drift | None, labels: tuple[str, ...], dates: tuple[str, ...] = ()) -> Skew:
    """Of the three ways to drift the strongest; three looks, so p three times as large."""
    if drift is None:
        return Skew(kind="time", strength=0.0, interval=(0.0, 0.0), p=None, verdict="unknown",
                    numbers={"kinds": []}, sentences=sentences.of_time("unknown", None, (), labels, dates))  # fmt: skip
    ways: list[tuple[Kind, float, tuple[float, float], float | None]] = [
        ("label", drift.label.strength, drift.label.interval, drift.label.p),
        (
            "feature",
            drift.feature.strength,
            drift.feature.interval,
            None if drift.feature.test is None else drift.feature.test.p,
        ),
        ("concept", drift.concept.strength, drift.concept.interval, drift.concept.p),
    ]
    known = [(k, s, i, min(1.0, 3 * p)) for k, s, i, p in ways if p is not None]
    there = sorted((w for w in known if level(w[0], w[1], w[3]) != "none"), key=lambda w: -w[1])
    _, strength, interval, p = (
        (there or sorted(known, key=lambda w: -w[1]))[0] if known else ("", 0.0, (0.0, 0.0), None)
    )
    v: Level = level("time", strength, p) if there else ("unknown" if p is None else "none")
    kinds = [k for k, *_ in there]
    curve = drift.shape
    numbers = {
        "kinds": kinds, "by_kind": {k: round(s, 4) for k, s, *_ in known}, "with_season": round(drift.everything, 4),
        "season": None if curve.period is None else
        {"period": round(curve.period, 4), "name": curve.name, "share": round(curve.share, 4)},
        "changes": [round(float(drift.at[j - 1] + drift.at[j]) / 2, 4) for j in curve.jumps] if there else [],
        "gradual": curve.gradual and bool(there), "confounded": round(drift.share, 4),
        "vanished": [{"label": labels[k], "from": a, "to": b} for k, a, b in drift.vanished],
    }  # fmt: skip
    said = sentences.of_time(v, drift, kinds, labels)
    return Skew(kind="time", strength=strength, interval=interval, p=p, verdict=v, numbers=numbers, sentences=said)


def _features(
    drawn: sample.Sample, told: feature.Telling, shown: NDArray[np.int64], moved: Floats
) -> list[dict[str, Any]]:
    """The features that differ most, each with the client that differs most in it."""
    found = list[dict[str, Any]]()
    for q, j in enumerate(shown):
        i = int(np.abs(told.shift[:, j]).argmax())
        found.append({"feature": drawn.features[j], "client": drawn.clients[i],
                      "difference": round(float(told.shift[i, j]), 4),
                      "wasserstein": round(float(moved[i, q]), 4)})  # fmt: skip
    return found
