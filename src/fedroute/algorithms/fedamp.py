"""Each client has a model of its own in the cloud, drawn towards those of clients whose models are like its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedroute.change import change, mixed, moved
from fedroute.core import Algorithm, Batch, Context, run_client
from fedroute.tree import Tree, Weights, pick, select


@dataclass(frozen=True, kw_only=True)
class FedAMP(Algorithm):
    """Huang et al. 2021, "Personalized Cross-Silo Federated Learning on Non-IID Data", algorithm 1, with the attention
    A(x) = 1 - exp(-x / sigma), so A'(x) = exp(-x / sigma) / sigma. w_i: client i's model; u_i: its model in the cloud.

        server    u_i = xi_ii w_i + sum_{j != i} xi_ij w_j,  xi_ij = alpha A'(|w_i - w_j|^2),  xi_ii = 1 - sum xi_ij
        client    w_i = argmin F_i(w) + lam / (2 alpha) |w - u_i|^2, by local steps that start at u_i

    There is no global model: client i is sent u_i alone, and sends w_i - u_i. It predicts with w_i.

    Deviations. Where alpha is so large that xi_ii would be negative, client i's xi_ij are scaled to sum to one, which
    is a smaller alpha for it (the paper asks for one small enough). Distances are over the trainable weights that are
    shared; statistics of batch norm are mixed with the same xi. Clients that were never heard are attended by nobody,
    and their u_i is the mean of the others' w_j; this is what a newcomer trains from. The pull acts on shared weights
    only. The server's optimiser and the say of clients have no part in it."""

    alpha: Annotated[float, Field(gt=0, description="step of the server along the attention")] = 1.0
    sigma: Annotated[float, Field(gt=0, description="squared distance at which attention has fallen to 1/e")] = 10.0
    lam: Annotated[float, Field(ge=0, description="weight of the attention; the pull to u_i is lam / alpha")] = 0.1
    broadcast: ClassVar[tuple[str, ...]] = ()
    own: ClassVar[tuple[str, ...]] = ("u",)
    reduce: ClassVar[str] = "stack"
    sends: ClassVar[dict[str, str]] = {"dw": "change of the client's own model from its model in the cloud"}
    weighting: ClassVar[str] = ""

    def _shared(self, w: Weights) -> Weights:
        return {k: v for k, v in w.items() if k not in self.kept}

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        n = len(sizes)
        each = {k: v.expand(n, *v.shape).clone() for k, v in self._shared(w).items()}
        return {"w": {}, "u": each, "models": each, "heard": torch.zeros(n, dtype=torch.bool)}

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"local": self._shared(w)}

    def begin(self, ctx: Context) -> Tree:
        return super().begin(_at(ctx))

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        u, pull = ctx.server["u"], self.lam / self.alpha
        return {k: v + pull * (w[k] - u[k]) if k in u else v for k, v in g.items()}

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        w = carry["w"]
        dw = {k: change(w[k], v) for k, v in ctx.server["u"].items() if k in self.task.travels}
        local = select(ctx.steps > 0, self._shared(w), ctx.private["local"])
        return {"dw": dw}, {"w": pick(w, self.kept), "local": local}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        at = mean["client"]
        models, heard = dict(server["models"]), server["heard"].clone()
        heard[at] = True
        for k, d in mean["dw"].items():
            models[k] = models[k].clone()
            models[k][at] = moved(server["u"][k][at], d)
        among = heard.nonzero().flatten()
        xi, u = self.attention({k: v[among] for k, v in models.items()}), dict(models)
        for k in self.task.travels & models.keys():
            u[k] = models[k].clone()
            u[k][among] = mixed(xi, models[k][among])
            u[k][~heard] = mixed(torch.full((len(among),), 1 / len(among)), models[k][among])
        return server | {"u": u, "models": models, "heard": heard}

    def attention(self, models: Weights) -> Tensor:
        """(n, n) float64, rows that sum to one: xi of n models, the leaves (n, ...)."""
        rows = [v.flatten(1).double() for k, v in models.items() if k in self.task.trainable]
        n = len(next(iter(models.values())))
        apart = torch.zeros(n, n, dtype=torch.float64)
        for v in rows:
            for i in range(n):  # differences and not inner products, which lose the digits of near models
                apart[i] += (v - v[i]).square().sum(1)
        xi = (self.alpha / self.sigma * torch.exp(-apart / self.sigma)).fill_diagonal_(0)
        xi = xi / xi.sum(1, keepdim=True).clamp(min=1)
        return xi + torch.diag(1 - xi.sum(1))

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**private["local"], **private["w"]}

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return run_client(self, ctx, batches)[1]


def _at(ctx: Context) -> Context:
    """The context with the cloud's model in the place of the server's."""
    return ctx._replace(server=ctx.server | {"w": ctx.server["u"]})
