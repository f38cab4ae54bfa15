"""Each client mixes the global model into its own, weight by weight, as its data say, and trains from there."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context, run_client
from fedroute.phase import first_steps
from fedroute.task import Task
from fedroute.tree import Tree, Weights, pick, select


@dataclass(frozen=True, kw_only=True)
class FedALA(Algorithm):
    """Zhang et al. 2023, "FedALA: Adaptive Local Aggregation for Personalized Federated Learning", algorithm 1 and
    equations 4 to 6. Theta: the server's weights; Theta_i: those that client i had after its last training; W_i: a
    number in [0, 1] for each weight of the higher layers.

        start of a round    Theta^_i = Theta_i + (Theta - Theta_i) W_i in the higher layers, Theta in the lower ones
        learning W_i        W_i <- clip(W_i - eta dL(Theta^_i)/dW_i, 0, 1), dL/dW_i = g(Theta^_i) (Theta - Theta_i)
        training            local steps from Theta^_i; the result is Theta_i, is sent, and is what i predicts with

    W_i starts at 1 (FedAvg) and is kept from round to round. Shared: all but the private weights; kept: Theta_i, W_i.

    Deviations. The higher layers are named by role or name (`higher`) and not counted from the top. W_i is learned on
    the first steps of a round, a share `s` of them (at least one and never the last), and the local training has the
    others, so that a round costs a client what FedAvg does; the paper draws a share s of the rows and trains on all.
    It learns W_i until it converges when it does so first: here learning goes on over the rounds instead. Statistics of
    batch norm are the server's at the start. Private weights are not mixed. s = 0 is FedAvg. A newcomer begins with
    its Theta_i at the model's initial weights, and makes a round of its own."""

    eta: Annotated[float, Field(gt=0, description="learning rate of the mixing weights")] = 1.0
    s: Annotated[float, Field(ge=0, lt=1, description="share of a round's steps that learn the mixing weights")] = 0.2
    higher: Annotated[tuple[str, ...], Field(description="roles or names of the weights that are mixed")] = ("head",)

    def bind(self, task: Task) -> "FedALA":
        task.named(*self.higher)
        return super().bind(task)

    def _mixed(self, w: Weights) -> Weights:
        higher = self.task.named(*self.higher) - self.kept
        return {k: v for k, v in pick(w, self.task.trainable).items() if k in higher}

    def init_client(self, w: Weights) -> Tree:
        local = {k: v for k, v in w.items() if k not in self.kept}
        ones = {k: torch.ones_like(v) for k, v in self._mixed(w).items()}
        return super().init_client(w) | {"local": local, "mix": ones}

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        return carry | {"w": carry["w"] | self._aggregated(ctx.private["mix"], ctx), "mix": ctx.private["mix"]}

    def _aggregated(self, mix: Weights, ctx: Context) -> Weights:
        local, shared = ctx.private["local"], ctx.server["w"]
        return {k: torch.lerp(local[k], shared[k], v) for k, v in mix.items()}  # exactly either of them at 0 and 1

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        g, buffers, loss = self.grad(carry["w"], batch, ctx)
        w, opt = self.optimizer.update(self.direction(g, carry["w"], ctx), carry["opt"], carry["w"], ctx.lr)
        trained = carry | {"w": w | buffers, "opt": opt}
        local, shared = ctx.private["local"], ctx.server["w"]
        mix = {k: (v - self.eta * g[k] * (shared[k] - local[k])).clamp(0, 1) for k, v in carry["mix"].items()}
        learned = carry | {"w": carry["w"] | self._aggregated(mix, ctx), "mix": mix}
        return select(ctx.step < first_steps(self.s, ctx.steps), learned, trained), loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        moved = ctx.steps > 0  # a client without steps changes nothing, though it would start from a mixture
        unmoved = ctx.server["w"] | ctx.private["w"]
        up, kept = super().end(carry | {"w": select(moved, carry["w"], unmoved)}, ctx)
        local = select(moved, pick(carry["w"], ctx.private["local"]), ctx.private["local"])
        return up, kept | {"local": local, "mix": carry["mix"]}

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**private["local"], **private["w"]}

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return run_client(self, ctx, batches)[1]
