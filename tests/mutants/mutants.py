"""Known wrong versions, as seen in public code, each with the certificate or battery check that must fail on it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fedroute import quarantine, rounds
from fedroute.algorithms import ALGORITHMS
from fedroute.algorithms.alone import Alone
from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.fedavg_ft import FedAvgFT
from fedroute.algorithms.fednova import FedNova
from fedroute.algorithms.fedprox import FedProx
from fedroute.algorithms.scaffold import Scaffold
from fedroute.core import Algorithm, Batch, Context
from fedroute.data import batches
from fedroute.data.federation import Federation
from fedroute.engines import sequential
from fedroute.engines.base import Answer, Work
from fedroute.tree import Tree, Weights, axpy
from fedroute.weighting import RunningMean

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """what: the fault. caught_by: "certificate NAME: words of the claim" or "battery: name of the check". make: the
    wrong algorithm; right: what it is a wrong version of. patch: a fault elsewhere."""

    what: str
    caught_by: str
    make: Callable[..., Algorithm]
    right: type[Algorithm]
    patch: Patch = lambda m: None


_made: list[tuple[str, str, type[Algorithm], type[Algorithm]]] = []


def wrong(what: str, caught_by: str) -> Callable[[type[Algorithm]], type[Algorithm]]:
    def register(cls: type[Algorithm]) -> type[Algorithm]:
        made = dataclass(frozen=True, kw_only=True)(cls)
        right = next(base for base in cls.__mro__ if base in ALGORITHMS.values())
        _made.append((what, caught_by, made, right))
        return made

    return register


def made(module: str) -> list[Mutant]:
    """Those of a file."""
    return [Mutant(what, by, make, right) for what, by, make, right in _made if make.__module__ == module]


# FedProx


@wrong(
    "the anchor is the client's own weights, so the pull is always 0", "certificate fedprox: the pull is the gradient"
)
class SelfAnchored(FedProx):
    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        return {k: v + self.mu * (w[k] - w[k]) for k, v in g.items()}


@wrong("the pull has twice its strength", "certificate fedprox: two quadratics")
class TwicePulled(FedProx):
    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        pulled = super().direction(g, w, ctx)
        return {k: 2 * v - g[k] for k, v in pulled.items()}


# SCAFFOLD


@wrong("c_i is computed and never stored", "certificate scaffold: reaches the optimum 0.909091")
class Forgetful(Scaffold):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"c": ctx.private["c"]}


@wrong("the correction has the wrong sign", "certificate scaffold: reaches the optimum 0.909091")
class WrongSign(Scaffold):
    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        return {k: 2 * g[k] - v for k, v in super().direction(g, w, ctx).items()}


@wrong("divided by the batches of one epoch and not of all", "certificate scaffold: option II under plain SGD")
class OneEpoch(Scaffold):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return super().end(carry | {"n": carry["n"] // 2}, ctx)


@wrong("the change of c is divided by those chosen and not by all", "certificate scaffold: c is the mean of c_i")
class OfTheChosen(Scaffold):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return super().aggregate(server, mean, 1.0)


@wrong("c_i is sent where its change is due", "certificate scaffold: c is the mean of c_i")
class WholeControl(Scaffold):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up | {"dc": kept["c"]}, kept


@wrong(
    "c_i is computed with the first learning rate under a schedule", "certificate scaffold: option II under plain SGD"
)
class FirstRate(Scaffold):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        old, c, scale = ctx.private["c"], ctx.server["c"], 0.1 * ctx.steps.clamp(min=1)
        new = {k: old[k] - c[k] - up["dw"][k] / scale for k in old}
        return up | {"dc": axpy(-1, old, new)}, kept | {"c": new}


@wrong("statistics of batch norm get control variates", "certificate scaffold: c is the mean of c_i")
class ControlledStatistics(Scaffold):
    def _controlled(self, w: Weights) -> Weights:
        return {k: v for k, v in w.items() if v.is_floating_point()}


@wrong("a client without steps loses its c_i", "battery: a client without steps sends no change and keeps its state")
class ZeroSteps(Scaffold):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        c = {k: v / carry["n"].clamp(min=1) for k, v in carry["g"].items()}
        return up | {"dc": axpy(-1, ctx.private["c"], c)}, kept | {"c": c}


@wrong("option I takes the mean of batches of different size", "certificate scaffold: option I is the gradient")
class MeanOfMeans(Scaffold):
    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        rows = len(batch["x"])
        g = {k: carry["g"][k] + (v - carry["g"][k]) / rows for k, v in after["g"].items()}
        return after | {"g": g, "n": carry["n"] + 1}, loss


# FedNova


@wrong("nothing is normalised", "certificate fednova: the optimum 0.5")
class NotNormalised(FedNova):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        unit = carry["unit"]["w"]["a"]
        return super().end(carry | {"unit": {"w": {"a": -ctx.lr * torch.ones_like(unit)}}}, ctx)


@wrong("divided by the steps under momentum", "certificate fednova: |a|_1 of 7 steps with momentum")
class BySteps(FedNova):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        unit = carry["unit"]["w"]["a"]
        return super().end(carry | {"unit": {"w": {"a": -ctx.lr * ctx.steps.to(unit.dtype)}}}, ctx)


# FedAvg and batch norm


@wrong("only parameters are averaged", "certificate fedavg: batch norm: the mean is the weighted mean")
class ParametersOnly(FedAvg):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return {"dw": {k: v for k, v in up["dw"].items() if k in self.task.trainable}}, kept


class NoSpread(FedAvg):
    """Variances averaged as they are."""

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        plain = {k: carry["w"][k] - ctx.server["w"][k] for k in self.task.variances}
        return {"dw": up["dw"] | plain}, kept

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        after = super().aggregate(server, mean, share)
        return after | {"w": after["w"] | {k: server["w"][k] + mean["dw"][k] for k in self.task.variances}}


@wrong("variances are averaged without the spread of means", "certificate fedavg: batch norm: the mean is")
class WithoutSpread(NoSpread):
    pass


@wrong("the same, as a user meets it", "certificate fedavg: batch norm, clients centred at -5 and +5")
class WithoutSpreadInUse(NoSpread):
    pass


@wrong("counts are averaged to floats", "battery: integer buffers stay integers")
class FloatCounts(FedAvg):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        after = super().aggregate(server, mean, share)
        floats = {k: server["w"][k] + v for k, v in mean["dw"].items() if "num_batches" in k}
        return after | {"w": after["w"] | floats}


@wrong("clients are averaged without weights", "certificate fedavg: one full-batch step")
class Unweighted(FedAvg):
    weighting: ClassVar[Any] = "uniform"


@wrong("private weights are sent", "battery: private weights stay, norm private")
class Leaking(FedAvg):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return {"dw": up["dw"] | kept["w"]}, kept


@wrong("private weights restart from the initial ones in every round", "battery: private weights stay, norm private")
class Restarting(FedAvg):
    def begin(self, ctx: Context) -> Tree:
        return super().begin(ctx._replace(private=self.init_client(self.task.init())))


@wrong("the server's weights are updated in place", "battery: nothing that is given is changed")
class InPlace(FedAvg):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        after = super().aggregate(server, mean, share)
        for k, v in after["w"].items():
            server["w"][k].copy_(v)
        return after


@wrong("state is kept in the object and so lost at a restart", "battery: resumed is as never stopped, all shared")
class Hidden(FedAvg):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        last: Weights = self.__dict__.get("_last") or mean["dw"]
        self.__dict__["_last"] = mean["dw"]
        return super().aggregate(server, {"dw": {k: (v + last[k]) / 2 for k, v in mean["dw"].items()}}, share)


@wrong("half the precision on the way up", "battery: float64 stays float64")
class HalfPrecision(FedAvg):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return {"dw": {k: v.float() for k, v in up["dw"].items()}}, kept


@wrong("something undeclared is sent", "battery: sends what it says")
class Talkative(FedAvg):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up | {"rows": ctx.steps.to(torch.float64)}, kept


@wrong("frozen weights decay", "battery: frozen weights do not move")
class DecayingFrozen(FedAvg):
    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        after = super().aggregate(server, mean, share)
        return after | {"w": {k: v * 0.999 if v.is_floating_point() else v for k, v in after["w"].items()}}


# alone, fine-tuning


@wrong("momentum is carried over rounds unasked", "certificate alone: each client is a plain loop")
class CarriedMomentum(Alone):
    def init_client(self, w: Weights) -> Tree:
        p = {k: w[k] for k in self.task.trainable}
        return super().init_client(w) | {"opt": self.optimizer.init(p)}

    def begin(self, ctx: Context) -> Tree:
        return super().begin(ctx) | {"opt": ctx.private["opt"]}

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"opt": carry["opt"]}


@wrong("the next round starts from the fine-tuned weights", "certificate fedavg_ft: the rounds are FedAvg's")
class TunedStart(FedAvgFT):
    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        return carry | {"w": carry["w"] | ctx.private.get("tuned", {})}


@wrong(
    "the global model is judged in place of the personal one",
    "certificate fedavg_ft: a client's model is the global one",
)
class GlobalJudged(FedAvgFT):
    def personal(self, server: Tree, private: Tree) -> Weights:
        return dict(server["w"])


# faults of engines and of the round


def leaking_buffers(m: pytest.MonkeyPatch) -> None:
    """All clients share one model, so a client starts from the batch-norm statistics of the one before."""
    right, last = sequential.answer, dict[str, Tensor]()

    def answer(alg: Algorithm, f: Federation, server: Tree, private: Tree, client: int, work: Work) -> Answer:
        a = right(alg, f, server | {"w": server["w"] | last}, private, client, work)
        last.update({k: server["w"][k] + a.update["dw"][k] for k in alg.task.variances.values()})
        return a

    m.setattr(sequential, "answer", answer)


def order_of_drawing(m: pytest.MonkeyPatch) -> None:
    """Clients draw from one stream, in turn."""
    count = iter(range(10**9))
    m.setattr(sequential, "seed_of", lambda *key: next(count))


def global_randomness(m: pytest.MonkeyPatch) -> None:
    m.setattr(sequential, "seed_of", lambda *key: int(torch.randint(2**31, ())))


def last_batch_dropped(m: pytest.MonkeyPatch) -> None:
    right = batches._cut

    def cut(order: Tensor, batch_size: int, whole: bool) -> list[Tensor]:
        return [b for b in right(order, batch_size, whole) if len(b) == batch_size]

    m.setattr(batches, "_cut", cut)


def no_step_full_say(m: pytest.MonkeyPatch) -> None:
    """Clients without a batch are asked all the same, and their unchanged weights counted in full."""
    right = rounds.work_of_round

    def work(*args: Any) -> Work:
        plan = right(*args)
        return plan._replace(clients=tuple(sorted(plan.batches)))

    m.setattr("fedroute.certificates.rig.work_of_round", work)


def broken_counts(m: pytest.MonkeyPatch) -> None:
    """A quarantined client's weight stays in the denominator."""
    right_fault, right_value = quarantine.fault, RunningMean.value
    left_out = list[float]()

    def fault(a: Answer, pattern: Tree, *rest: Any) -> str:
        reason = right_fault(a, pattern, *rest)
        left_out.extend([5.0] * bool(reason))
        return reason

    def value(self: RunningMean) -> Tree:
        self.weight += sum(left_out)
        left_out.clear()
        return right_value(self)

    m.setattr("fedroute.rounds.fault", fault)
    m.setattr(RunningMean, "value", value)


