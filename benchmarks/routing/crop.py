"""Random crops of training images, drawn by a key."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fedroute.core import Batch
from fedroute.data.federation import Federation
from fedroute.randomness import generator


def cropped(x: Tensor, g: torch.Generator, smallest: float = 0.9, ratio: float = 4 / 3) -> Tensor:
    """Of each image of x (B, C, H, W) a random part, enlarged to the whole, bilinear. Its area is uniform between
    `smallest` and 1 of the image's, the logarithm of width over height uniform up to that of `ratio` either way, as far
    as the part fits in.

    The distribution is that of the random resized crop of Szegedy et al. 2015 without its rounding to pixels and its
    whole image after ten draws that do not fit."""
    area, shape, at_x, at_y = torch.rand(4, len(x), generator=g, dtype=x.dtype)
    area = smallest + (1 - smallest) * area
    reach = torch.minimum(-area.log(), area.new_tensor(ratio).log())
    spread = (reach * (2 * shape - 1)).exp()
    width, height = (area * spread).sqrt(), (area / spread).sqrt()
    theta = x.new_zeros(len(x), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = width, height
    theta[:, 0, 2], theta[:, 1, 2] = (1 - width) * (2 * at_x - 1), (1 - height) * (2 * at_y - 1)
    return grid_sample(x, affine_grid(theta, list(x.shape), align_corners=False), "bilinear", "border", False)


@dataclass(frozen=True, kw_only=True)
class Cropped(Federation):
    """A federation whose batches are cropped at random, by a key of the seed and the batch's rows: for training."""

    crop_seed: int

    @classmethod
    def of(cls, f: Federation, seed: int) -> "Cropped":
        own: dict[str, Any] = {k.name: getattr(f, k.name) for k in fields(f)}
        return cls(**own, crop_seed=seed)

    def take(self, index: Tensor) -> Batch:
        batch = super().take(index)
        key = ",".join(map(str, index.tolist()))
        return batch | {"x": cropped(batch["x"], generator(self.crop_seed, "crop", key))}
