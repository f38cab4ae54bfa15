"""FedAvg with every client's change divided by how far its local steps could carry it."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context
from fedroute.optim import Optimizer
from fedroute.tree import Tree, Weights, pick


@dataclass(frozen=True, kw_only=True)
class FedNova(Algorithm):
    """Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    section 4. Client i's change is -lr sum_k a_ik g_ik; the weights a_i depend on its tau_i steps and its optimiser:

        d_i = (w_i - w) / |a_i|_1;    w <- w + tau_eff sum_i p_i d_i,    tau_eff = sum_i p_i |a_i|_1

    |a_i|_1 = tau_i for SGD; (tau_i - rho (1 - rho^tau_i) / (1 - rho)) / (1 - rho) for momentum rho;
    (1 - (1 - lr mu)^tau_i) / (lr mu) with a proximal term of strength mu. FedAvg moves towards the optimum of
    sum_i p_i |a_i|_1 F_i, FedNova towards that of sum_i p_i F_i.

    Deviations: |a_i|_1 is not taken from these formulas but from the local optimiser itself, which is fed a gradient of
    one at every step, so that it is right for any mixture of momentum, Nesterov and mu; for Adam, which is not linear
    in its gradients, it is the answer to a constant gradient. Weight decay belongs to F_i, as in the authors'
    experiments. Only trainable shared weights are normalised; statistics of batch norm are averaged as in FedAvg."""

    mu: Annotated[float, Field(ge=0, description="strength of a proximal term as in FedProx; 0: none")] = 0.0
    sends: ClassVar[dict[str, str]] = {
        "dw": "change of the shared weights, divided by a",
        "a": "how far the local steps could carry the client, |a_i|_1: one number",
    }

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        first = next(iter(pick(carry["w"], self.task.trainable).values()))
        unit = {"a": first.new_zeros(())}
        return carry | {"unit": {"w": unit, "opt": self._unit().init(unit)}}

    def _unit(self) -> Optimizer:
        return replace(self.optimizer, weight_decay=0.0)

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        anchor = ctx.server["w"]
        return {k: v + self.mu * (w[k] - anchor[k]) if k in anchor else v for k, v in g.items()} if self.mu else g

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        unit = carry["unit"]
        g = {k: 1 + self.mu * v for k, v in unit["w"].items()}
        w, opt = self._unit().update(g, unit["opt"], unit["w"], ctx.lr)
        return after | {"unit": {"w": w, "opt": opt}}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        a = -carry["unit"]["w"]["a"] / ctx.lr
        per = a.where(a > 0, a.new_ones(()))  # no step: nothing to divide
        dw = up["dw"] | {k: v / per for k, v in pick(up["dw"], self.task.trainable).items()}
        return {"dw": dw, "a": a}, kept

    def implausible(self, update: Tree, steps: int) -> str:
        """`a` lies between 0 and what `steps` steps with this momentum can give; more than a step each for Adam too."""
        a, most = float(update["a"]), steps / (1 - getattr(self.optimizer, "momentum", 0.0))
        return super().implausible(update, steps) or (
            "" if 0 <= a <= 10 * most else f"claims a = {a:g} of {steps} steps"
        )

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        dw = mean["dw"] | {k: v * mean["a"] for k, v in pick(mean["dw"], self.task.trainable).items()}
        return super().aggregate(server, {"dw": dw}, share)
