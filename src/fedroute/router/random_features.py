"""Random Fourier features: numbers whose inner products stand for a kernel, so that sums of them can be added up."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedroute.randomness import generator
from fedroute.tree import Tree


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """Rahimi & Recht 2007, "Random features for large-scale kernel machines", in the form of cosine and sine pairs:
    phi(z) = sqrt(2 / M) [cos(W z), sin(W z)], whose inner product tends to exp(-|z - z'|^2 / (2 width^2)).

    The rows of W are orthogonal in blocks of D, with lengths as a Gaussian's (Yu et al. 2016, "Orthogonal random
    features"): the same mean, less variance. Every client draws the same W from the key.

    frequencies: (M / 2, D) float64."""

    frequencies: Tensor

    @classmethod
    def draw(cls, width: int, count: int, scale: float = 1.0, *key: int | str) -> Self:
        """count: M, made even. scale: the kernel's width, in units of sqrt(2 D), which is about the distance between
        two rows of D standardised numbers. key: what W is drawn by."""
        g = generator("random features", *key)
        blocks = []
        for _ in range(math.ceil(count / 2 / max(width, 1))):
            q, r = torch.linalg.qr(torch.randn(width, width, generator=g, dtype=torch.float64))
            turned = q * r.diagonal().sign()  # uniform among rotations (Mezzadri 2007)
            lengths = torch.randn(width, width, generator=g, dtype=torch.float64).norm(dim=1)
            blocks.append(turned.T * lengths[:, None])
        w = torch.cat(blocks)[: math.ceil(count / 2)] if blocks else torch.zeros(0, width, dtype=torch.float64)
        return cls(w / (scale * math.sqrt(2 * max(width, 1))))

    def __call__(self, z: Tensor) -> Tensor:
        """z (B, D) float64 -> (B, M)."""
        angle = z @ self.frequencies.T
        return torch.cat([angle.cos(), angle.sin()], 1) * math.sqrt(1 / max(len(self.frequencies), 1))

    def state(self) -> Tree:
        return {"frequencies": self.frequencies}
