"""FedAvg with every local step corrected for how the client differs from the federation."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Tree, Weights, axpy, pick, zeros


@dataclass(frozen=True, kw_only=True)
class Scaffold(Algorithm):
    """Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", algorithm 1.
    x: the server's weights; y_i: a client's; c_i, c: control variates, estimates of client i's gradient and of the mean
    gradient over all N clients; S: those who answered.

        local step    y_i <- y_i - lr (g_i(y_i) - c_i + c)
        option I      c_i+ = g_i(x), a second gradient on each batch
        option II     c_i+ = c_i - c + (x - y_i) / (K lr)
        server        x <- x + server_lr mean_S (y_i - x);  c <- c + |S|/N mean_S (c_i+ - c_i), so c = mean of all c_i

    Deviations. Option II keeps the mean of the raw gradients g_i over the K steps: under plain SGD that is the
    paper's formula (put the local step into it), and it stays an estimate of the gradient under momentum, weight
    decay or Adam, with unequal K, and whatever lr a schedule gives. Option I averages over the rows of this round's
    batches, which are all of the client's rows where a round is a whole number of passes; it bears a smaller lr than
    option II, since what it adds over a round is K lr (c - c_i) with gradients from before the first step. Control
    variates exist for the trainable shared weights only: statistics of batch norm have no gradient, private weights
    have no common optimum to be corrected towards. A client that makes no step keeps its c_i. Clients without rows
    are not among the N. Under a weighting that is not uniform every mean, and so c, is weighted likewise."""

    option: Annotated[Literal["I", "II"], Field(description="how c_i is renewed: I costs a second gradient")] = "II"
    broadcast: ClassVar[tuple[str, ...]] = ("w", "c")
    sends: ClassVar[dict[str, str]] = Algorithm.sends | {"dc": "change of the control variate of these weights"}
    weighting: ClassVar[str] = "uniform"
    uncapped: ClassVar[str] = (
        "SCAFFOLD's c is the mean of c_i over all clients, and a say that depends on who else answered breaks that"
    )

    def _controlled(self, w: Weights) -> Weights:
        return {k: v for k, v in pick(w, self.task.trainable).items() if k not in self.kept}

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        return super().init(w, sizes) | {"c": zeros(self._controlled(w))}

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"c": zeros(self._controlled(w))}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server, mean, share) | {"c": axpy(share, mean["dc"], server["c"])}

    def begin(self, ctx: Context) -> Tree:
        return super().begin(ctx) | {"g": zeros(ctx.server["c"]), "n": torch.zeros_like(ctx.steps)}

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        c, c_i = ctx.server["c"], ctx.private["c"]
        return {k: v - c_i[k] + c[k] if k in c else v for k, v in g.items()}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        g, buffers, loss = self.grad(carry["w"], batch, ctx)
        w, opt = self.optimizer.update(self.direction(g, carry["w"], ctx), carry["opt"], carry["w"], ctx.lr)
        n = 1
        if self.option == "I":
            g, n = self.grad(ctx.server["w"] | ctx.private["w"], batch, ctx)[0], len(batch["x"])
        total = axpy(n, pick(g, carry["g"]), carry["g"])
        return carry | {"w": w | buffers, "opt": opt, "g": total, "n": carry["n"] + n}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        old, n = ctx.private["c"], carry["n"]
        new = {k: torch.where(n > 0, carry["g"][k] / n.clamp(min=1), old[k]) for k in old}
        return up | {"dc": axpy(-1, old, new)}, kept | {"c": new}
