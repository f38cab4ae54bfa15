"""FedAvg, and beside it each client's own model on a spring to the server's weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context, run_client
from fedroute.parts import copies
from fedroute.tree import Tree, Weights, pick, select


@dataclass(frozen=True, kw_only=True)
class Ditto(Algorithm):
    """Li et al. 2021, "Ditto: Fair and Robust Federated Learning Through Personalization", algorithm 1. Client k solves
    for the global model as in FedAvg, and for its own v_k by steps on h_k(v_k; w) = F_k(v_k) + lam/2 |v_k - w|^2:

        v_k <- v_k - lr (grad F_k(v_k) + lam (v_k - w)),    w: the server's weights at the start of the round

    It predicts with v_k, which never leaves it. What it sends is FedAvg's, bit for bit (but for the random numbers of
    dropout). lam = 0 is training alone; the larger lam, the nearer v_k to w. lr (lam + curvature) must stay below 2, or
    v_k runs away.

    A newcomer makes the steps of v_k from the server's weights. Deviations: v_k makes as many steps as the global
    model, on the same batches; it starts at the weights that the server first sends and not at the initial ones, and
    until then the client predicts with the server's. Private weights have no server value and so no pull."""

    lam: Annotated[float, Field(ge=0, description="strength of the spring from a client's own model to w")] = 1.0

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"v": copies(w), "seen": torch.zeros((), dtype=torch.int64)}

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        v = select(ctx.private["seen"] > 0, ctx.private["v"], carry["w"])
        return carry | {"v": v, "opt_v": self.optimizer.init(pick(v, self.task.trainable))}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        v, anchor = carry["v"], ctx.server["w"]
        g, buffers, _ = self.grad(v, batch, ctx)
        g = {k: d + self.lam * (v[k] - anchor[k]) if k in anchor else d for k, d in g.items()}
        new, opt = self.optimizer.update(g, carry["opt_v"], v, ctx.lr)
        return after | {"v": new | buffers, "opt_v": opt}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        own = {"v": carry["v"], "seen": torch.ones_like(ctx.private["seen"])}
        return up, kept | select(ctx.steps > 0, own, pick(ctx.private, own))

    def personal(self, server: Tree, private: Tree) -> Weights:
        return select(private["seen"] > 0, private["v"], super().personal(server, private))

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return run_client(self, ctx, batches)[1]
