"""Known wrong versions of FedDRM."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedroute.algorithms.feddrm import FedDRM
from fedroute.branch import BranchedHead
from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Tree, Weights

from .mutants import made, wrong


@wrong("lam weighs the router's loss and the rest the labels'", "certificate feddrm: lam = 1: body and heads")
class SidesChanged(FedDRM):
    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        return super().loss(out, batch, ctx._replace(server=ctx.server | {"lam": 1 - ctx.server["lam"]}))


@wrong("the labels' loss counts whole whatever lam is", "certificate feddrm: lam = 0: the clients' own heads")
class WholeLabels(FedDRM):
    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        rest: Tensor = (1 - ctx.server["lam"]) * self.task.loss(out, batch)
        return super().loss(out, batch, ctx) + rest


@wrong("the router moves the body all the same", "certificate feddrm: detach: so they are at any lam")
class NotDetached(FedDRM):
    def bind(self, task: Any) -> "NotDetached":
        bound = super().bind(task)
        for m in bound.task.module.modules():
            if isinstance(m, BranchedHead):
                m.detach = False
        return bound


@wrong("the router's rows are numbered from the end", "certificate feddrm: at client i the gradient by offset k")
class FromTheEnd(FedDRM):
    def client_loss(self, z: Tensor, batch: Batch, ctx: Context) -> Tensor:
        return super().client_loss(z.flip(1), batch, ctx)


@wrong("the prior is taken off in training", "certificate feddrm: clients of one law: q is each client's share")
class PriorTakenOff(FedDRM):
    def client_loss(self, z: Tensor, batch: Batch, ctx: Context) -> Tensor:
        share = ctx.server["rows"].to(z.dtype).clamp(min=1)
        return super().client_loss(z + (share / share.sum()).log(), batch, ctx)


@wrong("every client counts alike in the server's mean", "certificate feddrm: one step of all rows")
class CountedAlike(FedDRM):
    weighting = "uniform"


@wrong("clients without rows are classes of the router", "battery: a client without rows changes nothing")
class EmptyToo(FedDRM):
    def client_loss(self, z: Tensor, batch: Batch, ctx: Context) -> Tensor:
        return cross_entropy(z.flatten(1), ctx.client.expand(z.shape[:1]))


@wrong("a newcomer, which is no class of the router, trains it", "certificate feddrm: a newcomer gets the head")
class NewcomerRoutes(FedDRM):
    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return Algorithm.adapt(self, ctx, batches)


@wrong("lam is the labels' part of the drift and not the router's", "certificate feddrm: lam: auto is G_client^2")
class UpsideDown(FedDRM):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        server = super().aggregate(server, mean, share)
        return server | {"lam": 1 - server["lam"]}


@wrong("drift is the length of the gradients, their mean not taken off", "certificate feddrm: lam: auto is G_client^2")
class WholeLength(FedDRM):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        alone = mean["dg"].clone()
        alone[:, :-1] = 0
        return super().aggregate(server, mean | {"dg": alone}, share)


@wrong("the router stays with its client", "certificate feddrm: one step of all rows")
class RouterKept(FedDRM):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        dw: Weights = {k: torch.zeros_like(v) if k in self.model.branch else v for k, v in up["dw"].items()}
        return up | {"dw": dw}, kept


MUTANTS = made(__name__)
