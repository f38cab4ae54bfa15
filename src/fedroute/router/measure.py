"""What routing is worth: every rule and baseline on the same queries, beside what it costs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.evaluate.intervals import Interval, paired_accuracy, verdict, wilson
from fedroute.evaluate.metrics import Answers, Array, Yardstick, calibration_error, measure
from fedroute.evaluate.wilson import Z
from fedroute.router.rules import RULES, decide, log_posterior
from fedroute.router.scores import Decision, Scores

MOST = 200  # clients, beyond which no table of who was taken for whom is made
POINTS = 50  # of a risk-coverage curve
NUMBER = 4  # bytes of a probability that is sent


def routing(
    scores: Scores,
    owner: Tensor,
    y: Tensor,
    *,
    rule: str = "consensus",
    arrival: Tensor | None = None,
    best: int | None = None,
    common_weight: float = 0.5,
    top: int = 2,
    seed: int = 0,
    rules: Sequence[str] | None = None,
    yard: Yardstick | None = None,
) -> dict[str, Any]:
    """The `routing` part of summary.json, of B queries: owner (B,) whose each is, y (B,) its label.

    rule: the one in use, chosen on validation rows. Others as for `decide`; rules: by default all that can be had.

    system_accuracy: rule -> the share of queries answered rightly, all queries alike; by the oracle it is the average
    accuracy of the clients' own models, each weighted by its queries, exactly. macro: the mean over clients of that
    share among their own queries. intervals, macro_intervals: 95 %, Wilson's, and the normal one of a mean of shares.
    client_accuracy: how often the likeliest client is the owner. differences: rule -> [difference, low, high] from the
    best baseline but the oracle, which is looked up on these very rows, in its favour. against: baseline -> the same of
    the rule in use from that baseline. pays: whether the rule in use beats the best one. macro_baseline,
    macro_difference: the best in macro and how far the rule in use is from it, [difference, low, high].
    confusion: owner (row) by client asked (column), of the rule in use, or of posterior where that asks nobody in
    particular. coverage: see `risk_coverage`, of the rule in use. calibration_error: of P of the likeliest client.
    metrics: rule -> those of `yard`, where it is given.

    Numbers are None where there is no query. Raises InputError as `decide` does, and where lengths differ."""
    if not len(scores.router) == len(owner) == len(y):
        raise InputError(
            f"router: {len(scores.router)} queries, {len(owner)} owners, {len(y)} labels: give one for each query"
        )
    options = {"arrival": arrival, "best": best, "common_weight": common_weight, "top": top, "seed": seed}
    options |= {"owner": owner}
    names = [r for r in RULES if possible(r, scores, options)] if rules is None else list(rules)
    made = {r: decide(r, scores, **options) for r in dict.fromkeys([*names, rule, "posterior"])}  # type: ignore[arg-type]
    hits = {r: correct(made[r].answer, y) for r in made}
    n, clients = len(y), scores.router.shape[1]
    by_client = {r: per_client(hits[r], owner, clients) for r in names}
    likeliest = log_posterior(scores).exp().amax(1).numpy()
    found_owner = (made["posterior"].client == owner).numpy()
    picked = rule if len(made[rule].client) and int(made[rule].client[0]) >= 0 else "posterior"
    baseline = best_baseline({r: float(hits[r].sum()) for r in names})
    macro = {r: _mean(by_client[r]) for r in names}
    rival = best_baseline({r: v for r, v in macro.items() if v is not None})
    return {
        "rule": rule,
        "queries": n,
        "client_accuracy": _share(found_owner),
        "client_accuracy_interval": _listed(wilson(int(found_owner.sum()), n)),
        "client_accuracy_macro": _mean(per_client(found_owner, owner, clients)),
        "calibration_error": calibration_error(likeliest, found_owner) if n else None,
        "system_accuracy": {r: _share(hits[r]) for r in names},
        "intervals": {r: _listed(wilson(int(hits[r].sum()), n)) for r in names},
        "macro": macro,
        "macro_intervals": {r: _listed(_macro_interval(hits[r], owner, clients)) for r in names},
        "baseline": baseline,
        "differences": {r: _difference(hits[r], hits[baseline]) for r in names} if baseline else {},
        "against": {r: _difference(hits[rule], hits[r]) for r in names if RULES[r].baseline and r != "oracle"},
        "pays": _pays(hits[rule], hits[baseline]) if baseline else "n/a",
        "macro_baseline": rival,
        "macro_difference": _macro_difference(hits[rule], hits[rival], owner, clients) if rival else None,
        "confusion": confusion(made[picked].client, owner, clients) if clients <= MOST else None,
        "confusion_of": picked,
        "coverage": risk_coverage(made[rule].score, hits[rule]),
        **({"metrics": {r: measure(_answers(made[r], y), yard) for r in names}} if yard else {}),
    }


def possible(rule: str, scores: Scores, given: Mapping[str, Any]) -> bool:
    """Whether what the rule needs is there."""
    there = {k for k, v in given.items() if v is not None}
    there |= {k for k in ("common", "labels") if getattr(scores, k) is not None}
    return {*RULES[rule].needs} <= there


def correct(answer: Tensor, y: Tensor) -> Array:
    """(B,) bool, whether the likeliest label, of equals the first, is y; never where the answer is NaN."""
    hit: Array = ((answer.argmax(1) == y) & ~answer.isnan().any(1)).numpy()
    return hit


def per_client(hit: Array, owner: Tensor, clients: int) -> Array:
    """(N,) the share of each client's queries that are hit; NaN where it has none."""
    rows = np.bincount(owner.numpy(), minlength=clients)
    hits = np.bincount(owner.numpy(), weights=hit, minlength=clients)
    share: Array = np.full(clients, np.nan)
    return np.divide(hits, rows, out=share, where=rows > 0)


