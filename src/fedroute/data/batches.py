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

    whole: a last batch of less than half the size joins the batch before it, and a client of one row makes none: batch
    norm cannot learn from one row, and from two or three it learns noise that can undo the round.

    Raises ValueError unless exactly one of epochs and steps is given."""
    if (epochs is None) == (steps is None):
        raise ValueError("give epochs or steps, one of them")
    if len(rows) == 0 or (whole and len(rows) == 1):
        return []
    found, passes = list[Tensor](), 0
    while len(found) < steps if steps is not None else passes < (epochs or 0):
        found += _cut(rows[torch.randperm(len(rows), generator=generator)], batch_size, whole)
        passes += 1
    return found[:steps]


def _cut(order: Tensor, batch_size: int, whole: bool) -> list[Tensor]:
    parts = list(order.split(batch_size))
    if whole and len(parts) > 1 and len(parts[-1]) < max(2, batch_size / 2):
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
