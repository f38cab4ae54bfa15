"""Known wrong versions of pFedMe, FedDyn, MOON, FedRoD, FedDBE, kNN-Per and FedProx with a spring that adapts."""

from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import linear

from fedroute.algorithms.feddbe import BiasedHead, FedDBE
from fedroute.algorithms.feddyn import FedDyn
from fedroute.algorithms.fedprox_adaptive import FedProxAdaptive
from fedroute.algorithms.fedrod import FedRoD, TwoHeads
from fedroute.algorithms.knn_per import KnnPer, RememberingHead
from fedroute.algorithms.moon import Moon
from fedroute.algorithms.pfedme import PFedMe
from fedroute.algorithms.pfedme_fedbn import PFedMeFedBN
from fedroute.core import Algorithm, Batch, Context
from fedroute.features import head_of
from fedroute.heads import replace_head
from fedroute.task import Task
from fedroute.tree import Tree, Weights, axpy

from .mutants import made, wrong

# pFedMe


@wrong("theta hangs on itself, so that the spring is always 0", "certificate pfedme: f = (theta - a)^2 / 2 reaches")
class SelfHung(PFedMe):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        free, loss = replace(self, lam=0.0).step(carry, batch, ctx)
        outer = {k: -v for k, v in self.pull(free["theta"], carry["w"], ctx).items()}
        return free | {"w": axpy(-ctx.lr, outer, carry["w"])}, loss


@wrong("theta is computed and never stored", "certificate pfedme: f = (theta - a)^2 / 2 reaches")
class NeverStored(PFedMe):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"theta": ctx.private["theta"]}


@wrong("theta is sent in the place of w", "certificate pfedme: the local step is w - eta lam (w - theta)")
class ThetaSent(PFedMe):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return super().end(carry | {"w": carry["theta"]}, ctx)


@wrong("the local step lacks lam", "certificate pfedme: the local step is w - eta lam (w - theta)")
class WithoutLam(PFedMe):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        return after | {"w": {k: v + (after["w"][k] - v) / self.lam for k, v in carry["w"].items()}}, loss


@wrong("the client is judged by w and not by theta", "certificate pfedme: a client predicts with theta")
class JudgedByW(PFedMe):
    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**server["w"], **private["w"]}


@wrong("beta is ignored", "certificate pfedme: beta 2")
class WithoutBeta(PFedMe):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return Algorithm.aggregate(self, server, mean, share)


@wrong("theta does not start a round at w", "certificate pfedme: two inner steps")
class FarStart(PFedMe):
    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        return carry | {"theta": {k: v * 0.99 for k, v in carry["w"].items()}}


@wrong("private norms hang on a spring too", "certificate pfedme_fedbn: norms follow theta without a spring")
class HungNorms(PFedMeFedBN):
    def pull(self, theta: Weights, w: Weights, ctx: Context) -> Weights:
        return {k: self.lam * (theta[k] - w[k]) for k in self.task.trainable}


@wrong("statistics of norms are shared, scale and shift stay", "certificate pfedme_fedbn: exactly the weights")
class SharedStatistics(PFedMeFedBN):
    @cached_property
    def kept(self) -> frozenset[str]:
        return self.task.named("norm") & {*self.task.trainable}


# FedDyn


@wrong("g_k is computed and never stored", "certificate feddyn: h is the mean of g_k")
class ForgottenGradient(FedDyn):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"g": ctx.private["g"]}


@wrong("h is divided by those chosen and not by all", "certificate feddyn: h = -alpha/m sum of all changes")
class HOfTheChosen(FedDyn):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server, mean, 1.0)


@wrong("the server leaves h out of theta", "certificate feddyn: reaches the optimum 0.909091")
class PlainMean(FedDyn):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        h = super().aggregate(server, mean, share)["h"]
        return Algorithm.aggregate(self, server, mean, share) | {"h": h}


@wrong("g_k moves with the wrong sign", "certificate feddyn: after local work until the minimum")
class WrongSign(FedDyn):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"g": {k: 2 * v - kept["g"][k] for k, v in ctx.private["g"].items()}}


# MOON


@wrong("the former weights are those of the start for ever", "certificate moon: a client is compared with its own")
class FirstForEver(Moon):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"before": ctx.private["before"]}


@wrong("the former weights are the server's", "certificate moon: a client is compared with its own")
class FormerlyTheServer(Moon):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"before": self._below(ctx.server["w"] | ctx.private["w"])}


@wrong("drawn to the former features and away from the global ones", "certificate moon: the loss of a batch")
class Repelled(Moon):
    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        here, there = ctx.server["w"], ctx.private["before"]
        swapped = ctx._replace(
            server=ctx.server | {"w": here | there}, private=ctx.private | {"before": self._below(here)}
        )
        return super().loss(out, batch, swapped)


