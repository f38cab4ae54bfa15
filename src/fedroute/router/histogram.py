"""How often each shade occurs in an image: what its moments and quantiles leave out, and what a scanner, a pen or a
threshold gives away. It tells images of an unknown kind from known ones (`router.abstain`)."""

import torch
from torch import Tensor

from fedroute.router.style import maps

BINS = 8


def histogram(x: Tensor, chunk: int = 512) -> Tensor:
    """x (B, C, H, W), uint8 or float in 0..1 -> (B, D) float64, D = 8 of grey images, 40 of colour ones.

    Of each channel, and of more than one also of the largest of them and of the saturation: the roots of the shares of
    pixels in BINS bins of equal width. Roots, because the deviation of a share grows with the root of it."""
    return torch.cat([_histogram(part) for part in x.split(chunk)]) if len(x) else _histogram(x[:0])


def _histogram(x: Tensor) -> Tensor:
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    within = maps(x)[:, : x.shape[1] + 2].flatten(2)  # what lies in 0..1
    place = (within * BINS).long().clamp(0, BINS - 1) + BINS * torch.arange(within.shape[1])[:, None]
    count = torch.zeros(len(x), BINS * within.shape[1], dtype=torch.float64)
    count.scatter_add_(1, place.flatten(1), torch.ones_like(place.flatten(1), dtype=torch.float64))
    return (count / max(1, within.shape[2])).sqrt()
