"""The worst mixture of clients is what is minimised: agnostic federated learning."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context
from fedroute.forward import loss_of
from fedroute.tree import Tree, Weights


@dataclass(frozen=True, kw_only=True)
class AFL(Algorithm):
    """Mohri et al. 2019, "Agnostic Federated Learning", algorithm 1 (Stochastic-AFL), which solves
    min_w max_lambda sum_i lambda_i F_i(w), lambda in the simplex over clients.

        w        <- w - step of sum_i lambda_i grad F_i(w)
        lambda   <- project(lambda + gamma (F_1(w), ..., F_N(w))), onto the simplex

    lambda starts uniform over the clients with rows. It takes the place of any weighting.

    Deviations. The step of w is a round of local training: sum_i lambda_i (w_i - w); with one local step on all rows it
    is the paper's. Of clients that take turns those who answered count by lambda_i over its sum among them, and lambda
    moves at their places alone before it is projected. F_i is the mean over the rows of this round's batches, by a
    second forward pass at the server's weights, in training mode. The last w is kept, where the paper returns the
    mean of all."""

    gamma: Annotated[float, Field(ge=0, description="step of lambda on the clients' losses; 0: uniform")] = 0.1
    reduce: ClassVar[str] = "stack"
    weighting: ClassVar[str] = ""
    sends: ClassVar[dict[str, str]] = Algorithm.sends | {"f": "mean loss of the server's weights on this round's rows"}

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        present, some = sizes > 0, next(v for v in w.values() if v.is_floating_point())
        lam = present.to(some.dtype) / present.sum().clamp(min=1)
        return super().init(w, sizes) | {"lam": lam, "present": present}

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        some = next(v for v in carry["w"].values() if v.is_floating_point())
        return carry | {"total": some.new_zeros(()), "rows": torch.zeros_like(ctx.steps)}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        rows, f = len(batch["x"]), loss_of(self, ctx.server["w"] | ctx.private["w"], batch, ctx)
        return after | {"total": carry["total"] + rows * f, "rows": carry["rows"] + rows}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up | {"f": carry["total"] / carry["rows"].clamp(min=1)}, kept

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        at, lam = mean["client"], server["lam"]
        say = lam[at] / lam[at].sum() if lam[at].sum() > 0 else torch.full_like(lam[at], 1 / len(at))
        dw = {k: torch.tensordot(say.to(v.dtype), v, 1) for k, v in mean["dw"].items()}
        raised = lam.double().index_add(0, at, self.gamma * mean["f"].double())[server["present"]]
        lam = torch.zeros_like(lam).masked_scatter(server["present"], project(raised).to(lam.dtype))
        return super().aggregate(server, {"dw": dw}, share) | {"lam": lam}


def project(v: Tensor) -> Tensor:
    """The nearest point of the simplex to v (n,): max(v - t, 0) with the t at which it sums to one."""
    ordered = v.sort(descending=True).values
    t = (ordered.cumsum(0) - 1) / torch.arange(1, len(v) + 1, dtype=v.dtype)
    return (v - t[(ordered > t).sum() - 1]).clamp(min=0)
