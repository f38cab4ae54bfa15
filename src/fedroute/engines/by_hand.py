"""The gradient of layers in a row without autograd: the same operations in the same order, so the same bits.

Autograd builds a graph of every step only to walk it back once. Where a model is layers in a row under cross entropy
the way back is known beforehand. Besides, max pooling goes before a ReLU that precedes it, which changes no bit, since
the two commute and so do their gradients, and leaves the ReLU a quarter of the work.
"""

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn

from fedroute.core import Algorithm, Batch, Context, Task
from fedroute.engines.gradient import Grad
from fedroute.engines.kernels import kind_of
from fedroute.task import default_loss
from fedroute.tree import Weights

aten = torch.ops.aten


class Layer(Protocol):
    """One layer. What it puts out may lie where its input lay, unless that is needed on the way back."""

    names: tuple[str, ...]  # of its weights

    def forward(self, w: Weights, h: Tensor) -> tuple[Tensor, Any]:
        """(what it puts out for the rows h (B, ...), what `backward` needs)."""
        ...

    def backward(self, w: Weights, d: Tensor, kept: Any, wanted: bool) -> tuple[Tensor | None, Sequence[Tensor]]:
        """(gradient of its input, where that is wanted, gradients of its weights) for that of what it put out."""
        ...


class Linear:
    def __init__(self, name: str, module: nn.Linear):
        self.weight, self.bias = f"{name}.weight", f"{name}.bias"
        self.names = (self.weight,) if module.bias is None else (self.weight, self.bias)

    def forward(self, w: Weights, h: Tensor) -> tuple[Tensor, Tensor]:
        return torch.nn.functional.linear(h, w[self.weight], w.get(self.bias)), h

    def backward(self, w: Weights, d: Tensor, kept: Tensor, wanted: bool) -> tuple[Tensor | None, list[Tensor]]:
        g = [d.t().mm(kept), d.sum(0)][: len(self.names)]
        if wanted and kept.shape == (1, 1):  # by columns, as autograd takes what is as good a column as a row
            return w[self.weight].t().mm(d.t()).t(), g
        return d.mm(w[self.weight]) if wanted else None, g


class Convolution:
    def __init__(self, name: str, module: nn.Conv2d):
        self.weight, self.bias = f"{name}.weight", f"{name}.bias"
        self.names = (self.weight,) if module.bias is None else (self.weight, self.bias)
        self.sizes = None if module.bias is None else [module.out_channels]
        self.how: tuple[Any, ...] = (module.stride, module.padding, module.dilation)
        self.groups = module.groups

    def forward(self, w: Weights, h: Tensor) -> tuple[Tensor, Tensor]:
        stride, padding, dilation = self.how
        return torch.conv2d(h, w[self.weight], w.get(self.bias), stride, padding, dilation, self.groups), h

    def backward(self, w: Weights, d: Tensor, kept: Tensor, wanted: bool) -> tuple[Tensor | None, list[Tensor]]:
        mask = [wanted, True, self.sizes is not None]
        dh, *g = aten.convolution_backward(
            d, kept, w[self.weight], self.sizes, *self.how, False, [0, 0], self.groups, mask
        )
        return dh, g[: len(self.names)]


class Relu:
    names: tuple[str, ...] = ()

    def __init__(self, in_place: bool):
        self.in_place = in_place

    def forward(self, w: Weights, h: Tensor) -> tuple[Tensor, Tensor]:
        out = h.relu_() if self.in_place else h.relu()
        return out, out

    def backward(self, w: Weights, d: Tensor, kept: Tensor, wanted: bool) -> tuple[Tensor | None, list[Tensor]]:
        return aten.threshold_backward(d, kept, 0) if wanted else None, []


