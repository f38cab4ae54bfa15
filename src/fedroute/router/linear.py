"""Posteriors whose logits are linear in what is read: a row of numbers for each client."""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from fedroute.tree import Tree


@dataclass(frozen=True, eq=False)
class Linear:
    """logits_i = slope_i . u + offset_i + log n_i, u = z, or z `through` to fewer numbers. Rows of n = 0 are -inf.

    slope: (N, D) float64; offset: (N,); n: (N,) rows that client i was fitted to; through: (D0, D), or (D0, 0) for
    none. A query costs N D multiplications, and D0 D where there is a `through`."""

    slope: Tensor
    offset: Tensor
    n: Tensor
    through: Tensor

    @property
    def prior(self) -> Tensor:
        """(N,), shares of the rows."""
        return self.n / self.n.sum()

    def logits(self, z: Tensor) -> Tensor:
        """z (B, D0) -> (B, N) float64. log n, and not the log of a share, stands in them, so that who joins or leaves
        changes nobody else's."""
        return self.density(z) + self.n.log()

    def density(self, z: Tensor) -> Tensor:
        """(B, N): the logits without the prior, log of dP_i/dP_0 up to a number of each row."""
        u = z @ self.through if self.through.shape[1] else z
        return u @ self.slope.T + self.offset

    def leave(self, client: int) -> Self:
        """Without that client's row."""
        kept = [i for i in range(len(self.n)) if i != client]
        return replace(self, slope=self.slope[kept], offset=self.offset[kept], n=self.n[kept])

    def _with(self, slope: Tensor, offset: Tensor, n: Tensor) -> Self:
        """With more rows."""
        old = (self.slope, self.offset, self.n)
        rows = [torch.cat([a, b]) for a, b in zip(old, (slope, offset, n), strict=True)]
        return replace(self, slope=rows[0], offset=rows[1], n=rows[2])

    def state(self) -> Tree:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def of(cls, state: Tree) -> Self:
        return cls(**state)


NOTHING = torch.zeros(0, 0, dtype=torch.float64)  # a `through` that leaves z as it is


def factor_of(spread: Tensor, shrink: float, level: Tensor) -> Tensor:
    """Lower Cholesky factor of spread (D, D) + shrink `level` times the identity; of level 0, where nothing varies, of
    the identity times shrink."""
    level = level.where(level > 0, torch.ones_like(level))
    factor: Tensor = torch.linalg.cholesky(spread + shrink * level * torch.eye(len(spread), dtype=spread.dtype))
    return factor