def best_single(scores: Scores, y: Tensor) -> int:
    """The client whose model alone answers most of these queries rightly, of those that may be chosen; of equals the
    first. Give it everybody's validation rows."""
    right = ((scores.heads.argmax(2) == y[:, None]) & ~scores.heads.isnan().any(2)).sum(0)
    return int(right.masked_fill(scores.prior <= 0, -1).argmax())


def best_baseline(worth: Mapping[str, float]) -> str | None:
    """The baseline of most worth, the oracle aside; None where there is none."""
    rivals = [r for r in worth if RULES[r].baseline and r != "oracle"]
    return max(rivals, key=worth.__getitem__) if rivals else None


def confusion(client: Tensor, owner: Tensor, clients: int) -> list[list[int]]:
    """N lists of N counts: whose queries (list) were sent to whom (place in it)."""
    asked = client >= 0
    places = owner[asked] * clients + client[asked]
    table: list[list[int]] = torch.bincount(places, minlength=clients**2).reshape(clients, clients).tolist()
    return table


def risk_coverage(score: Tensor, hit: Array, points: int = POINTS) -> dict[str, Any]:
    """The share of wrong answers (risk) among the share of queries answered (coverage) where the surest are answered
    first; of queries with equal scores each has the mean risk of them. {coverage, risk: lists; area: the mean risk over
    all coverages (Geifman and El-Yaniv 2017), None where there is no query}."""
    n = len(hit)
    if not n:
        return {"coverage": [], "risk": [], "area": None}
    _, group = np.unique(-score.numpy(), return_inverse=True)
    wrong = np.bincount(group, weights=~hit) / np.bincount(group)
    risk = np.cumsum(wrong[np.sort(group)]) / np.arange(1, n + 1)
    at = np.unique(np.ceil(np.linspace(1 / points, 1, points) * n).astype(int)) - 1
    return {"coverage": ((at + 1) / n).tolist(), "risk": risk[at].tolist(), "area": float(risk.mean())}


def cost(rule: str, clients: int, labels: int, query_bytes: int, *, bodies: int = 1, top: int = 2) -> dict[str, Any]:
    """What one query costs. bodies: how many models run for all clients' answers where one place has their weights
    (`Answering.bodies`). query_bytes: of the query itself.

    asked: clients that the query is sent to; bytes: to them and back; both where private weights stay with their
    clients. hosted: models that run, where clients have left their private weights with the server, and bytes."""
    asks = RULES[rule].asks
    asked = {"one": 1, "top": min(top, clients), "all": clients, "none": 0}[asks]
    return {
        "asked": asked,
        "bytes": asked * (query_bytes + NUMBER * labels),
        "hosted": {"models": min(max(asked, 1), bodies), "bytes": 0},
    }


def _answers(decision: Decision, y: Tensor) -> Answers:
    p = decision.answer.numpy()
    broken = np.isnan(p).any(1)
    with np.errstate(divide="ignore"):
        loss = -np.log(p[np.arange(len(p)), y.numpy()])
    return Answers(p, np.where(broken, -1, p.argmax(1)), loss, y.numpy())


def _difference(a: Array, b: Array) -> list[float] | None:
    interval = paired_accuracy(a, b)
    return [float(a.mean() - b.mean()), *interval] if interval else None


def _macro_difference(a: Array, b: Array, owner: Tensor, clients: int) -> list[float] | None:
    """[difference, low, high] of the means over clients of shares: normal, with the variance of each client's paired
    difference after half a row is added to each cell of its two-by-two table (Agresti and Min 2005)."""
    won, lost = (per_client(w, owner, clients) for w in (a & ~b, b & ~a))
    seen = np.isfinite(won)
    if not seen.any():
        return None
    n = np.bincount(owner.numpy(), minlength=clients)[seen]
    up, down = won[seen] * n, lost[seen] * n
    variance = (up + down + 1 - (up - down) ** 2 / (n + 2)) / (n + 2) ** 2
    mean, half = float((won - lost)[seen].mean()), Z * math.sqrt(variance.sum()) / int(seen.sum())
    return [mean, max(-1.0, mean - half), min(1.0, mean + half)]


def _pays(a: Array, b: Array) -> str:
    return verdict(paired_accuracy(a, b)) if len(a) else "n/a"


def _macro_interval(hit: Array, owner: Tensor, clients: int) -> Interval | None:
    """Of the mean of per-client shares: normal, with the variance of each share after two hits and two misses are added
    to it (Agresti and Coull 1998), so that a client with no miss has some."""
    share = per_client(hit, owner, clients)
    seen = np.isfinite(share)
    if not seen.any():
        return None
    n = np.bincount(owner.numpy(), minlength=clients)[seen]
    p = (share[seen] * n + 2) / (n + 4)
    mean, half = float(share[seen].mean()), Z * math.sqrt((p * (1 - p) / (n + 4)).sum()) / int(seen.sum())
    return max(0.0, mean - half), min(1.0, mean + half)


def _share(hit: Array) -> float | None:
    return int(hit.sum()) / len(hit) if len(hit) else None


def _mean(share: Array) -> float | None:
    seen = share[np.isfinite(share)]
    return float(seen.mean()) if len(seen) else None


def _listed(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)
