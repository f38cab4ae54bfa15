"""What an algorithm is, and the one definition of a client's round. Read this file first."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from fedroute.optim import Optimizer, Sgd
from fedroute.task import Batch, Loss, Task
from fedroute.tree import Tree, Weights, flatten, laid_out, pick

__all__ = ["Algorithm", "Batch", "Context", "Loss", "Task", "run_client"]
BY_TRAINING = ("optimizer", "server_optimizer", "server_lr", "task")  # fields that no algorithm's config part sets


class Context(NamedTuple):
    """All that one client may read in one round."""

    server: Tree  # the keys of the server's state named in Algorithm.broadcast
    private: Tree  # what this client kept from its last round
    client: Tensor  # (), its place 0..N-1 among the federation's clients by name
    steps: Tensor  # (), how many local steps it makes in this round
    step: Tensor  # (), which of them this is
    lr: float  # the learning rate of this round
    counts: Tensor = torch.zeros(0, dtype=torch.int64)  # (K,), its training rows by label, if it has labels


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """Federated averaging (McMahan et al. 2017, algorithm 1). Another algorithm overrides what it does otherwise."""

    private: tuple[str, ...] = ()  # roles or names of the weights that never leave their client
    optimizer: Optimizer = Sgd()
    server_optimizer: Optimizer = Sgd()
    server_lr: float = 1.0
    task: Task = field(default=None, repr=False)  # type: ignore[assignment]  # bound by fit
    broadcast: ClassVar[tuple[str, ...]] = ("w",)  # keys of the server's state that clients see
    own: ClassVar[tuple[str, ...]] = ()  # keys with leaves (N, ...), of which client i sees row i alone
    reduce: ClassVar[str] = "mean"  # or "stack": aggregate gets every update, (n, ...), with "client" and "say", (n,)
    sends: ClassVar[dict[str, str]] = {"dw": "change of the shared weights"}  # what an update is made of
    weighting: ClassVar[str] = "examples"  # how clients are weighted where the config does not say; "": not at all
    uncapped: ClassVar[str] = ""  # why the config must not cap a client's say, where it must not

    def bind(self, task: Task) -> Self:
        """This algorithm on that task. Raises InputError where they do not fit."""
        task.named(*self.private)
        return replace(self, task=task)

    def describe(self) -> dict[str, Any]:
        """Its name and its own options, as a config gives them; the name of one of ours is that of its file."""
        where, _, file = type(self).__module__.rpartition(".")
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in BY_TRAINING}
        return {"name": file if where == "fedroute.algorithms" else type(self).__name__} | own

    @cached_property
    def kept(self) -> frozenset[str]:
        """The names of the private weights."""
        return self.task.named(*self.private)

    # at the server
    def init(self, w: Weights, sizes: Tensor) -> Tree:
        """The server's state; `sizes`: (N,), the training examples of each client."""
        shared = {k: v for k, v in w.items() if k not in self.kept}
        return {"w": shared, "opt": self.server_optimizer.init(pick(shared, self.task.trainable))}

    def init_client(self, w: Weights) -> Tree:
        return {"w": pick(w, self.kept)}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        """`mean`: weighted mean of the updates that came back; `share`: their say in the whole federation, 0..1."""
        w, dw, p = server["w"], mean["dw"], pick(mean["dw"], self.task.trainable)
        new, opt = self.server_optimizer.update({k: -p[k] for k in p}, server["opt"], pick(w, p), self.server_lr)
        means = {var: dw[mean] for var, mean in self.task.variances.items() if var in dw}
        for k in dw.keys() - p.keys():  # buffers: pooled mean and variance (law of total variance); whole counts
            d = dw[k] if w[k].is_floating_point() else dw[k].round()
            new[k] = (w[k] + d - means[k] ** 2).clamp(min=0) if k in means else (w[k] + d).to(w[k].dtype)
        return server | {"w": {k: new.get(k, v) for k, v in w.items()}, "opt": opt}

    def implausible(self, update: Tree, steps: int) -> str:
        """Why an update of the declared form cannot come from so many steps, or ""."""
        back = [k for k, v in update.get("dw", {}).items() if k in self.task.counters and bool((v < 0).any())]
        return f"{back[0]} would count backwards" if back else ""

    # at the client: pure, written for one client, mapped over many by an engine
    def begin(self, ctx: Context) -> Tree:
        """The carry: what changes from step to step."""
        w = ctx.server["w"] | ctx.private["w"]
        return {"w": w, "opt": self.optimizer.init(pick(w, self.task.trainable))}

    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        return self.task.loss(out, batch)

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        return g

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        """The next carry and the loss, ()."""
        g, buffers, loss = self.grad(carry["w"], batch, ctx)
        d = self.direction(g, carry["w"], ctx)
        spent = type(self).direction is Algorithm.direction  # nobody else has seen this gradient
        w, opt = self.optimizer.update(d, carry["opt"], carry["w"], ctx.lr, spent=spent)
        return carry | {"w": w | buffers, "opt": opt}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        """The update (goes up, is averaged) and the next private state (stays)."""
        w, old = carry["w"], ctx.server["w"]
        dw = {k: (w[k] - old[k]).to(torch.get_default_dtype() if not w[k].is_floating_point() else w[k].dtype)
              for k in old if k in self.task.travels and w[k].dtype != torch.bool}  # fmt: skip
        second = {var: dw[var] + dw[mean] ** 2 for var, mean in self.task.variances.items() if var in dw}
        return {"dw": dw | second}, {"w": pick(w, self.kept)}

    # in use
    def predictor(self) -> Task:
        """The task whose module predicts with the weights of `personal`."""
        return self.task

    def personal(self, server: Tree, private: Tree) -> Weights:
        """The weights this client predicts with."""
        return {**server["w"], **private["w"]}

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        """The private state of a client that looks at its own data without taking part: a newcomer's, and, with
        `adapt_epochs`, everybody's before predicting. By default the private weights fitted to the shared ones."""
        if not flatten(ctx.private):
            return ctx.private
        carry = self.begin(ctx)
        fixed = {k: v for k, v in carry["w"].items() if k not in self.kept}
        for t, batch in enumerate(batches):
            carry, _ = self.step(carry, batch, ctx._replace(step=torch.tensor(t)))
            carry = carry | {"w": carry["w"] | fixed}
        return self.end(carry, ctx)[1]

    def grad(self, w: Weights, batch: Batch, ctx: Context) -> tuple[Weights, Weights, Tensor]:
        """(gradient of the trainable weights, new buffers, loss) on a batch."""
        return self.task.gradient(w, batch["x"], lambda out: self.loss(out, batch, ctx))


def run_client(alg: Algorithm, ctx: Context, batches: Iterable[Batch]) -> tuple[Tree, Tree, Tensor]:
    """One client's round: (update, next private state, mean loss). Every engine computes this, for every client."""
    server, private = (laid_out(tree, alg.task.format) for tree in (ctx.server, ctx.private))
    ctx = ctx._replace(server=server, private=private)
    carry, total, t = alg.begin(ctx), torch.zeros(()), 0
    for t, batch in enumerate(batches, 1):
        carry, loss = alg.step(carry, batch, ctx._replace(step=torch.tensor(t - 1)))
        total = total + loss
    update, private = (laid_out(tree, torch.contiguous_format) for tree in alg.end(carry, ctx))
    return update, private, total / max(t, 1)
