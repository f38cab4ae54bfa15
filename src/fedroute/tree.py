"""Arithmetic on weights and on trees of tensors. Pure: nothing is changed in place."""

import hashlib
from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch import Tensor

Weights = dict[str, Tensor]
"""Dotted name -> tensor; parameters and buffers alike."""
Tree = dict[str, Any]
"""Nested dicts with string keys and tensors as leaves: the only thing that crosses an engine."""


def pick(w: Mapping[str, Tensor], names: Container[str]) -> Weights:
    """The leaves named in `names`, in the order of `w`, which is the same in every process."""
    return {k: v for k, v in w.items() if k in names}


def axpy(a: float | Tensor, x: Mapping[str, Tensor], y: Weights, *, spent: bool = False) -> Weights:
    """y + a x, leaf by leaf; leaves that x lacks stay as they are. spent: the result may lie where x lay, if x lets it:
    not under a transform of torch.func, nor where leaves share memory."""
    if isinstance(a, Tensor):
        return y | {k: y[k] + a * x[k] for k in x}
    if spent and _apart(x):
        return y | {k: _over(v, y[k], a) for k, v in x.items()}
    return y | {k: torch.add(y[k], x[k], alpha=a) for k in x}


def _apart(x: Mapping[str, Tensor]) -> bool:
    """Whether no two leaves share memory. Of tensors under a transform of torch.func that cannot be known."""
    try:
        return len({v.untyped_storage().data_ptr() for v in x.values()}) == len(x)
    except (RuntimeError, NotImplementedError):  # torch's answer under a transform; False only costs a copy
        return False


def _over(x: Tensor, y: Tensor, a: float) -> Tensor:
    """y + a x in the place of x; elsewhere where elements of x share memory, as those of an expanded tensor do."""
    try:
        return torch.add(y, x, alpha=a, out=x)
    except RuntimeError:
        return torch.add(y, x, alpha=a)


def zeros(w: Mapping[str, Tensor]) -> Weights:
    """A zero for each leaf."""
    return {k: torch.zeros_like(v) for k, v in w.items()}


def tree_map(f: Callable[..., Tensor], tree: Tree, *others: Tree) -> Tree:
    """f of the leaves that stand at the same place in all trees.

    Raises KeyError where another tree lacks a key of the first."""
    return {
        k: tree_map(f, v, *(o[k] for o in others)) if isinstance(v, dict) else f(v, *(o[k] for o in others))
        for k, v in tree.items()
    }


def select(mask: bool | Tensor, new: Tree, old: Tree) -> Tree:
    """`new` where the mask, a () bool, holds, else `old`, leaf by leaf; leaves of `new` that `old` lacks are new."""
    if isinstance(mask, bool):
        return new if mask else new | old
    return {
        k: select(mask, v, old[k]) if isinstance(v, dict) else torch.where(mask, v, old[k]) if k in old else v
        for k, v in new.items()
    }


def laid_out(tree: Tree, format: torch.memory_format) -> Tree:
    """The same numbers, those of images and their convolutions in this order in memory."""
    return tree_map(lambda v: v.contiguous(memory_format=format) if v.dim() == 4 else v, tree)


def flatten(tree: Tree, prefix: str = "", *, whole: bool = False) -> Weights:
    """{"w": {"a.b": t}} -> {"w/a.b": t}. The slash keeps levels apart from the dots inside names.

    Empty dicts, such as the state of plain SGD, leave no trace, or with `whole` an empty tensor under a name that ends
    with a slash, so that `unflatten` gives them back."""
    flat: Weights = {prefix: torch.zeros(0)} if whole and prefix and not tree else {}
    for k, v in tree.items():
        flat |= flatten(v, f"{prefix}{k}/", whole=whole) if isinstance(v, dict) else {prefix + k: v}
    return flat


def unflatten(flat: Mapping[str, Tensor]) -> Tree:
    """The inverse of `flatten` with `whole`."""
    tree: Tree = {}
    for path, v in flat.items():
        *levels, name = path.split("/")
        node = tree
        for level in levels:
            node = node.setdefault(level, {})
        if name:
            node[name] = v
    return tree


def nbytes(tree: Tree) -> int:
    """Bytes of all leaves."""
    return sum(t.numel() * t.element_size() for t in flatten(tree).values())


def sha256(tree: Tree) -> str:
    """A hash of names, dtypes, shapes and bits: equal hashes mean equal trees, bit for bit."""
    h = hashlib.sha256()
    for name, t in sorted(flatten(tree).items()):
        t = t.detach().cpu().contiguous()
        h.update(f"{name} {t.dtype} {tuple(t.shape)};".encode())
        h.update(t.reshape(-1).view(torch.uint8).numpy().tobytes())
    return h.hexdigest()
