"""How far a choice of method is from the best in hindsight, federation by federation."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.advice.hindsight import ADVICE, RESULTS, read, unpacked
from fedroute.advise.proof import Scores, concluded, paired

POINT = 0.01
PLAIN = {"fedbn": "fedavg", "pfedme_fedbn": "pfedme", "fedper_fedbn": "fedper"}  # the same without norms to keep
Chosen = Mapping[str, str]  # seed -> label
Found = Mapping[str, Any]  # a file of results


class Outcome(NamedTuple):
    """name, kind: the federation's. chosen: what was taken, by seed; best: the label that did best over all seeds;
    regret: of test accuracy, mean over clients and seeds; low, high: its interval at 95 %, of the same rows."""

    name: str
    kind: str
    chosen: Chosen
    best: str
    accuracy: float
    regret: float
    low: float
    high: float

    @property
    def within(self) -> bool:
        """At most a point behind the best."""
        return self.regret <= POINT

    @property
    def near(self) -> bool:
        """Within a point of the best, or not told apart from it."""
        return self.within or self.low <= 0


def results(half: str) -> list[dict[str, Any]]:
    """The files of a half, by name."""
    found = [read(path) for path in sorted(RESULTS.glob("*.json"))]
    return [f for f in found if f["half"] == half]


def advice_of(found: Found) -> dict[str, dict[str, Any]]:
    """Seed -> the advice for the federation as that seed draws it."""
    kept: dict[str, dict[str, Any]] = read(ADVICE / f"{found['name']}.json")
    return {seed: kept[seed] for seed in found["seeds"]}


def scores(found: Found, part: str) -> dict[str, Scores]:
    """Label -> "seed/client" -> (1, rows) whether each row was answered right, of the methods that have every seed."""
    column = {"validation": 2, "test": 3}[part]
    return {
        label: {
            f"{seed}/{client[0]}": unpacked(text, client[column])[None].astype(np.float64)
            for seed, of in found["seeds"].items()
            for client, text in zip(of["clients"], of["runs"][label][part], strict=True)
            if client[column]
        }
        for label in labels_of(found)
    }


def labels_of(found: Found) -> list[str]:
    """The methods that ran with every seed."""
    runs = [of["runs"] for of in found["seeds"].values()]
    return [label for label in runs[0] if all(label in r for r in runs)]


def accuracy(of: Scores) -> float:
    """The mean over clients and seeds."""
    return math.fsum(float(v.mean()) for v in of.values()) / len(of)


def mixed(of: Mapping[str, Scores], chosen: Chosen) -> Scores:
    """In each seed the rows of the method chosen there."""
    return {
        key: rows
        for seed, label in chosen.items()
        for key, rows in of[label if label in of else PLAIN[label]].items()
        if key.startswith(f"{seed}/")
    }


def outcome(found: Found, chosen: str | Chosen) -> Outcome:
    """What a choice is worth on test rows; a label alone is taken with every seed."""
    test = scores(found, "test")
    chosen = dict.fromkeys(found["seeds"], chosen) if isinstance(chosen, str) else chosen
    best, mine = max(test, key=lambda k: accuracy(test[k])), mixed(test, chosen)
    regret, (low, high) = paired(test[best], mine)
    return Outcome(found["name"], found["kind"], chosen, best, accuracy(mine), regret, low, high)


def proved(found: Found, advice: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Seed -> what is taken after the proof: in each seed's federation the advised method, the runner-up, FedAvg and
    alone head to head on validation rows, by the runs of that seed."""
    validation, taken = scores(found, "validation"), {}
    for seed, a in advice.items():
        labels = dict.fromkeys([a["label"], a["runner_up"], "fedavg", "alone"])
        of = {label: mixed(validation, {seed: label}) for label in labels}
        proof = concluded(
            {k: {} for k in of}, {k: [accuracy(v)] for k, v in of.items()}, of, metric="accuracy", higher=True,
            rounds=found["training"]["rounds"], ratio=0.4,
        )  # fmt: skip
        taken[seed] = proof.algorithm
    return taken


def mean_regret(outcomes: Sequence[Outcome]) -> float:
    return math.fsum(o.regret for o in outcomes) / len(outcomes)


def always(files: Sequence[Found]) -> dict[str, list[Outcome]]:
    """Label -> what always taking it comes to; where the model has no norms to keep, without keeping them."""
    labels = dict.fromkeys(label for f in files for label in labels_of(f))
    return {label: [outcome(f, label) for f in files] for label in labels}
