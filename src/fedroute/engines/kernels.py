"""Chains of linear layers and ReLU under cross entropy, for many clients at once, written by hand.

Small models spend most of a step around the arithmetic and not in it. Here a step of n clients is a handful of batched
matrix products, and under plain SGD the product that makes a gradient adds it to the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from fedroute.core import Algorithm, Batch, Context, Task
from fedroute.data.federation import Federation
from fedroute.engines.gradient import Dims, Grad
from fedroute.optim import Sgd
from fedroute.task import default_loss
from fedroute.tree import Tree, Weights

_relu_backward = torch.ops.aten.threshold_backward.grad_input  # zero where what the ReLU put out is zero


@dataclass(frozen=True)
class Layer:
    """A linear layer: the names of its weight (out, in) and bias (out,), and whether a ReLU follows."""

    weight: str
    bias: str | None
    relu: bool = False


@dataclass(frozen=True)
class Chain:
    """A model that is nothing but layers in a row; `flattens`: rows of any shape are made flat first."""

    layers: tuple[Layer, ...]
    flattens: bool


def chain_of(task: Task) -> Chain | None:
    """The chain that a task is, if all its weights are trained, under cross entropy; else None."""
    module = task.module
    if task.loss is not default_loss or set(task.trainable) != set(task.names):
        return None
    if any(m._forward_hooks or m._forward_pre_hooks for m in module.modules()):
        return None
    try:
        _input, *nodes = fx.symbolic_trace(module).graph.nodes
    except Exception:  # a module that decides as it runs is no chain
        return None
    layers, flattens = list[Layer](), False
    for node in nodes:
        if node.all_input_nodes != [node.prev]:
            return None
        match kind_of(module, node):
            case "linear":
                bias = None if module.get_submodule(node.target).bias is None else f"{node.target}.bias"
                layers.append(Layer(f"{node.target}.weight", bias))
            case "relu" if layers:
                layers[-1] = replace(layers[-1], relu=True)
            case "flatten":
                flattens |= not layers
            case "same":
                pass
            case _:
                return None
    names = [n for layer in layers for n in (layer.weight, layer.bias) if n]
    return Chain(tuple(layers), flattens) if names and sorted(names) == sorted(task.names) else None


def kind_of(module: nn.Module, node: fx.Node) -> str:
    """What a node of a traced module is to a chain: linear, relu, flatten, same (as its input), or "", none of them."""
    m = module.get_submodule(str(node.target)) if node.op == "call_module" else None
    if type(m) is nn.Linear:
        return "linear"
    if type(m) is nn.ReLU or node.target in (torch.relu, F.relu, "relu"):
        return "relu"
    if type(m) is nn.Flatten and (m.start_dim, m.end_dim) == (1, -1):
        return "flatten"
    if node.target in (torch.flatten, "flatten") and node.args[1:] == (1,) and not node.kwargs:
        return "flatten"
    return "same" if type(m) is nn.Identity or node.op == "output" else ""


def chain_for(task: Task, federation: Federation) -> Chain | None:
    """The chain that a task is, if the federation's rows and labels are what it takes; else None."""
    x, y, chain = federation.x, federation.y, chain_of(task)
    if chain is None or not len(y):
        return None
    w = task.module.state_dict()
    first, last = w[chain.layers[0].weight], w[chain.layers[-1].weight]
    shape = x.is_contiguous() and (x.dim() == 2 or chain.flattens) and x[0].numel() == first.shape[1]
    dtype = x.dtype == first.dtype or (x.dtype == torch.uint8 and first.dtype == torch.float32)
    labels = y.dim() == 1 and y.dtype == torch.int64 and int(y.min()) >= 0 and int(y.max()) < len(last)
    return chain if shape and dtype and labels else None


