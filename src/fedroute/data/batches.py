"""Which rows make which batch: index lists, never copies of data."""

import torch
from torch import Tensor


def batches(
    rows: Tensor,
    batch_size: int,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    generator: torch.Generator,
    whole: bool = False,
) -> list[Tensor]:
    """The batches of one client's round: `epochs` passes, each freshly shuffled with a smaller last batch, or exactly
    `steps` batches drawn from such passes one after the other.

    whole: a last batch of one row joins the batch before it, and a client of one row makes none (batch norm cannot
    learn from one row). Raises ValueError unless exactly one of epochs and steps is given."""
    if (epochs is None) == (steps is None):
        raise ValueError("give epochs or steps, one of them")
    n, found = len(rows), list[Tensor]()
    if n == 0 or (whole and n == 1):
        return found
    while len(found) < steps if steps is not None else epochs:
        order = rows[torch.randperm(n, generator=generator)]
        found += _cut(order, batch_size, whole)
        epochs = None if epochs is None else epochs - 1
    return found if steps is None else found[:steps]


def _cut(order: Tensor, batch_size: int, whole: bool) -> list[Tensor]:
    parts = list(order.split(batch_size))
    if whole and len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
