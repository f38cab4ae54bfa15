"""Optimisers as pure (init, update) pairs, and learning-rate schedules over rounds.

One class serves clients and server alike: a client feeds it gradients, the server the negated mean of
the clients' updates (Reddi et al. 2021, "Adaptive Federated Optimization", algorithm 2).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedroute.tree import Tree, Weights, axpy, zeros


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """What every optimiser is. `weight_decay` is the coefficient of w in the step, 0 by default."""

    weight_decay: float = 0.0

    def init(self, w: Weights) -> Tree:
        """The state for weights `w`; {} where there is none."""
        return {}

    def update(self, g: Weights, state: Tree, w: Weights, lr: float) -> tuple[Weights, Tree]:
        """(new weights, new state) for gradient `g`; leaves of `w` that `g` lacks stay as they are."""
        raise TypeError(f"{type(self).__name__} is no optimiser: take Sgd, Adam, Adagrad or Yogi")

    def _decayed(self, g: Weights, w: Weights) -> Weights:
        return {k: torch.add(v, w[k], alpha=self.weight_decay) for k, v in g.items()} if self.weight_decay else g


@dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """v <- momentum v + (1 - dampening) g (v = g at first, as torch.optim.SGD); w <- w - lr v, or
    w - lr (g + momentum v) with `nesterov`. Weight decay is added to the gradient (L2)."""

    momentum: float = 0.0
    nesterov: bool = False

    def init(self, w: Weights) -> Tree:
        return {"momentum": zeros(w)} if self.momentum else {}

    def update(self, g: Weights, state: Tree, w: Weights, lr: float) -> tuple[Weights, Tree]:
        g = self._decayed(g, w)
        if not self.momentum:
            return axpy(-lr, g, w), state
        v = {k: torch.add(g[k], state["momentum"][k], alpha=self.momentum) for k in g}
        d = axpy(self.momentum, v, g) if self.nesterov else v
        return axpy(-lr, d, w), {"momentum": state["momentum"] | v}


@dataclass(frozen=True, kw_only=True)
class _Adaptive(Optimizer):
    """w <- w - lr m / (sqrt(v) + eps); the subclasses say what v is."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    bias_correction: bool = True
    decoupled: bool = False  # AdamW: decay the weights by lr * weight_decay and not the gradient

    def init(self, w: Weights) -> Tree:
        count = torch.zeros((), dtype=torch.int64, device=next(iter(w.values())).device if w else None)
        return {"m": zeros(w), "v": zeros(w), "count": count}

    def second(self, v: Tensor, g: Tensor) -> Tensor:
        b = self.betas[1]
        return b * v + (1 - b) * g * g

    def update(self, g: Weights, state: Tree, w: Weights, lr: float) -> tuple[Weights, Tree]:
        if self.decoupled:
            w = w | {k: w[k] * (1 - lr * self.weight_decay) for k in g}
        else:
            g = self._decayed(g, w)
        b1, b2 = self.betas
        count = state["count"] + 1
        m = {k: b1 * state["m"][k] + (1 - b1) * g[k] for k in g}
        v = {k: self.second(state["v"][k], g[k]) for k in g}
        c1: Tensor | float = 1 - b1**count if self.bias_correction else 1.0
        c2: Tensor | float = 1 - b2**count if self.bias_correction else 1.0
        d = {k: (m[k] / c1) / ((v[k] / c2).sqrt() + self.eps) for k in g}
        return axpy(-lr, d, w), {"m": state["m"] | m, "v": state["v"] | v, "count": count}


@dataclass(frozen=True, kw_only=True)
class Adam(_Adaptive):
    """Kingma and Ba 2015, algorithm 1; `decoupled=True` is AdamW (Loshchilov and Hutter 2019, algorithm 2)."""


@dataclass(frozen=True, kw_only=True)
class Yogi(_Adaptive):
    """v <- v - (1 - b2) sign(v - g^2) g^2 (Zaheer et al. 2018)."""

    def second(self, v: Tensor, g: Tensor) -> Tensor:
        return v - (1 - self.betas[1]) * torch.sign(v - g * g) * g * g


@dataclass(frozen=True, kw_only=True)
class Adagrad(_Adaptive):
    """v <- v + g^2; with betas[0] = 0 (the default here) that of Duchi et al. 2011."""

    betas: tuple[float, float] = (0.0, 1.0)

    def second(self, v: Tensor, g: Tensor) -> Tensor:
        return v + g * g

    def update(self, g: Weights, state: Tree, w: Weights, lr: float) -> tuple[Weights, Tree]:
        if self.bias_correction:  # a sum is not a mean: there is no bias to correct
            return Adagrad(
                weight_decay=self.weight_decay, betas=self.betas, eps=self.eps, bias_correction=False
            ).update(g, state, w, lr)
        return super().update(g, state, w, lr)


def server_optimizer(name: str, **options: float) -> Optimizer:
    """sgd, momentum, adagrad, adam or yogi as Reddi et al. 2021 use them at the server:
    no bias correction, eps (their tau) 1e-3, betas (0.9, 0.99); momentum 0.9.

    Raises ValueError for another name."""
    adaptive = {"betas": (0.9, 0.99), "eps": 1e-3, "bias_correction": False}
    match name:
        case "sgd":
            return Sgd(**options)  # type: ignore[arg-type]
        case "momentum":
            return Sgd(**({"momentum": 0.9} | options))  # type: ignore[arg-type]
        case "adagrad":
            return Adagrad(**(adaptive | {"betas": (0.0, 1.0)} | options))  # type: ignore[arg-type]
        case "adam":
            return Adam(**(adaptive | options))  # type: ignore[arg-type]
        case "yogi":
            return Yogi(**(adaptive | options))  # type: ignore[arg-type]
    raise ValueError(f"no server optimiser {name!r}: take sgd, momentum, adagrad, adam or yogi")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate of a round as a factor of the first one.

    name: "constant"; "step" (times `gamma` every `every` rounds); "exponential" (times `gamma` a round);
    "cosine" (from 1 towards `floor` over all rounds). `warmup`: rounds over which the factor first rises
    linearly to that of the schedule."""

    name: str = "constant"
    gamma: float = 0.1
    every: int = 30
    floor: float = 0.0
    warmup: int = 0

    def factor(self, round: int, rounds: int) -> float:
        """`round` in 0..rounds-1."""
        rise = min(1.0, (round + 1) / (self.warmup + 1))
        match self.name:
            case "constant":
                return rise
            case "step":
                return rise * self.gamma ** (round // self.every)
            case "exponential":
                return rise * self.gamma**round
            case "cosine":
                return rise * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * round / rounds)))
        raise ValueError(f"no schedule {self.name!r}: take constant, step, exponential or cosine")


def as_floats(options: Mapping[str, object]) -> dict[str, float]:
    """Options of a config as numbers, for the makers above."""
    return {k: float(v) for k, v in options.items()}  # type: ignore[arg-type]