class ByChain(NamedTuple):
    """The gradients of a chain, in the place of autograd's."""

    chain: Chain

    def __call__(self, w: Weights, batch: Batch, ctx: Context, dims: Dims) -> Grad:
        x, y = batch["x"], batch["y"]
        inputs, h = list[Tensor](), x.flatten(2)  # (n, B, in)
        for layer in self.chain.layers:
            inputs.append(h)
            h = _linear(layer, w, h)
            if layer.relu:
                h = h.clamp_min_(0)
        logp, last, y = h.log_softmax(-1), h, y.unsqueeze(-1)
        dz = logp.exp().scatter_add_(2, y, logp.new_full((), -1).expand_as(y)).div_(y.shape[1])
        g: Weights = {}
        for layer, h, out in reversed(list(zip(self.chain.layers, inputs, [*inputs[1:], last], strict=True))):
            if layer.relu:
                dz = torch.ops.aten.threshold_backward(dz, out, 0)
            g[layer.weight] = torch.bmm(dz.transpose(1, 2), h)
            if layer.bias:
                g[layer.bias] = dz.sum(1)
            if h is not inputs[0]:
                dz = torch.bmm(dz, w[layer.weight])
        return {k: g[k] for k in w}, {}, -logp.gather(2, y).mean((1, 2))


def _linear(layer: Layer, w: Weights, h: Tensor) -> Tensor:
    """(n, B, in) -> (n, B, out)."""
    weight = w[layer.weight].transpose(1, 2)
    return torch.baddbmm(w[layer.bias].unsqueeze(1), h, weight) if layer.bias else torch.bmm(h, weight)


def is_plain(alg: Algorithm) -> bool:
    """Whether a step is that of SGD on the task's own loss, and nothing else."""
    kind, optimizer = type(alg), alg.optimizer
    default = all(getattr(kind, hook) is getattr(Algorithm, hook) for hook in ("step", "grad", "loss", "direction"))
    return default and type(optimizer) is Sgd and not optimizer.nesterov


@dataclass(frozen=True)
class Plan:
    """The rows of all steps of A clients, as one table. A batch that is smaller than the largest is filled up with rows
    that count nothing, which is exact here, where no layer looks across a batch."""

    rows: Tensor  # (T, A, B) int64
    say: Tensor  # (T, A, B, 1): 1 / (rows of the batch), or 0 where filled up
    active: list[int]  # (T,) clients that make this step: the first so many

    @classmethod
    def of(cls, batches: Sequence[Sequence[Tensor]], dtype: torch.dtype) -> Self:
        """`batches`: of each client the rows of its steps, clients with more steps first."""
        sizes = [torch.tensor([rows.numel() for rows in steps]) for steps in batches]
        A, T, B = len(batches), len(batches[0]), max(int(s.max()) for s in sizes)
        rows, say = torch.zeros(A, T * B, dtype=torch.int64), torch.zeros(A, T * B, dtype=dtype)
        for a, (steps, size) in enumerate(zip(batches, sizes, strict=True)):
            flat = torch.cat(list(steps))
            place = torch.arange(len(flat))
            place += (torch.arange(len(size)) * B - size.cumsum(0) + size).repeat_interleave(size)
            rows[a] = flat[0]
            rows[a, place], say[a, place] = flat, size.to(dtype).reciprocal().repeat_interleave(size)
        active, n = list[int](), A
        for t in range(T):
            while len(batches[n - 1]) <= t:
                n -= 1
            active.append(n)
        return cls(
            rows.view(A, T, B).transpose(0, 1).contiguous(),
            say.view(A, T, B, 1).transpose(0, 1).contiguous(),
            active,
        )


