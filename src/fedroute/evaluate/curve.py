"""A point of the learning curve: how all clients stand on one part, cheaply, between rounds."""

from collections.abc import Callable
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
    if part == "test":
        raise InputError("curve: the test part is for the ledger at the end; take validation or train")
    index: tuple[Tensor, ...] = getattr(federation, part)
    present = [i for i, rows in enumerate(index) if len(rows) and i not in federation.newcomers]
    point = {"part": part, "measured": len(present), "rows": sum(len(index[i]) for i in present)}
    if not present:
        return point | {"personal": None, "global": None}
    yard = yardstick(federation)
    shared: dict[int, Tensor] = {}
    if global_w is not None:
        out = predict_rows(task, global_w, federation, torch.cat([index[i] for i in present]))
        shared = dict(zip(present, out.split([len(index[i]) for i in present]), strict=True))
    on_global = {i: _values(federation, task, yard, index[i], out) for i, out in shared.items()}
    on_personal = {}
    for i in present:
        w = personal(i)
        if global_w is not None and same_weights(w, global_w):
            on_personal[i] = on_global[i]
        else:
            out = predict_rows(task, w, federation, index[i])
            on_personal[i] = _values(federation, task, yard, index[i], out)
    return point | {
        "personal": _summed_up(federation, yard, index, on_personal),
        "global": _summed_up(federation, yard, index, on_global) if on_global else None,
    }


def _values(federation: Federation, task: Task, yard: Yardstick, rows: Tensor, out: Tensor) -> dict[str, float | None]:
    y = federation.y.index_select(0, rows)
    if yard.headline == "loss":
        return {"loss": float(row_losses(task, out, federation.take(rows)).mean())}
    a = answers(out.numpy(), y.numpy())
    values: dict[str, float | None] = {"loss": float(a.loss.mean()), "accuracy": float(a.correct.mean())}
    if yard.headline == "pr_auc":
        values |= measure(a, Yardstick("pr_auc", ("pr_auc",), yard.positive))
    return values


def _summed_up(
    federation: Federation, yard: Yardstick, index: tuple[Tensor, ...], of: dict[int, dict[str, float | None]]
) -> dict[str, Any]:
    rows, names = [len(index[i]) for i in of], [federation.clients[i] for i in of]
    found: dict[str, Any] = {}
    for metric in next(iter(of.values())):
        total = aggregate([v[metric] for v in of.values()], rows, names, higher=metric != "loss")
        found |= {metric: total["mean"], f"worst_{metric}": total["worst"]}
        if metric == yard.headline:
            found["worst_client"] = total["worst_client"]
    return found
