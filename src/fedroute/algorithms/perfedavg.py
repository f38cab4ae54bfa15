"""A shared starting point from which one gradient step suits each client."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call

from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Tree, Weights, axpy, pick, zeros


@dataclass(frozen=True, kw_only=True)
class PerFedAvg(Algorithm):
    """Fallah et al. 2020, "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
    Approach", algorithm 1: minimise the mean of F_i(w) = f_i(w - alpha grad f_i(w)) by local SGD on F_i,
    whose gradient, on three batches D, D', D'' of the client, is

        (I - alpha Hessian(w; D'')) grad f_i(w - alpha grad f_i(w; D); D')

    variant: "exact" multiplies by the Hessian by differentiating twice; "HF" takes instead the difference of two
    gradients, (grad f_i(w + delta d; D'') - grad f_i(w - delta d; D'')) / (2 delta), d the gradient ahead; "FO" leaves
    the Hessian out, which is cheapest and biased by about alpha. A step costs 2 gradients (FO) or about 4.

    D, D' and D'' are the parts of one batch of the round, two for FO and else three; a batch with too few rows for that
    (one each, two with batch norm) stands for all of them. The learning rate is the paper's beta. At the end a client
    predicts with w - alpha grad f_i(w), the gradient over one pass of its own rows, or with as many such steps as
    `adapt_epochs` says; before, with the global weights.

    Deviation: statistics of batch norm are those that D has at w, and the last steps leave them as they are."""

    alpha: Annotated[float, Field(gt=0, description="length of the step that makes the shared model personal")] = 0.01
    variant: Annotated[Literal["FO", "HF", "exact"], Field(description="what is done about the Hessian")] = "FO"
    delta: Annotated[float, Field(gt=0, description="how far apart HF takes its two gradients")] = 1e-3
    adapt_epochs: Annotated[int, Field(ge=1, description="steps of length alpha at the end, each over all rows")] = 1

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        w, (here, there, curve) = carry["w"], self.parts(batch)
        g, buffers, _ = self.grad(w, here, ctx)
        d, _, loss = self.grad(axpy(-self.alpha, g, w), there, ctx)
        if self.variant != "FO":
            d = axpy(-self.alpha, self.curvature(w, d, curve, ctx), d)
        new, opt = self.optimizer.update(self.direction(d, w, ctx), carry["opt"], w, ctx.lr)
        return carry | {"w": new | buffers, "opt": opt}, loss

    def parts(self, batch: Batch) -> list[Batch]:
        """D, D', D''."""
        n, rows = 2 if self.variant == "FO" else 3, len(batch["x"])
        if rows < n * (2 if self.task.batch_norm else 1):
            return [batch] * 3
        cut = {k: v.tensor_split(n) for k, v in batch.items()}
        return [{k: v[min(j, n - 1)] for k, v in cut.items()} for j in range(3)]

    def curvature(self, w: Weights, d: Weights, batch: Batch, ctx: Context) -> Weights:
        """The Hessian on a batch times d."""
        if self.variant == "HF":
            ahead, behind = (self.grad(axpy(s * self.delta, d, w), batch, ctx)[0] for s in (1, -1))
            return {k: (v - behind[k]) / (2 * self.delta) for k, v in ahead.items()}

        def f(p: Weights) -> Tensor:
            buffers = {k: v.clone() for k, v in w.items() if k not in p}
            out = functional_call(self.task.module, p | buffers, (batch["x"],), tie_weights=self.task.tied)
            return self.loss(out, batch, ctx)

        def along(p: Weights) -> Tensor:
            return torch.stack([(g * d[k]).sum() for k, g in torch.func.grad(f)(p).items()]).sum()

        product: Weights = torch.func.grad(along)(pick(w, d))
        return product

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        w, found = ctx.server["w"] | ctx.private["w"], list(batches)
        each = max(1, len(found) // self.adapt_epochs)  # batches of a pass
        for first in range(0, len(found), each):
            total, rows = zeros(pick(w, self.task.trainable)), 0
            for batch in found[first : first + each]:
                n = len(batch["x"])
                total, rows = axpy(n, self.grad(w, batch, ctx)[0], total), rows + n
            w = axpy(-self.alpha / rows, total, w)
        return {"w": ctx.private["w"], "tuned": w}

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**super().personal(server, private), **private.get("tuned", {})}