class _Pass:
    """One layer of n clients: the views on their weights and on the scratch memory of a step."""

    def __init__(self, layer: Layer, w: Weights, velocity: Weights, z: Tensor, dz: Tensor):
        """z, dz: (n, B, out), for what the layer puts out and its gradient."""
        n, self.relu, self.z, self.dz, self.dz_t = len(z), layer.relu, z, dz, dz.transpose(1, 2)
        self.weight = w[layer.weight][:n]
        self.weight_t = self.weight.transpose(1, 2)
        self.bias = w[layer.bias][:n].unsqueeze(1) if layer.bias else None
        self.moved = [(self.weight, velocity[layer.weight][:n] if velocity else None)]
        if layer.bias and self.bias is not None:
            self.moved.append((self.bias, velocity[layer.bias][:n].unsqueeze(1) if velocity else None))

    def forward(self, h: Tensor) -> None:
        if self.bias is None:
            torch.bmm(h, self.weight_t, out=self.z)
        else:
            torch.baddbmm(self.bias, h, self.weight_t, out=self.z)
        if self.relu:
            self.z.clamp_min_(0)

    def backward(self, h: Tensor, dh: Tensor | None, ones: Tensor, lr: float, sgd: Sgd) -> None:
        """Moves the weights; `dh` takes the gradient of the input `h` where that is wanted."""
        if self.relu:
            _relu_backward(self.dz, self.z, 0, grad_input=self.dz)
        if dh is not None:
            torch.bmm(self.dz, self.weight, out=dh)
        for (w, v), left, right in zip(self.moved, (self.dz_t, ones), (h, self.dz), strict=False):
            if v is None:
                w.baddbmm_(left, right, beta=1 - lr * sgd.weight_decay, alpha=-lr)
            else:
                v.baddbmm_(left, right, beta=sgd.momentum)
                if sgd.weight_decay:
                    v.add_(w, alpha=sgd.weight_decay)
                w.add_(v, alpha=-lr)


def descend(chain: Chain, w: Weights, opt: Tree, federation: Federation, plan: Plan, lr: float, sgd: Sgd) -> Tensor:
    """All steps of A clients, in place: the leaves of `w` and of the optimiser's state are (A or more, ...) and
    contiguous. Returns the sum over each client's steps of its losses, (A,)."""
    T, A, B = plan.rows.shape
    source, like = federation.x.flatten(1), w[chain.layers[0].weight]
    raw = source.new_empty(A * B, source.shape[1])
    x = raw if raw.dtype == like.dtype else torch.empty_like(raw, dtype=like.dtype)
    labels, minus, logp = federation.y[plan.rows].unsqueeze(-1), -plan.say, torch.zeros_like(plan.say)  # (T, A, B, 1)
    tables = zip(plan.rows.view(T, A * B), plan.say, minus, labels, logp, plan.active, strict=True)
    z, dz = ([like.new_empty(A, B, w[layer.weight].shape[1]) for layer in chain.layers] for _ in range(2))
    velocity, n = opt.get("momentum", {}), 0
    for rows, say, less, y, found, active in tables:
        if active != n:  # views on those who still make steps
            n = active
            passes = [_Pass(layer, w, velocity, a[:n], b[:n]) for layer, a, b in zip(chain.layers, z, dz, strict=True)]
            here, batch, ones = raw[: n * B], x[: n * B], like.new_ones(n, 1, B)
            out, slope = passes[-1].z, passes[-1].dz
            inputs = [batch.view(n, B, -1), *(p.z for p in passes[:-1])]
            backward = list(zip(passes, inputs, [None, *(p.dz for p in passes[:-1])], strict=True))[::-1]
        if n < A:
            rows, say, less, y, found = rows[: n * B], say[:n], less[:n], y[:n], found[:n]
        torch.index_select(source, 0, rows, out=here)
        if x is not raw:
            torch.div(here, 255, out=batch)
        for p, h in zip(passes, inputs, strict=True):
            p.forward(h)
        torch.log_softmax(out, -1, out=slope)
        torch.gather(slope, 2, y, out=found)
        slope.exp_().mul_(say).scatter_add_(2, y, less)
        for p, h, dh in backward:
            p.backward(h, dh, ones, lr, sgd)
    return (logp * minus).sum((0, 2, 3))
