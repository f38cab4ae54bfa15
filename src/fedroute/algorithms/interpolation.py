"""FedAvg, and at the end each client mixes the global model with one of its own, as rows held out tell it."""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call

from fedroute.core import Algorithm, Batch, Context
from fedroute.parts import tuned
from fedroute.tree import Tree, Weights

SHARES = [j / 20 for j in range(21)]  # of the client's own model in the mixture


@dataclass(frozen=True, kw_only=True)
class Interpolation(Algorithm):
    """Mansour et al. 2020, "Three Approaches for Personalization with Applications to Federated Learning", section 5:
    client k predicts with lambda_k h_local + (1 - lambda_k) h_global, lambda_k taken from a few values by the loss.

    After the rounds, which are exactly FedAvg's, a client splits its rows: on most of them it trains its own model,
    from the global weights, for `adapt_epochs` passes; on those held out it then compares lambda_k = 0, 0.05, ..., 1
    and takes the best, of equals the most global. So a model that only learned its rows by heart is given no part. A
    client with too few rows to hold one out keeps the global model.

    Deviations from the paper's algorithm Mapper: the global model is FedAvg's and not trained by the gradient at the
    mixture, and the client's own model is trained once, at the end: batches are shuffled anew in each round, so that
    rows held out of one round would have been trained on in another. What is mixed are weights and not answers, which
    is the same for linear models; both ends lie near each other, since one starts at the other. The global model has
    met the rows held out as a client's part of the federation."""

    adapt_epochs: Annotated[int, Field(ge=1, description="passes over a client's rows not held out, at the end")] = 1
    held_out: Annotated[float, Field(gt=0, lt=1, description="part of the rows that lambda is fit on")] = 0.2

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        w, found = ctx.server["w"] | ctx.private["w"], list(batches)
        kept = {"w": ctx.private["w"], "tuned": w, "lambda": torch.zeros(())}
        once = found[: max(1, len(found) // self.adapt_epochs)]  # one pass: no row twice
        rows = sum(len(b["x"]) for b in once)
        held = max(1, round(self.held_out * rows))
        if rows - held < (2 if self.task.batch_norm else 1):
            return kept
        whole = {k: torch.cat([b[k] for b in once]) for k in once[0]}
        size = len(once[0]["x"])
        parts = max(1, (rows - held) // size)  # batches of at least the size: batch norm wants no small ones
        own = [{k: v[held:].tensor_split(parts)[j] for k, v in whole.items()} for j in range(parts)]
        v = tuned(self, ctx, own * self.adapt_epochs)
        test = [{k: t[:held].split(size)[j] for k, t in whole.items()} for j in range(math.ceil(held / size))]
        losses = torch.stack([self.judged(mixture(share, v, w), test, ctx) for share in SHARES])
        best = SHARES[int(losses.nan_to_num(nan=math.inf).argmin())]
        return kept | {"tuned": mixture(best, v, w), "lambda": torch.tensor(best)}

    def judged(self, w: Weights, batches: list[Batch], ctx: Context) -> Tensor:
        """The mean loss of these weights in use, (), over the rows of the batches."""
        module = copy.deepcopy(self.task.module).eval()
        with torch.no_grad():
            outs = [functional_call(module, w, (b["x"],), tie_weights=self.task.tied) for b in batches]
            losses = [len(b["x"]) * self.loss(out, b, ctx) for out, b in zip(outs, batches, strict=True)]
        return torch.stack(losses).sum() / sum(len(b["x"]) for b in batches)

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**super().personal(server, private), **private.get("tuned", {})}


def mixture(share: float, v: Weights, w: Weights) -> Weights:
    """share v + (1 - share) w; at the ends exactly w and v. Counts are those of v."""
    if share in (0.0, 1.0):
        return v if share else w
    return {k: share * v[k] + (1 - share) * t if t.is_floating_point() else v[k] for k, t in w.items()}
