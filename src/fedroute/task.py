"""A model as a pure function of its weights."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedroute.errors import InputError
from fedroute.tree import Weights, pick

Batch = dict[str, Tensor]  # "x": (B, ...), "y": (B,) or what the task's loss takes
Loss = Callable[[Any, Batch], Tensor]
NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def default_loss(out: Any, batch: Batch) -> Tensor:
    """Cross entropy of the logits; a function by name, so that a task can be pickled."""
    return cross_entropy(out, batch["y"])


def squared_loss(out: Any, batch: Batch) -> Tensor:
    """Mean squared error: out (B, 1) or (B,) against y (B,), or both (B, ...). A function by name, as `default_loss`.

    Raises InputError where the model puts out other shapes than the targets have."""
    y = batch["y"]
    found = out.squeeze(-1) if out.ndim == y.ndim + 1 and out.shape[-1] == 1 else out
    if found.shape != y.shape:
        raise InputError(f"model: puts out {tuple(out.shape)} for targets {tuple(y.shape)}, rows first: it needs as "
                         "many outputs as a target has numbers (model.outputs), or a loss of its own")  # fmt: skip
    error: Tensor = found - y
    return error.square().mean()


def loss_for(y: Tensor) -> Loss:
    """What is minimised where nothing else is said: squared error for numbers, cross entropy for class codes."""
    return squared_loss if y.is_floating_point() else default_loss


def _places(module: nn.Module, first: Mapping[int, str]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Where a module and its parts hold their weights: (dict, key, name of the weight), each of tied ones."""
    for m in module.modules():
        for held in (m._parameters, m._buffers):
            for key, v in held.items():
                if id(v) in first:
                    yield held, key, first[id(v)]


class Task:
    """A model as a pure function of its weights, each weight with a role, and what is minimised.

    `roles`: name prefix -> role ("body", "head", "router"), else "body". Weights of normalisation layers, found by the
    type of their module, are "norm" instead of "body". `loss(out, batch)`: (); by default cross entropy of logits."""

    def __init__(self, module: nn.Module, roles: dict[str, str] | None = None, loss: Loss | None = None):
        self.module, self.loss = module, loss or default_loss
        state = module.state_dict(keep_vars=True)
        first = {id(v): k for k, v in reversed(state.items())}  # of tied weights the first name stands for all
        self.names = tuple(k for k, v in state.items() if first[id(v)] == k)
        self.tied = len(self.names) < len(state)
        self._places = [] if any(isinstance(m, nn.RNNBase) for m in module.modules()) else list(_places(module, first))
        self.trainable = tuple(k for k, p in module.named_parameters() if p.requires_grad and k in self.names)
        self.travels = frozenset(self.names) - {k for k, p in module.named_parameters() if not p.requires_grad}
        norms = {n for n, m in module.named_modules() if isinstance(m, NORMS)}
        self.norms = tuple(k for k in self.names if k.rpartition(".")[0] in norms)
        self.roles = {k: self._role(k, roles or {}) for k in self.names}
        self.counters = frozenset(k for k in self.names if k.endswith("num_batches_tracked") and k in self.norms)
        self.variances = {k: k[:-3] + "mean" for k in self.norms if k.endswith("running_var")}
        images = any(isinstance(m, nn.Conv2d) for m in module.modules())
        self.format = torch.channels_last if images else torch.contiguous_format  # of weights in a round: for speed
        self.batch_norm = any(isinstance(m, _BatchNorm) for m in module.modules())  # it cannot learn from a single row

    def _role(self, name: str, roles: dict[str, str]) -> str:
        role = roles.get(max(filter(name.startswith, roles), key=len, default=""), "body")
        return "norm" if role == "body" and name in self.norms else role

    def init(self) -> Weights:
        return {k: v.detach().clone() for k, v in pick(self.module.state_dict(), self.names).items()}

    def __call__(self, w: Mapping[str, Tensor], x: Tensor) -> Any:
        """What the module makes of x (B, ...) with these weights; buffers in `w` are changed as the module changes its
        own. It does what torch.func.functional_call does, in a tenth of the time, which small steps feel; recurrent
        layers, which hold their weights twice, are left to that."""
        if not self._places:
            return functional_call(self.module, dict(w), (x,), tie_weights=self.tied)
        before = [held[key] for held, key, _ in self._places]
        try:
            for held, key, name in self._places:
                held[key] = w[name]
            return self.module(x)
        finally:
            for (held, key, _), old in zip(self._places, before, strict=True):
                held[key] = old

    def gradient(self, w: Weights, x: Tensor, loss: Callable[[Any], Tensor]) -> tuple[Weights, Weights, Tensor]:
        """(gradient of the trainable weights, new buffers, loss) where loss(output for x) is minimised."""
        p = pick(w, self.trainable)

        def f(p: Weights) -> tuple[Tensor, Weights]:
            buffers = {k: v.clone() for k, v in w.items() if k not in p}
            return loss(self(p | buffers, x)), buffers

        try:
            p = {k: v.detach().requires_grad_() for k, v in p.items()}
        except RuntimeError:  # inside a transform of torch.func
            g, (value, buffers) = grad_and_value(f, has_aux=True)(p)
            return g, buffers, value
        with torch.enable_grad():  # the same, a tenth faster
            value, buffers = f(p)
            g = dict(zip(p, torch.autograd.grad(value, tuple(p.values()), materialize_grads=True), strict=True))
        return g, {k: v.detach() for k, v in buffers.items()}, value.detach()

    def named(self, *private: str) -> frozenset[str]:
        """The weights with one of these roles, or names; "norm" takes those in a head too. Else an InputError."""
        roles = {*self.roles.values()} | ({"norm"} if self.norms else set())
        for p in sorted({*private} - roles - {*self.names}):
            raise InputError(f"algorithm.private: no weight has the role or name {p!r}; roles here: {sorted(roles)}")
        return frozenset(k for k, r in self.roles.items() if {k, r, "norm" if k in self.norms else r} & {*private})
