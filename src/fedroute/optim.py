"""Optimisers as pure (init, update) pairs, and learning-rate schedules over rounds.

One class serves clients and server alike: a client feeds it gradients, the server the negated mean of
the clients' updates (Reddi et al. 2021, "Adaptive Federated Optimization", algorithm 2).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedroute.errors import InputError
from fedroute.options import from_options, nearest
from fedroute.tree import Tree, Weights, axpy, zeros

Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """What every optimiser is. `weight_decay` is the coefficient of w in the gradient (L2), 0 by default."""

    weight_decay: NotNegative = 0.0

    def init(self, w: Weights) -> Tree:
        """The state for weights `w`; {} where there is none."""
        return {}

    def update(self, g: Weights, state: Tree, w: Weights, lr: float, *, spent: bool = False) -> tuple[Weights, Tree]:
        """(new weights, new state) for gradient `g`; leaves of `w` that `g` lacks stay as they are. spent: nobody needs
        `g` any more, and the new weights may be written where it lies, which spares a large model memory traffic."""
        raise TypeError(f"{type(self).__name__} is no optimiser: take Sgd, Adam, Adagrad or Yogi")

    def _decayed(self, g: Weights, w: Weights) -> Weights:
        return {k: torch.add(v, w[k], alpha=self.weight_decay) for k, v in g.items()} if self.weight_decay else g


@dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """v <- momentum v + g (v = 0 at first); w <- w - lr v, or w - lr (g + momentum v) with `nesterov`, as in
    torch.optim.SGD."""

    momentum: Share = 0.0
    nesterov: bool = False

    def init(self, w: Weights) -> Tree:
        return {"momentum": zeros(w)} if self.momentum else {}

    def update(self, g: Weights, state: Tree, w: Weights, lr: float, *, spent: bool = False) -> tuple[Weights, Tree]:
        g = self._decayed(g, w)
        if not self.momentum:
            return axpy(-lr, g, w, spent=spent), state
        v = {k: torch.add(g[k], state["momentum"][k], alpha=self.momentum) for k in g}
        d = axpy(self.momentum, v, g) if self.nesterov else v
        return axpy(-lr, d, w), {"momentum": state["momentum"] | v}


@dataclass(frozen=True, kw_only=True)
class Adaptive(Optimizer):
    """m <- beta1 m + (1 - beta1) g; v by `second`, from `initial` on; w <- w - lr m / (sqrt(v) + eps)."""

    beta1: Share = 0.9
    eps: Positive = 1e-8
    initial: NotNegative = 0.0  # of v

    def init(self, w: Weights) -> Tree:
        return {"m": zeros(w), "v": {k: torch.full_like(x, self.initial) for k, x in w.items()}}

    def second(self, v: Tensor, g: Tensor) -> Tensor:
        raise NotImplementedError(type(self).__name__)  # abstract: Adam, Yogi and Adagrad differ in it

    def moments(self, g: Weights, state: Tree) -> tuple[Weights, Weights]:
        m = {k: torch.lerp(state["m"][k], x, 1 - self.beta1) for k, x in g.items()}
        return m, {k: self.second(state["v"][k], x) for k, x in g.items()}

    def update(self, g: Weights, state: Tree, w: Weights, lr: float, *, spent: bool = False) -> tuple[Weights, Tree]:
        m, v = self.moments(self._decayed(g, w), state)
        d = {k: m[k] / (v[k].sqrt() + self.eps) for k in g}
        return axpy(-lr, d, w), {"m": state["m"] | m, "v": state["v"] | v}


@dataclass(frozen=True, kw_only=True)
class Adam(Adaptive):
    """v <- beta2 v + (1 - beta2) g^2 (Kingma and Ba 2015, algorithm 1), as in torch.optim.Adam; `bias_correction` is
    theirs. `decoupled` decays the weights by lr weight_decay and not the gradient: AdamW (Loshchilov and Hutter 2019,
    algorithm 2), as in torch.optim.AdamW."""

    beta2: Share = 0.999
    bias_correction: bool = True
    decoupled: bool = False

    def init(self, w: Weights) -> Tree:
        some = next(iter(w.values()), torch.zeros(()))
        return super().init(w) | {"count": torch.zeros((), dtype=torch.int64, device=some.device)}

    def second(self, v: Tensor, g: Tensor) -> Tensor:
        return torch.lerp(v, g * g, 1 - self.beta2)

    def update(self, g: Weights, state: Tree, w: Weights, lr: float, *, spent: bool = False) -> tuple[Weights, Tree]:
        if self.decoupled:
            w = w | {k: w[k] * (1 - lr * self.weight_decay) for k in g}
        m, v = self.moments(g if self.decoupled else self._decayed(g, w), state)
        count = state["count"] + 1
        d = {k: self._debiased(m[k], self.beta1, count) for k in g}
        d = {k: d[k] / (self._debiased(v[k], self.beta2, count).sqrt() + self.eps) for k in g}
        return axpy(-lr, d, w), {"m": state["m"] | m, "v": state["v"] | v, "count": count}

    def _debiased(self, x: Tensor, beta: float, count: Tensor) -> Tensor:
        """x / (1 - beta^count), by expm1, so that the difference keeps its digits in float32."""
        return x / -torch.expm1(count.to(x.dtype) * math.log(beta)) if self.bias_correction and beta else x


@dataclass(frozen=True, kw_only=True)
class Yogi(Adaptive):
    """v <- v - (1 - beta2) sign(v - g^2) g^2 (Zaheer et al. 2018, algorithm 2)."""

    beta2: Share = 0.999

    def second(self, v: Tensor, g: Tensor) -> Tensor:
        return v - (1 - self.beta2) * torch.sign(v - g * g) * g * g


@dataclass(frozen=True, kw_only=True)
class Adagrad(Adaptive):
    """v <- v + g^2 (Duchi et al. 2011), as in torch.optim.Adagrad; beta1 > 0 adds momentum."""

    beta1: Share = 0.0
    eps: Positive = 1e-10

    def second(self, v: Tensor, g: Tensor) -> Tensor:
        return v + g * g


SERVER_OPTIMIZERS: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "sgd": (Sgd, {}),
    "momentum": (Sgd, {"momentum": 0.9}),
    "adagrad": (Adagrad, {"eps": 1e-3}),
    "adam": (Adam, {"beta2": 0.99, "eps": 1e-3, "bias_correction": False}),
    "yogi": (Yogi, {"beta2": 0.99, "eps": 1e-3}),
}
"""Name -> (class, its defaults at a server), for `server_optimizer`."""


def server_optimizer(name: str, **options: Any) -> Optimizer:
    """sgd, momentum, adagrad, adam or yogi as Reddi et al. 2021 use them at the server (algorithm 2, appendix D):
    beta1 0.9 (adagrad: 0), beta2 0.99, eps (their tau) 1e-3, v starting at tau^2, no bias correction; momentum 0.9.
    `options`: other values for these, by the names of the class's fields.

    Raises InputError for another name or option, or a value out of range."""
    if name not in SERVER_OPTIMIZERS:
        raise InputError(f"training.server_optimizer: no {name!r}; {nearest(name, SERVER_OPTIMIZERS)}")
    cls, defaults = SERVER_OPTIMIZERS[name]
    made = from_options(cls, defaults | options, "training.server_optimizer")
    if isinstance(made, Adaptive) and "initial" not in options:
        return from_options(cls, defaults | options | {"initial": made.eps**2}, "training.server_optimizer")
    return made


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate of a round as a factor of the first one.

    name: "constant"; "step" (times `gamma` every `every` rounds); "exponential" (times `gamma` a round);
    "cosine" (from 1 towards `floor` over all rounds). `warmup`: rounds over which the factor first rises
    linearly to that of the schedule."""

    name: Literal["constant", "step", "exponential", "cosine"] = "constant"
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.1
    every: Annotated[int, Field(ge=1)] = 30
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    warmup: Annotated[int, Field(ge=0)] = 0

    def factor(self, round: int, rounds: int) -> float:
        """`round` in 0..rounds-1."""
        rise = min(1.0, (round + 1) / (self.warmup + 1))
        match self.name:
            case "step":
                return rise * self.gamma ** (round // self.every)
            case "exponential":
                return rise * self.gamma**round
            case "cosine":
                return rise * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * round / rounds)))
            case "constant":
                return rise


def schedule(spec: str | Mapping[str, Any]) -> Schedule:
    """A schedule from a config's training.schedule: a name, or a name with options.

    Raises InputError for an unknown name or key, or a value out of range."""
    return from_options(Schedule, {"name": spec} if isinstance(spec, str) else spec, "training.schedule")
