"""A router made from what a training has left, everything open chosen on validation rows; and what it is worth on test
rows, looked at once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.data.queries import QueryForm
from fedroute.errors import InputError
from fedroute.router.abstain import abstention, fit_abstain
from fedroute.router.capacity import Capacity
from fedroute.router.inputs import RouterInput
from fedroute.router.measure import correct, cost, routing
from fedroute.router.models import Models
from fedroute.router.router import Router
from fedroute.router.selecting import Held, select
from fedroute.router.spec import RouterSpec
from fedroute.router.sums import Sums, rows_of

Log = Callable[[str], None]


def queries_of(federation: Federation, part: str, clients: Sequence[str]) -> Held:
    """The rows of a part as queries; owners are numbered by their place in `clients`."""
    indices = [getattr(federation, part)[federation.clients.index(c)] for c in clients]
    rows = torch.cat(indices)
    owner = torch.cat([torch.full((len(r),), i) for i, r in enumerate(indices)])
    return Held(federation.x.index_select(0, rows), owner, federation.y.index_select(0, rows))


def law_of(spec: RouterSpec, clients: Sequence[str]) -> Tensor | None:
    """(N,) by which clients send queries; None: as their training rows came."""
    if isinstance(spec.arrival, dict):
        return torch.tensor([spec.arrival.get(c, 0.0) for c in clients], dtype=torch.float64)
    return torch.ones(len(clients), dtype=torch.float64) if spec.arrival == "uniform" else None


def make_router(
    spec: RouterSpec, federation: Federation, models: Models, *, shares: Tensor, seed: int = 0, log: Log = print
) -> Router:
    """shares: (N,), by which clients counted in training. Newcomers join as anybody who comes later: by one upload.

    Raises InputError where spec, data and model do not fit."""
    federation = federation.as_queries()
    here = [i for i in range(len(federation.clients)) if i not in federation.newcomers]
    clients = tuple(federation.clients[i] for i in here)
    staying = replace(models, personal=tuple(models.personal[i] for i in here))
    held, law = queries_of(federation, "validation", clients), law_of(spec, clients)
    if not len(held.y):
        log("router: no validation rows, so nothing is chosen and nobody turned away (federation.split.validation)")
    c = select(spec, federation, staying, held, law=law, shares=shares, seed=seed, log=log)
    router = Router(
        clients=clients, labels=federation.labels, form=QueryForm.of(federation), models=staying, read=c.read,
        kind=c.way.kind, posterior=c.posterior, rule=c.rule, best=c.best, law=law, common=spec.common,
        mean=_mean_row(federation, here),
        temperatures=c.temperatures, aggregator=c.aggregator, capacity=_capacity(spec, clients),
        chosen=c.way.told() | {"rule": c.rule, "abstain": spec.abstain, "upload_bytes": c.upload, "tried": c.tried},
    )  # fmt: skip
    what = f"{c.way.kind} on {', '.join(c.way.input)}"
    many = f", {c.way.random_features} random features of it" if c.way.random_features else ""
    log(f"router: {what}{many}, rule {c.rule}, chosen of {len(c.tried)} ways by {len(held.y)} validation rows")
    if spec.abstain is not None and len(held.y):
        router = _watchful(router, federation, here, held, spec.abstain, seed)
    for i in federation.newcomers:
        router = _joined(router, federation, models, i, log)
    return router


def _watchful(
    router: Router, federation: Federation, here: Sequence[int], held: Held, alpha: float, seed: int
) -> Router:
    """The router that turns queries away which are unlike every client's rows."""
    kinds = {2: ("columns",), 4: ("style", "histogram")}.get(federation.x.ndim, ("deep",))
    m = router.models
    seen = router.read
    if seen.kinds != kinds or seen.lifts:
        seen = RouterInput.of(kinds, m.trunk, m.shared, federation, seed=seed)
    sums = [Sums.of(rows_of(seen, federation, i)) for i in here]
    abstain = fit_abstain(seen.read(held.x), router.scores(held.x), held.owner, sums, alpha=alpha)
    return replace(router, seen=seen, abstain=abstain)


def _mean_row(federation: Federation, here: Sequence[int]) -> Tensor | None:
    """(F,), of the training rows of these clients, where they are of a table."""
    if federation.table is None:
        return None
    return federation.x.index_select(0, torch.cat([federation.train[i] for i in here])).mean(0)


def _joined(router: Router, federation: Federation, models: Models, i: int, log: Log) -> Router:
    """With a newcomer, where it can join."""
    name, rows = federation.clients[i], federation.train[i]
    if not len(rows):
        return router
    batch = federation.x.index_select(0, rows), federation.y.index_select(0, rows)
    try:
        return router.join(name, models.personal[i], router.upload(*batch))
    except InputError as e:
        log(f"{e} ({name} is not reachable)")
        return router


def evaluate_router(router: Router, federation: Federation, *, seed: int = 0) -> dict[str, Any]:
    """The `routing` part of summary.json: test rows of all clients as queries that say not whose they are."""
    asked = queries_of(federation.as_queries(), "test", router.clients)
    scores = router.scores(asked.x)
    options: dict[str, Any] = {"arrival": router.law, "best": router.best}
    found = routing(scores, asked.owner, asked.y, rule=router.rule, seed=seed, **options)
    query = asked.x[:1].numel() * asked.x.element_size()
    found |= {
        "clients": list(router.clients),
        "best_single": None if router.best is None else router.clients[router.best],
        "cost": cost(router.rule, len(router.clients), len(router.labels), query, bodies=router.answering.bodies),
        "chosen": {k: v for k, v in router.chosen.items() if k != "tried"},
        "tried": router.chosen.get("tried", []),
    }
    if router.abstain:
        refused = router.refuses(asked.x, scores)
        hits = torch.from_numpy(correct(router.decide(scores).answer, asked.y))
        found["abstain"] = abstention(refused, asked.owner, router.clients) | {
            "alpha": router.chosen.get("abstain"),
            "share": float(refused.double().mean()) if len(refused) else None,
            "accuracy_of_answered": _mean(hits[~refused]),
            "accuracy_of_abstained": _mean(hits[refused]),
        }
    return found


def _mean(hits: Tensor) -> float | None:
    return float(hits.double().mean()) if len(hits) else None


def _capacity(spec: RouterSpec, clients: Sequence[str]) -> Capacity | None:
    if not spec.capacity:
        return None
    return Capacity(torch.tensor([spec.capacity.get(c, 1.0) for c in clients], dtype=torch.float64))
