"""Steps of a round that do different things."""

import torch
from torch import Tensor


def certain(mask: Tensor) -> bool | Tensor:
    """A () bool as a Python bool, so that only one of two sides need be computed; as it is where clients are mapped
    over and may differ. `tree.select` takes either."""
    try:
        return bool(mask)
    except RuntimeError:  # inside a transform of torch.func
        return mask


def first_steps(share: float, steps: Tensor) -> Tensor:
    """() int64: how many of a round's `steps` belong to its first phase: this share of them, rounded, at least one and
    never the last; none where the share is 0."""
    if not share:
        return torch.zeros_like(steps)
    return torch.minimum((steps * share).round().to(steps.dtype).clamp(min=1), (steps - 1).clamp(min=0))