def nan_let_in(m: pytest.MonkeyPatch) -> None:
    m.setattr("fedroute.rounds.fault", lambda *args: "")


def client_sees_everything(m: pytest.MonkeyPatch) -> None:
    """One client's rows enter another's batches."""
    right = Federation.take

    def take(self: Federation, index: Tensor) -> Batch:
        batch = right(self, index)
        return batch | {"x": batch["x"] + self.x.mean()}

    m.setattr(Federation, "take", take)


@dataclass(frozen=True)
class Truncated:
    """An engine in which every client makes only as many steps as the one with the fewest."""

    algorithm: Algorithm
    federation: Federation
    name: ClassVar[str] = "truncated"

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        least = min(len(work.batches[i]) for i in work.clients)
        cut = work._replace(batches={i: work.batches[i][:least] for i in work.clients})
        return sequential.Sequential(self.algorithm, self.federation).run(server, privates, cut)

    def close(self) -> None:
        pass


_REVERSED = "battery: engines agree: clients in reverse, all shared"
_BROKEN = "battery: a broken client leaves no trace"
PATCHES: list[tuple[Patch, str, type[Algorithm]]] = [
    (leaking_buffers, _REVERSED, FedAvg),
    (order_of_drawing, _REVERSED, FedAvg),
    (global_randomness, "battery: randomness comes from keys alone", FedAvg),
    (last_batch_dropped, "certificate scaffold: option I is the gradient", Scaffold),
    (no_step_full_say, "certificate fedavg: a client that makes no step", FedAvg),
    (broken_counts, _BROKEN, FedAvg),
    (broken_counts, _BROKEN, Scaffold),
    (nan_let_in, _BROKEN, FedAvg),
    (client_sees_everything, "battery: another client's data change nothing of mine", FedAvg),
]
MUTANTS = made(__name__) + [
    Mutant((patch.__doc__ or patch.__name__).replace("_", " "), by, right, right, patch) for patch, by, right in PATCHES
]
