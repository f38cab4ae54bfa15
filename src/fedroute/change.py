"""A leaf's change as it travels, for algorithms whose server keeps a model for every client."""

import torch
from torch import Tensor


def change(new: Tensor, old: Tensor) -> Tensor:
    """new - old as a floating-point tensor, so that counts can be averaged."""
    d = new - old
    return d if d.is_floating_point() else d.to(torch.get_default_dtype())


def moved(old: Tensor, d: Tensor) -> Tensor:
    """old + d in the dtype of old; counts stay whole."""
    return (old + (d if old.is_floating_point() else d.round())).to(old.dtype)


def mixed(xi: Tensor, v: Tensor) -> Tensor:
    """(n, ...) = xi (n, m) applied to v (m, ...), in the dtype of v; counts stay whole."""
    exact = v if v.is_floating_point() else v.double()
    out: Tensor = torch.tensordot(xi.to(exact.dtype), exact, 1)
    return out if v.is_floating_point() else out.round().to(v.dtype)