# FedRoD


@wrong("a label that is not there counts as one row", "certificate fedrod: the generic loss is the balanced softmax")
class OneMore(FedRoD):
    def balanced(self, generic: Tensor, ctx: Context) -> Tensor:
        return super().balanced(generic, ctx._replace(counts=ctx.counts + 1))


class Leaking(TwoHeads):
    """Without the wall between a client's own head and what is shared."""

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        generic = linear(z, self.weight, self.bias)
        return generic + linear(z, self.personal_weight, self.personal_bias), generic


@wrong("a client's own loss trains what is shared", "certificate fedrod: what a client's own head learns never reaches")
class Shared(FedRoD):
    def bind(self, task: Task) -> Self:
        alg = super().bind(task)
        leaking = Leaking.of(head_of(alg.task)[1])
        return replace(alg, task=replace_head(alg.task, leaking, place=1))


@wrong("a client predicts without its own head", "certificate fedrod: a client predicts with g + h_i")
class GenericOnly(FedRoD):
    def personal(self, server: Tree, private: Tree) -> Weights:
        return dict(server["w"])


# FedDBE


@wrong("the consensus follows every round", "certificate feddbe: the consensus is the clients' mean")
class Following(FedDBE):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server | {"known": torch.tensor(False)}, mean, share)


@wrong("clients' biases are averaged", "certificate feddbe: bias and mean stay with their client")
class AveragedBias(FedDBE):
    @cached_property
    def kept(self) -> frozenset[str]:
        return frozenset(k for k in super().kept if not k.endswith("client_bias"))


@wrong("the mean of the batch is pulled and not the moving one", "certificate feddbe: the loss of a batch")
class BatchMean(FedDBE):
    def bind(self, task: Task) -> Self:
        at_once = BiasedHead.make(head_of(task)[1], 1.0, self.bias)
        alg = super().bind(task)
        return replace(alg, task=replace_head(alg.task, at_once))


# kNN-Per


class Equal(RememberingHead):
    """Every neighbour has the same vote."""

    def vote(self, z: Tensor) -> Tensor:
        near, place = torch.cdist(z, self.store).topk(min(self.k, len(self.store)), largest=False)
        votes = z.new_zeros(len(z), self.out_features)
        return votes.scatter_add(1, self.answers[place], torch.full_like(near, 1 / near.shape[1]))


@wrong("near and far neighbours count the same", "certificate knn_per: lam = 1 is the vote")
class EqualVotes(KnnPer):
    def predictor(self) -> Task:
        return replace_head(self.task, Equal.make(head_of(self.task)[1], self.k, self.lam))


@wrong("lam weighs the model and not the neighbours", "certificate knn_per: lam = 0.3, k = 4")
class Swapped(KnnPer):
    def predictor(self) -> Task:
        return replace_head(self.task, RememberingHead.make(head_of(self.task)[1], self.k, 1 - self.lam))


@wrong("the rows are stored and never asked", "certificate knn_per: lam = 0.3, k = 4")
class Empty(KnnPer):
    def personal(self, server: Tree, private: Tree) -> Weights:
        return super().personal(server, {"w": private["w"]})


# FedProx with a spring that follows the loss


@wrong("the spring grows while the loss falls", "certificate fedprox_adaptive: loss falling in 11 rounds")
class Backwards(FedProxAdaptive):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return replace(self, step_mu=-self.step_mu).super_aggregate(server, mean, share)

    def super_aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server, mean, share)


@wrong("every fall after the fifth counts", "certificate fedprox_adaptive: loss falling in 10 rounds")
class EveryFall(FedProxAdaptive):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        after = super().aggregate(server, mean, share)
        return after | {"fell": server["fell"] + (mean["f"] < server["loss"]) * server["loss"].isfinite()}


@wrong("the first round counts as a fall", "certificate fedprox_adaptive: loss falling in 10 rounds")
class FirstFall(FedProxAdaptive):
    def init(self, w: Weights, sizes: Tensor) -> Tree:
        return super().init(w, sizes) | {"loss": torch.tensor(1e30, dtype=torch.float64)}


@wrong("the loss is that of the last step", "certificate fedprox_adaptive: two quadratics: the loss it follows")
class LastLoss(FedProxAdaptive):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        return after | {"f": loss}, loss


@wrong("clients pull with the first mu for ever", "certificate fedprox_adaptive: a spring of mu after")
class FirstMu(FedProxAdaptive):
    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        return {k: v + self.mu * (w[k] - ctx.server["w"][k]) for k, v in g.items()}


MUTANTS = made(__name__)