class MaxPool:
    names: tuple[str, ...] = ()

    def __init__(self, module: nn.MaxPool2d):
        pairs = [v if isinstance(v, tuple) else (v, v) for v in (module.kernel_size, module.stride, module.padding)]
        dilation = module.dilation if isinstance(module.dilation, tuple) else (module.dilation, module.dilation)
        self.how = [*map(list, pairs), list(dilation), module.ceil_mode]

    def forward(self, w: Weights, h: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, places = aten.max_pool2d_with_indices(h, *self.how)
        return out, (h, places)

    def backward(
        self, w: Weights, d: Tensor, kept: tuple[Tensor, Tensor], wanted: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        return aten.max_pool2d_with_indices_backward(d, kept[0], *self.how, kept[1]) if wanted else None, []


class Flatten:
    names: tuple[str, ...] = ()

    def forward(self, w: Weights, h: Tensor) -> tuple[Tensor, torch.Size]:
        return h.flatten(1), h.shape

    def backward(self, w: Weights, d: Tensor, kept: torch.Size, wanted: bool) -> tuple[Tensor | None, list[Tensor]]:
        return d.reshape(kept), []


class GroupNorm:
    def __init__(self, name: str, module: nn.GroupNorm):
        self.names = (f"{name}.weight", f"{name}.bias")
        self.groups, self.eps = module.num_groups, module.eps

    def forward(self, w: Weights, h: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        scale, shift = (w[k] for k in self.names)
        out, mean, rstd = torch.native_group_norm(h, scale, shift, *self.shape(h), self.groups, self.eps)
        return out, (h, mean, rstd)

    def backward(
        self, w: Weights, d: Tensor, kept: tuple[Tensor, ...], wanted: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        scale, mask = w[self.names[0]], [wanted, True, True]
        dh, *g = aten.native_group_norm_backward(d, *kept, scale, *self.shape(d), self.groups, mask)
        return dh, g

    def shape(self, h: Tensor) -> tuple[int, int, int]:
        return h.shape[0], h.shape[1], h[0, 0].numel()


class LayerNorm:
    def __init__(self, name: str, module: nn.LayerNorm):
        self.names = (f"{name}.weight", f"{name}.bias")
        self.over, self.eps = list(module.normalized_shape), module.eps

    def forward(self, w: Weights, h: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        scale, shift = (w[k] for k in self.names)
        out, mean, rstd = torch.native_layer_norm(h, self.over, scale, shift, self.eps)
        return out, (h, mean, rstd)

    def backward(
        self, w: Weights, d: Tensor, kept: tuple[Tensor, ...], wanted: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        h, mean, rstd = kept
        scale, shift = (w[k] for k in self.names)
        dh, *g = aten.native_layer_norm_backward(d, h, self.over, mean, rstd, scale, shift, [wanted, True, True])
        return dh, g


def layers_of(task: Task) -> list[Layer] | None:
    """The layers in a row that a task is, if all its weights are trained, under cross entropy; else None."""
    module = task.module
    if task.loss is not default_loss or set(task.trainable) != set(task.names) or task.tied:
        return None
    if any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in module.modules()):
        return None
    try:
        _input, *nodes = fx.symbolic_trace(module).graph.nodes
    except Exception:  # a module that decides as it runs is no row of layers
        return None
    layers: list[Layer] = []
    for node in nodes:
        layer = _layer(module, node, bool(layers) and not isinstance(layers[-1], Flatten))
        if node.all_input_nodes != [node.prev] or layer is None:
            return None
        if layer != "same":
            layers.append(layer)
    for k, (a, b) in enumerate(pairwise(list(layers))):
        if isinstance(a, Relu) and isinstance(b, MaxPool):
            layers[k : k + 2] = [b, Relu(in_place=True)]
    names = [n for layer in layers for n in layer.names]
    return layers if names and sorted(names) == sorted(task.names) and _fit(layers) else None


def _fit(layers: Sequence[Layer]) -> bool:
    """Whether each layer is given what it is written for: images before they are made flat, rows afterwards."""
    flat = isinstance(layers[0], Linear)
    for layer in layers:
        if isinstance(layer, Flatten):
            flat = True
        elif isinstance(layer, Convolution | MaxPool if flat else Linear):
            return False
    return flat and isinstance(layers[0], Linear | Flatten | Convolution)


def _layer(module: nn.Module, node: fx.Node, in_place: bool) -> Any:
    """The layer that a node is, "same" where it puts out its input, None where it is none of ours."""
    m = module.get_submodule(str(node.target)) if node.op == "call_module" else None
    name = str(node.target)
    match kind_of(module, node):
        case "linear":
            return Linear(name, m)  # type: ignore[arg-type]
        case "relu":
            return Relu(in_place)
        case "flatten":
            return Flatten()
        case "same":
            return "same"
    if type(m) is nn.Conv2d and m.padding_mode == "zeros" and not isinstance(m.padding, str):
        return Convolution(name, m)
    if type(m) is nn.MaxPool2d and not m.return_indices:
        return MaxPool(m)
    if type(m) is nn.GroupNorm and m.affine:
        return GroupNorm(name, m)
    if type(m) is nn.LayerNorm and m.weight is not None and m.bias is not None:
        return LayerNorm(name, m)
    return None


class ByHand:
    """`Algorithm.grad` of layers in a row."""

    def __init__(self, alg: Algorithm, layers: Sequence[Layer]):
        self.alg, self.layers = alg, layers
        self.dims = 4 if isinstance(layers[0], Convolution) else 2 if isinstance(layers[0], Linear) else 0

    def __call__(self, w: Weights, batch: Batch, ctx: Context) -> Grad:
        x, y = batch["x"], batch["y"]
        first = next(iter(w.values()))
        if y.dtype != torch.int64 or y.ndim != 1 or self.dims not in (0, x.ndim) or x.dtype != first.dtype:
            return type(self.alg).grad(self.alg, w, batch, ctx)
        try:
            first.detach().requires_grad_()
        except RuntimeError:  # inside a transform of torch.func
            return type(self.alg).grad(self.alg, w, batch, ctx)
        with torch.no_grad():
            return self.gradient(w, x, y)

    def gradient(self, w: Weights, x: Tensor, y: Tensor) -> Grad:
        kept, h = list[Any](), x
        for layer in self.layers:
            h, needed = layer.forward(w, h)
            kept.append(needed)
        logp = aten._log_softmax(h, 1, False)
        loss, total = aten.nll_loss_forward(logp, y, None, 1, -100)  # 1: the mean; -100: as cross_entropy by default
        d = aten.nll_loss_backward(torch.ones_like(loss), logp, y, None, 1, -100, total)
        d = aten._log_softmax_backward_data(d, logp, 1, logp.dtype)
        g: Weights = {}
        for k in reversed(range(len(self.layers))):
            layer = self.layers[k]
            d, found = layer.backward(w, d, kept.pop(), k > 0)
            g |= zip(layer.names, found, strict=True)
        return {k: g[k] for k in w}, {}, loss


def by_hand(alg: Algorithm) -> Algorithm:
    """The same algorithm, whose `grad` is written by hand where the model allows it and the algorithm takes the task's
    own loss and gradient; else the one that is given. Both compute the same, bit for bit."""
    kind = type(alg)
    if kind.grad is not Algorithm.grad or kind.loss is not Algorithm.loss or "grad" in vars(alg):
        return alg
    layers = layers_of(alg.task)
    if layers is None:
        return alg
    twin = copy.copy(alg)
    twin.__dict__["grad"] = ByHand(twin, layers)  # of this one alone; its class keeps every hook
    return twin
