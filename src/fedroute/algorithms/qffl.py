"""Clients with a higher loss count more: q-fair federated learning."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context
from fedroute.forward import loss_of
from fedroute.tree import Tree, pick


@dataclass(frozen=True, kw_only=True)
class QFFL(Algorithm):
    """Li et al. 2020, "Fair Resource Allocation in Federated Learning", algorithm 2 (q-FedAvg), which minimises
    sum_i F_i^(q+1) / (q + 1). F_i: client i's loss at the server's weights w; L = 1 / lr; d_i = L (w - w_i):

        client    Delta_i = F_i^q d_i,   h_i = q F_i^(q-1) |d_i|^2 + L F_i^q
        server    w <- w - sum Delta_i / sum h_i

    q = 0 is FedAvg with clients weighted uniformly; the larger q, the more the worst client counts. Delta and h are
    both sent divided by L, which their quotient does not see.

    Deviations. F_i is the mean over the rows of this round's batches, all of the client's rows where a round is a whole
    number of passes, by a second forward pass on each batch, in training mode; it is taken as 1e-10 at least. L is one
    over the round's learning rate. The sums are weighted as the config says, uniformly by default as in the paper.
    Statistics of batch norm and counts are averaged as in FedAvg; private weights have no server value and no part."""

    q: Annotated[float, Field(ge=0, description="how much a higher loss counts; 0: not at all")] = 1.0
    weighting: ClassVar[str] = "uniform"
    sends: ClassVar[dict[str, str]] = {
        "dw": "change of the shared weights, times F^q",
        "h": "what the sum of the changes is divided by: one number",
    }

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        some = next(iter(pick(carry["w"], self.task.trainable).values()))
        return carry | {"total": some.new_zeros(()), "rows": torch.zeros_like(ctx.steps)}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        rows, at_server = len(batch["x"]), loss_of(self, ctx.server["w"] | ctx.private["w"], batch, ctx)
        return after | {"total": carry["total"] + rows * at_server, "rows": carry["rows"] + rows}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        f = (carry["total"] / carry["rows"].clamp(min=1)).clamp(min=1e-10)
        d = pick(up["dw"], self.task.trainable)
        square = torch.stack([v.square().sum() for v in d.values()]).sum()
        h = self.q * f ** (self.q - 1) * square / ctx.lr + f**self.q
        dw = up["dw"] | {k: f**self.q * v for k, v in d.items()}
        return {"dw": dw, "h": torch.where(carry["rows"] > 0, h, torch.zeros_like(h))}, kept

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        h = mean["h"].where(mean["h"] > 0, torch.ones_like(mean["h"]))
        dw = mean["dw"] | {k: v / h for k, v in pick(mean["dw"], self.task.trainable).items()}
        return super().aggregate(server, {"dw": dw}, share)
