"""Known wrong versions of the methods whose server weighs or mixes clients' models one by one."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedroute.algorithms.afl import AFL
from fedroute.algorithms.fedala import FedALA
from fedroute.algorithms.fedamp import FedAMP
from fedroute.algorithms.fedfomo import FedFomo
from fedroute.algorithms.fedpac import FedPAC
from fedroute.algorithms.ifca import IFCA
from fedroute.algorithms.qffl import QFFL
from fedroute.core import Batch, Context
from fedroute.tree import Tree, Weights, pick

from .mutants import made, wrong

# FedALA


@wrong("the mixing weights are not clipped", "certificate fedala: two quadratics, two rounds")
class Unclipped(FedALA):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        g, _, _ = self.grad(carry["w"], batch, ctx)
        local, shared = ctx.private["local"], ctx.server["w"]
        mix = {k: v - self.eta * g[k] * (shared[k] - local[k]) for k, v in carry["mix"].items()}
        learns = ctx.step < ctx.steps / 2
        mixed = {k: local[k] + (shared[k] - local[k]) * v for k, v in mix.items()}
        return after | {
            "mix": {k: torch.where(learns, v, after["mix"][k]) for k, v in mix.items()},
            "w": after["w"] | {k: torch.where(learns, v, after["w"][k]) for k, v in mixed.items()},
        }, loss


@wrong("the mixture starts from the global model in every round", "certificate fedala: a global model that only leads")
class ForgottenLocal(FedALA):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"local": pick(ctx.server["w"], kept["local"])}


@wrong(
    "a client without steps is given the mixture", "battery: a client without steps sends no change and keeps its state"
)
class IdleMixture(FedALA):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return super().end(carry, ctx._replace(steps=torch.ones_like(ctx.steps)))


# FedAMP


@wrong("attention falls with the distance and not with its square", "certificate fedamp: of two clients u_1")
class ByDistance(FedAMP):
    def attention(self, models: Weights) -> Tensor:
        rows = torch.cat([v.flatten(1).double() for k, v in models.items() if k in self.task.trainable], 1)
        xi = (self.alpha / self.sigma * torch.exp(-torch.cdist(rows, rows) / self.sigma)).fill_diagonal_(0)
        xi = xi / xi.sum(1, keepdim=True).clamp(min=1)
        return xi + torch.diag(1 - xi.sum(1))


@wrong("the pull is to the mean of all models", "certificate fedamp: two pairs of quadratics far apart")
class PulledToTheMean(FedAMP):
    def attention(self, models: Weights) -> Tensor:
        n = len(next(iter(models.values())))
        return torch.full((n, n), 1 / n, dtype=torch.float64)


@wrong("the change is added to the client's former model", "certificate fedamp: client i trains from u_i")
class FromFormer(FedAMP):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server | {"u": server["models"]}, mean, share)


# FedFomo


@wrong("worse models count by how much worse they are", "certificate fedfomo: of one better and one worse model")
class Absolute(FedFomo):
    def weights(self, losses: Tensor, ctx: Context) -> Tensor:
        return super().weights(losses, ctx).abs()


@wrong("the gain is not divided by the distance", "certificate fedfomo: three quadratics")
class Undivided(FedFomo):
    def weights(self, losses: Tensor, ctx: Context) -> Tensor:
        return losses[-1] - losses[:-1]


@wrong("the worst are sent", "certificate fedfomo: with explore = m every client")
class SameAgain(FedFomo):
    def choose(self, i: int, p: Tensor, sent: Tensor, heard: Tensor) -> Tensor:
        return super().choose(i, p, -sent, heard)


# FedPAC


@wrong("centroids are the mean of the clients' centroids", "certificate fedpac: the centroids after a round")
class MeanOfCentroids(FedPAC):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        n = mean["n"].clamp(min=1).unsqueeze(2)
        return super().aggregate(server, mean, share) | {"c": (mean["sum"] / n).mean(0)}


@wrong("every client is given the mean of the heads", "certificate fedpac: of two clients the first head")
class MeanHead(FedPAC):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        after = super().aggregate(server, mean, share)
        heads = {k: (v[mean["client"]] + mean["dw"][k]).mean(0).expand_as(v) for k, v in server["head"].items()}
        return after | {"head": heads}


@wrong("both parts move in both phases", "certificate fedpac: a round of two steps")
class OnePhase(FedPAC):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        return super().step(carry, batch, ctx._replace(steps=torch.ones_like(ctx.steps)))


@wrong("the pull has half its strength", "certificate fedpac: the pull on the body")
class HalfPull(FedPAC):
    def loss(self, out: object, batch: Batch, ctx: Context) -> Tensor:
        return (super().loss(out, batch, ctx) + self.task.loss(out, batch)) / 2


# IFCA


@wrong("the model of the highest loss is taken", "certificate ifca: two groups of quadratics")
class WorstModel(IFCA):
    def losses(self, batch: Batch, ctx: Context) -> Tensor:
        return -super().losses(batch, ctx)


@wrong("a change is added to every model", "certificate ifca: of three models the one client's choice moves")
class AddedToAll(IFCA):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server, dict(mean) | {"s": torch.ones_like(mean["s"])}, share)


@wrong("clients of a model count alike, whatever their say", "certificate ifca: two groups of quadratics")
class SayIgnored(IFCA):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server, dict(mean) | {"say": torch.full_like(mean["say"], 0.1)}, share)


# q-FFL


@wrong("h lacks the term of the curvature", "certificate qffl: two quadratics, one round of 3 steps")
class Flat(QFFL):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        f = carry["total"] / carry["rows"].clamp(min=1)
        return up | {"h": f**self.q}, kept


@wrong("the loss is that along the training", "certificate qffl: two quadratics, one round of 3 steps")
class TrainingLoss(QFFL):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        return after | {"total": carry["total"] + len(batch["x"]) * loss}, loss


@wrong("the loss counts to the power 1 / q", "certificate qffl: q = 3, one local step")
class Root(QFFL):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        total = carry["total"] / carry["rows"].clamp(min=1)
        return super().end(carry | {"total": total ** (1 / max(self.q, 1) ** 2) * carry["rows"]}, ctx)


# AFL


@wrong("lambda goes down where losses are high", "certificate afl: two quadratics")
class Descent(AFL):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server, dict(mean) | {"f": -mean["f"]}, share)


@wrong("lambda is divided by its sum and not projected", "certificate afl: one round: lambda")
class Normalised(AFL):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        raised = server["lam"].index_add(0, mean["client"], self.gamma * mean["f"])
        return super().aggregate(server, mean, share) | {"lam": raised / raised.sum()}


@wrong("lambda is raised and never used", "certificate afl: two quadratics")
class Unused(AFL):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        uniform = torch.full_like(server["lam"], 1 / len(server["lam"]))
        right: Mapping[str, Tensor] = super().aggregate(server, mean, share)
        return super().aggregate(server | {"lam": uniform}, mean, share) | {"lam": right["lam"]}


MUTANTS = made(__name__)
