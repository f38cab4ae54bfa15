"""Gradients of many clients' batches, taken together.

`vmap(grad)` differentiates client by client inside the map. Here the map ends where the gradient begins: the forward
pass is mapped, the losses are summed, and one call of autograd gives every client its own gradient, since no client's
loss depends on another's weights. That is cheaper, and a hand-written gradient fits in its place.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Tree, Weights

Grad = tuple[Weights, Weights, Tensor]  # gradient, buffers, loss
Dims = Sequence[int | None]  # of each leaf, which dimension is the clients'; None: all share it


class Gradients(Protocol):
    """The gradients of n clients. The leaves of `w` and `batch` and of what comes back are (n, ...); those of `ctx`, in
    the order of `leaves(as_tree(ctx))`, have the clients in the dimension that `dims` says."""

    def __call__(self, w: Weights, batch: Batch, ctx: Context, dims: Dims) -> Grad: ...


def leaves(tree: Tree) -> Iterator[Tensor]:
    for v in tree.values():
        if isinstance(v, dict):
            yield from leaves(v)
        else:
            yield v


def like(tree: Tree, found: Iterator[Tensor]) -> Tree:
    """The tree with its leaves replaced by those found."""
    return {k: like(v, found) if isinstance(v, dict) else next(found) for k, v in tree.items()}


def mapped(f: Callable[..., Tree], trees: Sequence[Tree], dims: Dims | None = None) -> Tree:
    """f(*trees) for each client, the trees' leaves with the clients in front unless `dims` says otherwise. vmap on flat
    arguments: its own walk through trees takes longer than a step of a small model."""
    out: Tree = {}

    def flat(*found: Tensor) -> tuple[Tensor, ...]:
        nonlocal out
        rest = iter(found)
        out = f(*(like(tree, rest) for tree in trees))
        return tuple(leaves(out))

    arguments = tuple(leaf for tree in trees for leaf in leaves(tree))
    found = torch.vmap(flat, in_dims=0 if dims is None else tuple(dims))(*arguments)
    return like(out, iter(found))


def as_tree(ctx: Context) -> Tree:
    """Its tensors."""
    return {k: v for k, v in ctx._asdict().items() if k != "lr"}


def reads_context(alg: Algorithm) -> bool:
    """Whether a gradient depends on the context, as only a loss of the algorithm's own can make it."""
    return type(alg).loss is not Algorithm.loss


def by_autograd(alg: Algorithm) -> Gradients:
    """The gradients of any module and loss: a mapped forward pass, then one call of autograd."""
    trainable, reads = alg.task.trainable, reads_context(alg)

    def gradients(w: Weights, batch: Batch, ctx: Context, dims: Dims) -> Grad:
        def forward(p: Weights, frozen: Weights, batch: Batch, own: Tree) -> Tree:
            buffers = {k: v.clone() for k, v in frozen.items()}
            out = alg.task(p | buffers, batch["x"])
            return {"loss": alg.loss(out, batch, ctx._replace(**own)), "buffers": buffers}

        with torch.enable_grad():
            p = {k: w[k].detach().requires_grad_() for k in trainable}
            trees = [p, {k: v for k, v in w.items() if k not in p}, batch]
            in_front = [0 for tree in trees for _ in leaves(tree)]
            out = mapped(forward, [*trees, as_tree(ctx) if reads else {}], [*in_front, *(dims if reads else ())])
            g = torch.autograd.grad(out["loss"].sum(), tuple(p.values()), materialize_grads=True)
        return dict(zip(p, g, strict=True)), {k: v.detach() for k, v in out["buffers"].items()}, out["loss"].detach()

    return gradients


def with_gradients(alg: Algorithm, gradients: Gradients) -> Algorithm:
    """The same algorithm, to be used under vmap, whose `grad` leaves the map and takes all gradients together. One
    whose class has a `grad` of its own is returned as it is."""
    if type(alg).grad is not Algorithm.grad:
        return alg

    def grad(w: Weights, batch: Batch, ctx: Context) -> Grad:
        call = _Call(alg, gradients, w, batch, ctx)
        *out, loss = _Together.apply(call, *call.arguments)  # type: ignore[no-untyped-call]
        found = iter(out)
        return {k: next(found) for k in call.trained}, {k: next(found) for k in call.buffers}, loss

    twin = copy.copy(alg)
    twin.__dict__["grad"] = grad  # of this one alone; its class keeps every hook
    return twin


class _Call:
    """One call of `grad`, with its trees taken apart for the way out of the map."""

    def __init__(self, alg: Algorithm, gradients: Gradients, w: Weights, batch: Batch, ctx: Context):
        self.alg, self.gradients, self.ctx = alg, gradients, ctx
        self.trees = w, batch, as_tree(ctx) if reads_context(alg) else {}
        self.arguments = [v for tree in self.trees for v in leaves(tree)]
        self.trained = [k for k in w if k in alg.task.trainable]
        self.buffers = [k for k in w if k not in alg.task.trainable]

    def __call__(self, found: Sequence[Tensor], dims: Dims, n: int | None) -> tuple[Tensor, ...]:
        rest = iter(found)
        w, batch, ctx = (like(tree, rest) for tree in self.trees)
        context = self.ctx._replace(**ctx)
        if n is None:
            g, buffers, loss = self.alg.grad(w, batch, context)
        else:
            of = iter(dims)
            w, batch = ({k: _in_front(v, next(of), n) for k, v in tree.items()} for tree in (w, batch))
            g, buffers, loss = self.gradients(w, batch, context, list(of))
        return *(g[k] for k in self.trained), *(buffers[k] for k in self.buffers), loss


def _in_front(v: Tensor, dim: int | None, n: int) -> Tensor:
    return v.expand(n, *v.shape) if dim is None else v.movedim(dim, 0) if dim else v


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(call: _Call, *found: Tensor) -> tuple[Tensor, ...]:
        return call(found, (), None)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Dims, call: _Call, *found: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        out = call(found, in_dims[1:], info.batch_size)
        return out, (0,) * len(out)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        raise RuntimeError("this gradient has no gradient of its own")
