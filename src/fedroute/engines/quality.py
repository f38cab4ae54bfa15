"""How well a client's training did, on rows that it holds out: one number, computed where the rows are."""

import copy
import math
from collections.abc import Callable

from fedroute.core import Algorithm, Task
from fedroute.data.federation import Federation
from fedroute.forward import evaluating
from fedroute.tree import Tree, Weights

LEAST = 1e-6  # so that no answer counts for nothing, and a round of bad ones still has a mean
ROWS = 512  # at once


def quality(task: Task, w: Weights, federation: Federation, client: int) -> float:
    """exp(-L), within LEAST..1. L: the mean over the client's validation rows of the task's loss of weights `w` in use
    (eval mode; of a model that returns a tuple its first member). Under cross entropy that is the geometric mean of the
    probabilities that the right labels are given. A client without validation rows has the quality of a guess, one over
    the number of labels; weights whose loss is NaN the least. A function of the client alone."""
    rows = federation.validation[client]
    if not len(rows):
        return 1 / max(1, len(federation.labels))
    total = 0.0
    with evaluating(task.module):
        for part in rows.split(ROWS):
            batch = federation.take(part)
            out = task(w, batch["x"])
            total += len(part) * float(task.loss(out[0] if isinstance(out, tuple) else out, batch))
    found = math.exp(-max(0.0, total / len(rows))) if math.isfinite(total) else 0.0
    return max(LEAST, found)


def watched(alg: Algorithm, seen: Callable[[Weights], object]) -> Algorithm:
    """The same algorithm, which shows `seen` the weights that a client's training ended with."""

    def end(carry: Tree, ctx: object) -> object:
        seen(carry["w"])
        return alg.end(carry, ctx)  # type: ignore[arg-type]

    twin = copy.copy(alg)
    twin.__dict__["end"] = end  # of this one alone; its class keeps every hook
    return twin
