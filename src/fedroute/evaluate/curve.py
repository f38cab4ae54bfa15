"""A point of the learning curve: how all clients stand on one part, cheaply, between rounds."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.evaluate.aggregate import aggregate
from fedroute.evaluate.metrics import Yardstick, answers, measure, yardstick
from fedroute.evaluate.predict import predict_rows, row_losses, same_weights
from fedroute.tree import Weights


def curve_point(
    federation: Federation,
    task: Task,
    personal: Callable[[int], Weights],
    global_w: Weights | None,
    part: str = "validation",
) -> dict[str, Any]:
    """How the personal models and the global one do on each client's own rows of a part, over the clients with rows.
    Newcomers, which have no model of their own before the end, are not among them.

    {part, measured: clients, rows, personal: {...} or None, global: {...} or None}, where {...} is loss, worst_loss
    and worst_client, and for classes also accuracy and worst_accuracy: means over clients, each counting once; where
    events are rare also pr_auc and worst_pr_auc. worst_client is by the headline metric. None where there is no such
    model, or no client has rows in the part.

    One pass over all rows for the global model; a client whose personal weights are the global ones is not computed
    again. Raises InputError for part "test": a curve is looked at to choose, and nothing is chosen on test rows."""
    _no_test(part)
    index: tuple[Tensor, ...] = getattr(federation, part)
    present = [i for i, rows in enumerate(index) if len(rows) and i not in federation.newcomers]
    if not present:
        return curve_of({}, "", part)
    yard = yardstick(federation)
    shared: dict[int, Tensor] = {}
    if global_w is not None:
        out = predict_rows(task, global_w, federation, torch.cat([index[i] for i in present]))
        shared = dict(zip(present, out.split([len(index[i]) for i in present]), strict=True))
    found = {}
    for i in present:
        w = personal(i)
        reuse = global_w is not None and same_weights(w, global_w)
        out = shared[i] if reuse else predict_rows(task, w, federation, index[i])
        found[federation.clients[i]] = values_of(federation, task, yard, index[i], out, shared.get(i))
    return curve_of(found, yard.headline, part)


def values_of(
    federation: Federation, task: Task, yard: Yardstick, rows: Tensor, personal: Tensor, shared: Tensor | None
) -> dict[str, Any]:
    """One client's part of a point: {rows, personal: {metric: value}, global: the same or None}, from what its own
    model and the global one say of its rows."""
    on_own = _values(federation, task, yard, rows, personal)
    on_shared = (
        on_own if shared is personal else _values(federation, task, yard, rows, shared) if shared is not None else None
    )
    return {"rows": len(rows), "personal": on_own, "global": on_shared}


def curve_of(values: Mapping[str, Mapping[str, Any]], headline: str, part: str = "validation") -> dict[str, Any]:
    """A point, as `curve_point` says it, from the values of the clients that have rows: name -> as of `values_of`."""
    _no_test(part)
    found: dict[str, Any] = {"part": part, "measured": len(values), "rows": sum(v["rows"] for v in values.values())}
    for kind in ("personal", "global"):
        of = {c: (v["rows"], v[kind]) for c, v in values.items() if v[kind] is not None}
        found[kind] = _summed_up(of, headline) if of else None
    return found


def _no_test(part: str) -> None:
    if part == "test":
        raise InputError("curve: the test part is for the ledger at the end; take validation or train")


def _values(federation: Federation, task: Task, yard: Yardstick, rows: Tensor, out: Tensor) -> dict[str, float | None]:
    y = federation.y.index_select(0, rows)
    if yard.headline == "loss":
        return {"loss": float(row_losses(task, out, federation.take(rows)).mean())}
    a = answers(out.numpy(), y.numpy())
    values: dict[str, float | None] = {"loss": float(a.loss.mean()), "accuracy": float(a.correct.mean())}
    if yard.headline == "pr_auc":
        values |= measure(a, Yardstick("pr_auc", ("pr_auc",), yard.positive))
    return values


def _summed_up(of: Mapping[str, tuple[int, Mapping[str, float | None]]], headline: str) -> dict[str, Any]:
    """of: client -> (rows, metric -> value)."""
    rows, names = [n for n, _ in of.values()], [*of]
    found: dict[str, Any] = {}
    for metric in next(iter(of.values()))[1]:
        total = aggregate([v[metric] for _, v in of.values()], rows, names, higher=metric != "loss")
        found |= {metric: total["mean"], f"worst_{metric}": total["worst"]}
        if metric == headline:
            found["worst_client"] = total["worst_client"]
    return found
