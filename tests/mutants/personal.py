"""Known wrong versions of the methods that give each client a model of its own."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from torch import Tensor

from fedroute.algorithms.apfl import APFL
from fedroute.algorithms.ditto import Ditto
from fedroute.algorithms.fedbabu import FedBABU
from fedroute.algorithms.fedbn import FedBN
from fedroute.algorithms.fedper import FedPer
from fedroute.algorithms.fedprox_ft import FedProxFT
from fedroute.algorithms.fedrep import FedRep
from fedroute.algorithms.interpolation import Interpolation
from fedroute.algorithms.lg_fedavg import LgFedAvg
from fedroute.algorithms.perfedavg import PerFedAvg
from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Tree, Weights, axpy, pick, zeros

from .mutants import made, wrong

# presets


@wrong("norms are known by the letters bn in their names", "certificate fedbn: a residual block with a norm")
class BySubstring(FedBN):
    @cached_property
    def kept(self) -> frozenset[str]:
        return frozenset(k for k in self.task.names if "bn" in k)


@wrong("the statistics of norms are averaged, scale and shift stay", "certificate fedbn: after two rounds all tensors")
class AveragedStatistics(FedBN):
    @cached_property
    def kept(self) -> frozenset[str]:
        return frozenset(k for k in self.task.norms if k in self.task.trainable)


@wrong("a newcomer keeps the initial statistics", "certificate fedbn: a newcomer's statistics")
class NoStatistics(FedBN):
    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return ctx.private


@wrong("heads are averaged", "certificate fedper: two clients whose labels are swapped")
class AveragedHead(FedPer):
    @cached_property
    def kept(self) -> frozenset[str]:
        return frozenset()


@wrong("the head stays in place of the body", "certificate lg_fedavg: the head is all that a client sends")
class TurnedAbout(LgFedAvg):
    @cached_property
    def kept(self) -> frozenset[str]:
        return self.task.named("head")


# FedRep


@wrong("a frozen part gets a gradient of zero", "certificate fedrep: momentum and weight decay move nothing")
class ZeroGradient(FedRep):
    def begin(self, ctx: Context) -> Tree:
        return Algorithm.begin(self, ctx)

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        body = ctx.step >= (self.head_share * ctx.steps).round()
        g, buffers, loss = self.grad(carry["w"], batch, ctx)
        g = {k: v * (body != (k in self.kept)) for k, v in g.items()}
        w, opt = self.optimizer.update(g, carry["opt"], carry["w"], ctx.lr)
        return {"w": w | buffers, "opt": opt}, loss


@wrong("both parts move in every step", "certificate fedrep: nor does Adam")
class NoPhases(FedRep):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        return super().step(carry, batch, ctx._replace(step=ctx.steps - ctx.steps, steps=ctx.steps.clamp(max=1)))


@wrong("the body learns first", "certificate fedrep: SGD with momentum and weight decay")
class BodyFirst(FedRep):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        return super().step(carry, batch, ctx._replace(step=ctx.steps - 1 - ctx.step))


# FedBABU


class HeadOfZeros(FedBABU):
    """The head gets a gradient of zero, and so weight decay."""

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        g, buffers, loss = self.grad(carry["w"], batch, ctx)
        g = g | zeros(pick(g, self.head))
        w, opt = self.optimizer.update(g, carry["opt"], carry["w"], ctx.lr)
        return carry | {"w": w | buffers, "opt": opt}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return Algorithm.end(self, carry, ctx)


@wrong("weight decay moves the head", "certificate fedbabu: the head is the initial one")
class DecayingHead(HeadOfZeros):
    pass


@wrong("only the head is fine-tuned", "certificate fedbabu: fine-tuning is SGD in PyTorch")
class HeadTuned(FedBABU):
    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return FedBABU.adapt(replace(self, tune="head"), ctx, batches)


# FedProx with fine-tuning


@wrong("fine-tuning is held back by the spring", "certificate fedprox_ft: fine-tuning is SGD in PyTorch")
class TunedOnASpring(FedProxFT):
    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        carry = self.begin(ctx)
        for batch in batches:
            carry, _ = self.step(carry, batch, ctx)
        return {"w": ctx.private["w"], "tuned": carry["w"]}


@wrong("the next round starts from the fine-tuned weights", "certificate fedprox_ft: the rounds are FedProx's")
class StartsTuned(FedProxFT):
    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        return carry | {"w": carry["w"] | ctx.private.get("tuned", {})}


# Per-FedAvg


@wrong("the exact variant leaves the Hessian out", "certificate perfedavg: a step of variant exact")
class NoHessian(PerFedAvg):
    def curvature(self, w: Weights, d: Weights, batch: Batch, ctx: Context) -> Weights:
        return zeros(d)


@wrong("all gradients are taken on the same rows", "certificate perfedavg: a step of variant FO")
class SameRows(PerFedAvg):
    def parts(self, batch: Batch) -> list[Batch]:
        return [batch] * 3


@wrong("the step starts where the gradient is taken", "certificate perfedavg: a step of variant HF")
class StartsAhead(PerFedAvg):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        g, _, _ = self.grad(carry["w"], self.parts(batch)[0], ctx)
        return super().step(carry | {"w": axpy(-self.alpha, g, carry["w"])}, batch, ctx)


@wrong("the global model is judged in place of the personal one", "certificate perfedavg: a client's model is one step")
class NeverAdapted(PerFedAvg):
    def personal(self, server: Tree, private: Tree) -> Weights:
        return dict(server["w"])


# Ditto


@wrong("the spring is tied to the client's own copy", "certificate ditto: two quadratics")
class OwnAnchor(Ditto):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        return super().step(carry, batch, ctx._replace(server=ctx.server | {"w": carry["w"]}))


@wrong("the personal model is what is sent", "certificate ditto: the global path is FedAvg's")
class SendsItsOwn(Ditto):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return super().end(carry | {"w": carry["v"]}, ctx)


@wrong("the personal model restarts from the server's in every round", "certificate ditto: lam = 0")
class RestartingDitto(Ditto):
    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        return carry | {"v": carry["w"]}


# APFL


@wrong("v is trained alone and mixed afterwards", "certificate apfl: two quadratics")
class MixedAfterwards(APFL):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        g, buffers, _ = self.grad(carry["v"], batch, ctx)
        v, opt = self.optimizer.update(g, carry["opt_v"], carry["v"], ctx.lr)
        return after | {"v": v | buffers, "opt_v": opt}, loss


@wrong("the global model is judged in place of the mixture", "certificate apfl: alpha = 1")
class GlobalInPlace(APFL):
    def personal(self, server: Tree, private: Tree) -> Weights:
        return Algorithm.personal(self, server, private)


@wrong("the mixture is what is sent", "certificate apfl: the shared model is FedAvg's")
class SendsTheMixture(APFL):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return super().end(carry | {"w": self.mixture(carry["alpha"], carry["v"], carry["w"])}, ctx)


# interpolation


@wrong(
    "the coefficient is fitted on the rows trained on", "certificate interpolation: a quadratic, the global model at 0"
)
class FittedOnTrained(Interpolation):
    def judged(self, w: Weights, batches: list[Batch], ctx: Context) -> Tensor:
        seen = [{"x": b["x"].clone().index_fill_(1, b["y"].new_ones(1), 1.0), "y": b["y"]} for b in batches]
        return super().judged(w, seen, ctx)


@wrong("half and half whatever the rows say", "certificate interpolation: rows held out at -1")
class HalfAndHalf(Interpolation):
    def judged(self, w: Weights, batches: list[Batch], ctx: Context) -> Tensor:
        return (next(iter(w.values())) - 0.5).abs().sum()


MUTANTS = made(__name__)
