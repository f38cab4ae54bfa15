"""Several models at the server; each client trains the one that fits its data best."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context
from fedroute.forward import loss_of
from fedroute.parts import tuned
from fedroute.phase import certain
from fedroute.randomness import generator
from fedroute.tree import Tree, Weights, pick, select


@dataclass(frozen=True, kw_only=True)
class IFCA(Algorithm):
    """Ghosh et al. 2020, "An Efficient Framework for Clustered Federated Learning", algorithm 1 with model averaging
    (option II). theta_1 .. theta_k: the server's models; s_i: client i's choice, one-hot.

        client    j = argmin_j F_i(theta_j); local steps from theta_j; sends how far it went, and s_i
        server    theta_j <- theta_j + the mean of the changes of those who chose j, weighted by their say

    A client predicts with the model it chose last. All k models come down in every round, one goes up.

    Deviations. F_i is taken on the first batch of the round (all of the client's rows where batch_size is at least
    their number). The models start apart: theta_1 is the model's initial weights; of the others each leaf w that is no
    weight of a norm is sqrt(1 - spread^2) w + spread rms(w) e with normal e of a fixed key, so that its scale is kept
    (the paper draws starts anew). Every cluster has its own state of the server's optimiser; one that nobody chose
    stays as it is. Private weights are the client's, whichever model it takes. A newcomer takes the model of lowest
    loss over all its rows, and trains its private weights alone."""

    k: Annotated[int, Field(ge=1, description="how many models")] = 2
    spread: Annotated[float, Field(ge=0, le=1, description="how far apart they start; 1: independent")] = 0.5
    broadcast: ClassVar[tuple[str, ...]] = ("models",)
    reduce: ClassVar[str] = "stack"
    sends: ClassVar[dict[str, str]] = {
        "dw": "change of the shared weights of the chosen model",
        "s": "which model was chosen: a one and zeros",
    }

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        one = super().init(w, sizes)
        starts = [self._apart(one["w"], j) for j in range(self.k)]
        models = {name: torch.stack([start[name] for start in starts]) for name in one["w"]}
        return {"w": {}, "models": models, "opt": {str(j): one["opt"] for j in range(self.k)}}

    def _apart(self, w: Weights, j: int) -> Weights:
        g, found = generator("ifca", j), dict(w)
        for name, v in w.items():
            if j and name in self.task.trainable and name not in self.task.norms:
                e = torch.randn(v.shape, generator=g, dtype=torch.float64).to(v.dtype)
                found[name] = (1 - self.spread**2) ** 0.5 * v + self.spread * v.square().mean().sqrt() * e
        return found

    def init_client(self, w: Weights) -> Tree:
        first = torch.zeros(self.k, dtype=next(iter(w.values())).dtype)
        first[0] = 1
        return super().init_client(w) | {"s": first}

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(_on(ctx, _model(ctx.server["models"], torch.tensor(0))))
        return carry | {"s": torch.zeros_like(ctx.private["s"])}

    def losses(self, batch: Batch, ctx: Context) -> Tensor:
        """(k,), of each model on a batch, in training mode, as a step sees it."""
        models = [_model(ctx.server["models"], torch.tensor(j)) for j in range(self.k)]
        return torch.stack([loss_of(self, w | ctx.private["w"], batch, ctx) for w in models])

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        first = certain(ctx.step == 0)
        if first is not False:
            losses = self.losses(batch, ctx)
            s = torch.nn.functional.one_hot(losses.argmin(), self.k).to(carry["s"].dtype)
            w = carry["w"] | _model(ctx.server["models"], losses.argmin())
            carry = select(first, carry | {"w": w, "s": s}, carry)
        return super().step(carry, batch, ctx)

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        s = carry["s"]
        up, kept = super().end(carry, _on(ctx, _model(ctx.server["models"], s.argmax())))
        return up | {"s": s}, kept | {"s": torch.where(ctx.steps > 0, s, ctx.private["s"])}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        new, opt = [_model(server["models"], torch.tensor(j)) for j in range(self.k)], dict(server["opt"])
        for j in range(self.k):
            say = mean["say"] * mean["s"][:, j]
            if say.sum() > 0:
                part = {k: torch.tensordot((say / say.sum()).to(d.dtype), d, 1) for k, d in mean["dw"].items()}
                after = super().aggregate({"w": new[j], "opt": opt[str(j)]}, {"dw": part}, share)
                new[j], opt[str(j)] = after["w"], after["opt"]
        models = {name: torch.stack([w[name] for w in new]) for name in server["models"]}
        return server | {"models": models, "opt": opt}

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**_model(server["models"], private["s"].argmax()), **private["w"]}

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        batches = list(batches)
        total = [len(batch["x"]) * self.losses(batch, ctx) for batch in batches]
        j = torch.stack(total).sum(0).argmin() if total else ctx.private["s"].argmax()
        own = pick(tuned(self, _on(ctx, _model(ctx.server["models"], j)), batches, self.kept), self.kept)
        return {"w": own, "s": torch.nn.functional.one_hot(j, self.k).to(ctx.private["s"].dtype)}


def _model(models: Weights, j: Tensor) -> Weights:
    return {k: v.index_select(0, j.reshape(1)).squeeze(0) for k, v in models.items()}


def _on(ctx: Context, w: Weights) -> Context:
    """The context with one model in the place of the server's weights."""
    return ctx._replace(server={"w": w})
