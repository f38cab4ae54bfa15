"""FedAvg, and beside it each client's own model, trained and used as a mixture with the shared one."""

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
class APFL(Algorithm):
    """Deng et al. 2020, "Adaptive Personalized Federated Learning", algorithm 1. Client i has a copy w_i of the shared
    model, a model v_i of its own, and alpha_i in 0..1; in each step

        w_i <- w_i - lr grad f_i(w_i)
        v_i <- v_i - lr alpha_i grad f_i(m_i),    m_i = alpha_i v_i + (1 - alpha_i) w_i
        alpha_i <- alpha_i - lr <v_i - w_i, grad f_i(m_i)>, clipped to 0..1

    all at the values before the step: the gradient is taken at the mixture m_i and nowhere else. w_i is averaged, v_i
    and alpha_i stay; client i predicts with alpha_i v_i + (1 - alpha_i) w, w the server's. alpha = 1, not adaptive, is
    training alone; alpha = 0 FedAvg.

    A newcomer makes the steps of v_i and alpha_i from the server's weights. Deviations: alpha_i moves in every step
    and not once in a while. v_i starts at the weights that the server first sends and not at the initial
    ones, and until then the client predicts with the server's. Statistics of batch norm are not mixed but those that
    the mixture itself has met."""

    alpha: Annotated[float, Field(ge=0, le=1, description="part of a client's own model in the mixture, at first")] = (
        0.5
    )
    adaptive: Annotated[bool, Field(description="whether each client learns its alpha")] = True

    def init_client(self, w: Weights) -> Tree:
        alpha = next(iter(pick(w, self.task.trainable).values())).new_full((), self.alpha)
        return super().init_client(w) | {"v": copies(w), "alpha": alpha, "seen": torch.zeros((), dtype=torch.int64)}

    def mixture(self, alpha: Tensor, v: Weights, w: Weights) -> Weights:
        return v | {k: alpha * v[k] + (1 - alpha) * w[k] for k in self.task.trainable}

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        v = select(ctx.private["seen"] > 0, ctx.private["v"], carry["w"])
        opt = self.optimizer.init(pick(v, self.task.trainable))
        return carry | {"v": v, "opt_v": opt, "alpha": ctx.private["alpha"]}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        w, v, alpha = carry["w"], carry["v"], carry["alpha"]
        g, buffers, _ = self.grad(self.mixture(alpha, v, w), batch, ctx)
        new, opt = self.optimizer.update({k: alpha * d for k, d in g.items()}, carry["opt_v"], v, ctx.lr)
        after = after | {"v": new | buffers, "opt_v": opt}
        if self.adaptive:
            slope = torch.stack([((v[k] - w[k]) * d).sum() for k, d in g.items()]).sum()
            after = after | {"alpha": (alpha - ctx.lr * slope).clamp(0, 1)}
        return after, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        own = {"v": carry["v"], "alpha": carry["alpha"], "seen": torch.ones_like(ctx.private["seen"])}
        return up, kept | select(ctx.steps > 0, own, pick(ctx.private, own))

    def personal(self, server: Tree, private: Tree) -> Weights:
        w = super().personal(server, private)
        return select(private["seen"] > 0, self.mixture(private["alpha"], private["v"], w), w)

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return run_client(self, ctx, batches)[1]
