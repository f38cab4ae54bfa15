"""What an algorithm is, and the one definition of a client's round. Read this file first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.nn.functional import cross_entropy

from fedroute.optim import Optimizer, Sgd
from fedroute.tree import Tree, Weights, pick

Batch = dict[str, Tensor]  # "x": (B, ...), "y": (B,) or what the task's loss takes
Loss = Callable[[Any, Batch], Tensor]
NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


class Context(NamedTuple):
    """All that one client may read in one round."""

    server: Tree  # the keys of the server's state named in Algorithm.broadcast
    private: Tree  # what this client kept from its last round
    client: Tensor  # (), its place 0..N-1 among the federation's clients by name
    steps: Tensor  # (), how many local steps it makes in this round
    step: Tensor  # (), which of them this is
    lr: float  # the learning rate of this round


class Task:
    """A model as a pure function of its weights, each weight with a role, and what is minimised.

    `roles`: name prefix -> role ("body", "head", "router"); what no prefix names is "body". Weights of
    normalisation layers have the role "norm", found by the type of their module and never by name.
    `loss(out, batch)`: () tensor; cross entropy of the logits by default."""

    def __init__(self, module: nn.Module, roles: dict[str, str] | None = None, loss: Loss | None = None):
        self.module, self.loss = module, loss or (lambda out, batch: cross_entropy(out, batch["y"]))
        state = module.state_dict(keep_vars=True)
        first = {id(v): k for k, v in reversed(state.items())}  # of tied weights the first name stands for all
        self.names = tuple(k for k, v in state.items() if first[id(v)] == k)
        self.trainable = tuple(k for k, p in module.named_parameters() if p.requires_grad and k in self.names)
        frozen = {k for k, p in module.named_parameters() if not p.requires_grad}
        self.travels = frozenset(self.names) - frozen  # what training changes
        norms = {n for n, m in module.named_modules() if isinstance(m, NORMS)}
        self.roles = {k: self._role(k, norms, roles or {}) for k in self.names}
        self.variances = {k: k[:-3] + "mean" for k in self.names if k.endswith("running_var")}

    @staticmethod
    def _role(name: str, norms: set[str], roles: dict[str, str]) -> str:
        given = [p for p in roles if name.startswith(p)]
        return roles[max(given, key=len)] if given else "norm" if name.rpartition(".")[0] in norms else "body"

    def init(self) -> Weights:
        state = self.module.state_dict()
        return {k: state[k].detach().clone() for k in self.names}

    def named(self, *private: str) -> frozenset[str]:
        """The weights with one of these roles, or names. Raises ValueError for one that fits no weight."""
        for p in private:
            if p not in self.roles.values() and p not in self.names:
                known = sorted({*self.roles.values()})
                raise ValueError(f"private: no weight has the role or name {p!r}; the roles here: {known}")
        return frozenset(k for k, role in self.roles.items() if role in private or k in private)


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """Federated averaging (McMahan et al. 2017, algorithm 1). Another algorithm overrides what it does otherwise."""

    private: tuple[str, ...] = ()  # roles or names of the weights that never leave their client
    optimizer: Optimizer = Sgd()
    server_optimizer: Optimizer = Sgd()
    server_lr: float = 1.0
    task: Task = field(default=None, repr=False)  # type: ignore[assignment]  # bound by fit
    broadcast: ClassVar[tuple[str, ...]] = ("w",)  # keys of the server's state that clients see
    weighting: ClassVar[str] = "examples"  # how clients are weighted where the config does not say

    def bind(self, task: Task) -> Self:
        """This algorithm on that task. Raises ValueError where they do not fit."""
        task.named(*self.private)
        return replace(self, task=task)

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
        return server | self.server_step(server, mean["dw"])

    def server_step(self, server: Tree, dw: Weights) -> Tree:
        w, p = server["w"], pick(dw, self.task.trainable)
        down = {k: -v for k, v in p.items()}
        new, opt = self.server_optimizer.update(down, server["opt"], pick(w, p), self.server_lr)
        means = {var: dw[mean] for var, mean in self.task.variances.items() if var in dw}
        for k in dw.keys() - p.keys():  # buffers: pooled mean and variance (law of total variance); whole counts
            d = dw[k] if w[k].is_floating_point() else dw[k].round()
            new[k] = (w[k] + d - means[k] ** 2).clamp(min=0) if k in means else (w[k] + d).to(w[k].dtype)
        return {"w": {k: new.get(k, v) for k, v in w.items()}, "opt": opt}

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
        w, opt = self.optimizer.update(self.direction(g, carry["w"], ctx), carry["opt"], carry["w"], ctx.lr)
        return carry | {"w": w | buffers, "opt": opt}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        """The update (goes up, is averaged) and the next private state (stays)."""
        w, old = carry["w"], ctx.server["w"]
        dw = {k: (w[k] - old[k]).to(torch.get_default_dtype() if not w[k].is_floating_point() else w[k].dtype)
              for k in old if k in self.task.travels and w[k].dtype != torch.bool}  # fmt: skip
        second = {var: dw[var] + dw[mean] ** 2 for var, mean in self.task.variances.items() if var in dw}
        return {"dw": dw | second}, {"w": pick(w, self.kept)}

    # in use
    def personal(self, server: Tree, private: Tree) -> Weights:
        """The weights this client predicts with."""
        return server["w"] | private["w"]

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        """The private state of a client that looks at its own data without taking part: a newcomer's, and, for
        an algorithm that sets `adapt_epochs`, everybody's before predicting."""
        return ctx.private

    def grad(self, w: Weights, batch: Batch, ctx: Context) -> tuple[Weights, Weights, Tensor]:
        """(gradient of the trainable weights, new buffers, loss) on a batch."""
        frozen = {k: v for k, v in w.items() if k not in self.task.trainable}

        def f(p: Weights) -> tuple[Tensor, Weights]:
            buffers = {k: v.clone() for k, v in frozen.items()}
            out = functional_call(self.task.module, p | buffers, (batch["x"],))
            return self.loss(out, batch, ctx), buffers

        g, (loss, buffers) = grad_and_value(f, has_aux=True)(pick(w, self.task.trainable))
        return g, buffers, loss


def run_client(alg: Algorithm, ctx: Context, batches: Iterable[Batch]) -> tuple[Tree, Tree, Tensor]:
    """One client's round: (update, next private state, mean loss). Every engine computes this, for every client."""
    carry, total, t = alg.begin(ctx), torch.zeros(()), 0
    for t, batch in enumerate(batches, 1):
        carry, loss = alg.step(carry, batch, ctx._replace(step=torch.tensor(t - 1)))
        total = total + loss
    return *alg.end(carry, ctx), total / max(t, 1)
