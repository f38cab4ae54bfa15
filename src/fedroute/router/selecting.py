"""Which input, which fit and which rule: by what they are worth on validation rows, and by nothing else."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.evaluate.predict import predict
from fedroute.router import calibrate
from fedroute.router.aggregator import Aggregator, fit_aggregator, out_of_fold
from fedroute.router.answers import Answering, log_probabilities
from fedroute.router.base import Posterior
from fedroute.router.calibrate import Temperatures
from fedroute.router.cells import Cells
from fedroute.router.drm import Drm
from fedroute.router.fits import fit
from fedroute.router.inputs import RouterInput
from fedroute.router.measure import best_single, possible
from fedroute.router.models import Models
from fedroute.router.reading import Reading
from fedroute.router.rules import RULES, decide
from fedroute.router.scores import Scores
from fedroute.router.spec import RouterSpec

MANY, FEW = 2000, 400  # random features that are tried, FEW of less than ENOUGH training rows
ENOUGH = 1000
AUTO = ("lda", "ridge", "cells", "softmax")  # kinds that are tried where none is named: those that can be joined


class Way(NamedTuple):
    """One way to a posterior: its kind, what it reads, how many random features of that (0: none)."""

    kind: str
    input: tuple[str, ...]
    random_features: int

    def told(self) -> dict[str, Any]:
        return {"kind": self.kind, "input": ", ".join(self.input), "random_features": self.random_features}


class Held(NamedTuple):
    """Validation rows of the clients, as queries: x (B, ...), whose each is (B,), its label (B,)."""

    x: Tensor
    owner: Tensor
    y: Tensor


class Chosen(NamedTuple):
    """kind, input and posterior; what is made of it and of the answers before the rule; the rule; the best single
    client; the bytes that each client uploads for it; a line for each way and its best rule."""

    way: Way
    read: RouterInput
    posterior: Posterior
    temperatures: Temperatures | None
    aggregator: Aggregator | None
    rule: str
    best: int | None
    upload: int
    tried: list[dict[str, Any]]


def select(
    spec: RouterSpec,
    federation: Federation,
    models: Models,
    held: Held,
    *,
    law: Tensor | None = None,
    shares: Tensor | None = None,
    seed: int = 0,
    log: Callable[[str], None] = print,
) -> Chosen:
    """Of all that the spec leaves open the way and the rule that answer most validation rows rightly (weighted by the
    law, where queries come otherwise than rows); of equals the one whose answers are likelier, then the simpler one.

    law: (N,) by which clients send queries; shares: (N,) by which they counted in training, for kind drm. Where there
    are no validation rows nothing is chosen: the first way there is, and consensus. Raises InputError where no way
    fits data and model."""
    x, owner, y = held
    answering = Answering.of(models.task, models.personal, x if len(x) else federation.x[:2])
    common = None
    if spec.common and models.common is not None:
        common = log_probabilities(predict(models.task, models.common, x))
    heads = answering(x)
    if heads.shape[2] != len(federation.labels):
        raise InputError(
            f"router: the model puts out {heads.shape[2]} numbers and {federation.name} has {len(federation.labels)} "
            "labels; leave model.outputs out"
        )
    weight = _weights(law, owner, len(models.personal))
    reading = Reading(federation, models.trunk, models.shared)
    found, problems = list[tuple[tuple[float, float], Chosen]](), list[str]()
    for way in ways(spec, federation, models):
        try:
            read = reading.of(way.input, random_features=way.random_features, seed=seed)
            posterior, upload = _fitted(way, reading, read, federation.newcomers, shares, seed)
        except InputError as e:
            problems.append(str(e))
            continue
        z = read.read(x)
        labels = posterior.of_labels(z) if isinstance(posterior, Cells) else None
        scores = Scores(posterior.logits(z), posterior.prior, heads, common, labels)
        best = best_single(scores, y) if len(y) else None
        warm = calibrate.fit(scores, owner, y) if len(y) else None
        scores = warm.apply(scores) if warm else scores
        mix = fit_aggregator(scores, y, owner).aggregator if way.kind == "aggregator" else None
        scores = out_of_fold(scores, y, owner, seed=seed) if mix else scores  # on rows that it was not fitted to
        rules: list[str] = [spec.rule] if spec.rule != "auto" else _open_rules(scores, law)
        worth = [(_worth(rule, scores, y, weight, law, best), rule) for rule in rules]
        (right, likely), rule = max(worth, key=lambda w: (*w[0], -rules.index(w[1])))
        told = way.told() | {"upload_bytes": upload}
        told |= {"rule": rule, "validation": right, "client_accuracy": _named(scores, owner)}
        found.append(((right, likely), Chosen(way, read, posterior, warm, mix, rule, best, upload, [told])))
    if not found:
        raise InputError(problems[0])
    for text in dict.fromkeys(problems):
        log(f"{text} (not tried)")
    winner = max(range(len(found)), key=lambda k: (*found[k][0], -k))
    return found[winner][1]._replace(tried=[line for _, c in found for line in c.tried])


def ways(spec: RouterSpec, federation: Federation, models: Models) -> list[Way]:
    """What the spec leaves open, the simple first."""
    if spec.kind == "drm":
        return [Way("drm", ("branch",), 0)]
    inputs: list[tuple[str, ...]]
    if isinstance(spec.input, str):
        shallow = {2: ("columns",), 4: ("style",)}.get(federation.x.ndim)
        inputs = [shallow, ("deep",), (*shallow, "deep")] if shallow else [("deep",)]
    else:
        inputs = [tuple(spec.input)]
    many = MANY if int(federation.training_sizes().sum()) >= ENOUGH else FEW
    numbers = [0, many] if spec.random_features == "auto" else [int(spec.random_features)]
    kinds = AUTO if spec.kind == "auto" else (spec.kind,)
    found = [Way(k, i, m) for m in numbers for i in inputs for k in kinds]
    if spec.random_features == "auto":  # many numbers are for the closed forms, and of one input
        found = [w for w in found if not w.random_features or (w.kind in ("lda", "ridge") and len(w.input) == 1)]
    drm = spec.kind == "auto" and spec.input == "auto" and hasattr(models.trunk, "branch")
    return [*found, Way("drm", ("branch",), 0)] if drm else found


def _fitted(
    way: Way, reading: Reading, read: RouterInput, newcomers: Sequence[int], shares: Tensor | None, seed: int
) -> tuple[Posterior, int]:
    """Without the newcomers, who join later; and the bytes that each client uploads."""
    upload = 0  # of a branch: it went up with the rounds
    if way.kind == "drm":
        assert shares is not None
        posterior: Any = Drm.fit(read, shares)
    else:
        kind = "lda" if way.kind == "aggregator" else way.kind  # what an aggregator stands on
        posterior, _, _, upload = fit(kind, reading, read, seed=seed)
    for i in reversed(newcomers):
        posterior = posterior.leave(i)
    return posterior, upload


def _open_rules(scores: Scores, law: Tensor | None) -> list[str]:
    """The rules that may be chosen, in order of preference: those that send a query to one client."""
    given = {"arrival": law, "best": 0, "owner": None}
    found = [r for r, rule in RULES.items() if not rule.baseline and "mixture" not in r and possible(r, scores, given)]
    return sorted(found, key=lambda r: ("consensus" not in r, "global" in r))


def _weights(law: Tensor | None, owner: Tensor, clients: int) -> Tensor:
    """(B,), of sum 1: how much each validation row counts."""
    if law is None:
        return torch.full((len(owner),), 1 / max(1, len(owner)), dtype=torch.float64)
    rows = torch.bincount(owner, minlength=clients)
    each = torch.where(rows > 0, law / rows.clamp(min=1), 0.0)
    return each[owner] / each[owner].sum().clamp(min=1e-300)


def _worth(
    rule: str, scores: Scores, y: Tensor, weight: Tensor, law: Tensor | None, best: int | None
) -> tuple[float, float]:
    """(weighted share of right answers, weighted mean log-probability of the right answer)."""
    law = scores.prior if rule == "arrival" and law is None else law
    answer = decide(rule, scores, arrival=law, best=best).answer
    right = (answer.argmax(1) == y).double() @ weight
    likely = answer[torch.arange(len(y)), y].clamp(min=1e-12).log() @ weight
    return round(float(right), 9), float(likely)


def _named(scores: Scores, owner: Tensor) -> float | None:
    """How often the likeliest client is the owner."""
    return float((scores.router.argmax(1) == owner).double().mean()) if len(owner) else None
