"""Each client moves its features by a bias of its own, and all are held to one mean of the features."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from fedroute.core import Algorithm, Batch, Context
from fedroute.features import head_of
from fedroute.heads import Head, replace_head
from fedroute.task import Task
from fedroute.tree import Tree, Weights

OWN = ("client_bias", "client_mean", "client_batches")  # beside the head's own weights


class BiasedHead(Head):
    """z (B, D) -> (logits of z + client_bias, client_mean): the bias is trained, the mean of z is a moving average, to
    which a batch in training counts `momentum`, the first one all; its gradient reaches z."""

    client_bias: nn.Parameter
    client_mean: Tensor
    client_batches: Tensor
    momentum: float

    @classmethod
    def make(cls, head: nn.Linear, momentum: float, trained: bool) -> Self:
        made = cls.of(head)
        made.momentum = momentum
        zero = head.weight.detach().new_zeros(head.in_features)
        made.client_bias = nn.Parameter(zero, requires_grad=trained)
        made.register_buffer("client_mean", zero.clone())
        made.register_buffer("client_batches", torch.zeros((), dtype=torch.int64))
        return made

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        mean = self.client_mean
        if self.training:
            now = z.flatten(0, -2).mean(0)
            mean = torch.where(self.client_batches == 0, now, torch.lerp(mean.clone(), now, self.momentum))
            self.client_mean.copy_(mean.detach())
            self.client_batches.add_(1)
        return super().forward(z + self.client_bias), mean


@dataclass(frozen=True, kw_only=True)
class FedDBE(Algorithm):
    """Zhang et al. 2023, "Eliminating Domain Bias for Federated Learning in Representation Space".
    z = f(x): the features; zp_i: client i's representation bias (their PRBM); zg_i: the moving average of z at client
    i; zg: the federation's mean of z.

        loss    l(head(z + zp_i), y) + kappa MSE(zg_i, zg),   zg_i <- (1 - mu) zg_i + mu mean of z over the batch

    zp_i is trained with the weights and starts at zero. Shared: all weights. Kept: zp_i and zg_i. Sent: the change of
    the weights, and once zg_i. MSE is the mean over the features of their squared difference.

    Deviations. zg is settled after the first round that counts, from what its clients then have as zg_i, weighted as
    they are, and never again; until then there is no regulariser. (The paper takes the mean before training: that would
    be a round of its own.) Afterwards zeros are sent in the place of zg_i. The first batch ever sets zg_i, which so has
    no part of a zero it never was. kappa = 0 with bias: false is FedAvg. A newcomer fits zp_i to the weights it is
    given. The model must have a head that is one linear layer and its last."""

    kappa: Annotated[float, Field(ge=0, description="strength of the pull of the features' mean to the common one")] = (
        1.0
    )
    mu: Annotated[float, Field(gt=0, le=1, description="what a batch counts in the moving mean of the features")] = 0.1
    bias: Annotated[bool, Field(description="whether clients have a bias of their own on the features")] = True
    broadcast: ClassVar[tuple[str, ...]] = ("w", "consensus", "known")
    sends: ClassVar[dict[str, str]] = Algorithm.sends | {"mean": "mean of the features, in the first round; then zeros"}

    def bind(self, task: Task) -> Self:
        name, head = head_of(task)
        biased = BiasedHead.make(head, self.mu, self.bias)
        return super().bind(replace_head(task, biased, roles={f"{name}.{k}": "bias" for k in OWN}))

    @property
    def head(self) -> str:
        return head_of(self.task)[0]

    @cached_property
    def kept(self) -> frozenset[str]:
        return super().kept | {k for k in self.task.names if k.rpartition(".")[2] in OWN}

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        nothing = torch.zeros_like(w[f"{self.head}.client_mean"])
        return super().init(w, sizes) | {"consensus": nothing, "known": torch.tensor(False)}

    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        supervised = super().loss(out, batch, ctx)
        if not self.kappa:
            return supervised
        apart = (out[1] - ctx.server["consensus"]).square().mean()
        return supervised + self.kappa * torch.where(ctx.server["known"], apart, torch.zeros_like(apart))

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        mean = carry["w"][f"{self.head}.client_mean"]
        asked = ~ctx.server["known"] & (ctx.steps > 0)
        return up | {"mean": torch.where(asked, mean, torch.zeros_like(mean))}, kept

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        known = server["known"]
        settled = {"consensus": torch.where(known, server["consensus"], mean["mean"]), "known": torch.ones_like(known)}
        return super().aggregate(server, mean, share) | settled
