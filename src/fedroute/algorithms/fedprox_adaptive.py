"""FedProx whose spring grows while the loss rises and gives way while it falls."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedroute.algorithms.fedprox import FedProx
from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Tree, Weights


@dataclass(frozen=True, kw_only=True)
class FedProxAdaptive(FedProx):
    """Li et al. 2020, "Federated Optimization in Heterogeneous Networks", the rule for mu of its experiments: mu goes
    up by 0.1 when the loss has risen from one round to the next, and down by 0.1 when it has fallen in five rounds
    running, never below 0. All else is `fedprox`; `step_mu: 0` is fedprox itself.

    The loss is that of the server's weights, before a client's first step, on its first batch of the round: it costs
    no pass of its own, and is one number that each client sends, averaged by their say. Training rows alone decide mu.

    Deviations: those of fedprox; the paper looks at the loss on all training rows, and this at a batch of each client
    that takes part, which is noisy where batches are small or clients take turns: take a smaller `step_mu` there."""

    mu: Annotated[float, Field(ge=0, description="strength of the spring to the server's weights at first")] = 0.0
    step_mu: Annotated[float, Field(ge=0, description="what mu goes up or down by")] = 0.1
    patience: Annotated[int, Field(ge=1, description="rounds of falling loss after which mu goes down")] = 5
    broadcast: ClassVar[tuple[str, ...]] = ("w", "mu")
    sends: ClassVar[dict[str, str]] = Algorithm.sends | {
        "f": "loss of the server's weights on the first batch: one number"
    }

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        some = next(v for v in w.values() if v.is_floating_point())
        last = {"mu": some.new_tensor(self.mu), "loss": some.new_tensor(torch.inf), "fell": torch.tensor(0)}
        return super().init(w, sizes) | last

    def begin(self, ctx: Context) -> Tree:
        return super().begin(ctx) | {"f": torch.zeros_like(ctx.server["mu"])}

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        anchor, mu = ctx.server["w"], ctx.server["mu"]
        return {k: v + mu * (w[k] - anchor[k]) if k in anchor else v for k, v in g.items()}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        return after | {"f": torch.where(ctx.step == 0, loss.to(carry["f"].dtype), carry["f"])}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up | {"f": carry["f"]}, kept

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        f, before, mu = mean["f"], server["loss"], server["mu"]
        fell = torch.where((f < before) & before.isfinite(), server["fell"] + 1, torch.zeros_like(server["fell"]))
        down = fell >= self.patience
        mu = torch.where(f > before, mu + self.step_mu, torch.where(down, (mu - self.step_mu).clamp(min=0), mu))
        after = {"mu": mu, "loss": f, "fell": torch.where(down, torch.zeros_like(fell), fell)}
        return super().aggregate(server, {"dw": mean["dw"]}, share) | after
