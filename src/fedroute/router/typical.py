"""How far a query lies from what each client's own rows look like."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.router.sums import Sums, symmetric
from fedroute.tree import Tree

MOST = 1 << 25  # numbers in all covariances, beyond which clients share one
NUMBERS = 1 << 22  # held at once
BEHIND = 1.0  # rows of everybody's behind a client's own covariance, for each number that is read
SHRINK = 1e-2  # added to the diagonal, in units of its mean within clients
ROWS = 20.0  # of everybody's behind a client's own quantile


@dataclass(frozen=True, eq=False)
class Typical:
    """A Gaussian for each of N clients in what a router reads, z (B, D), and how far its own rows lie from its middle.

        d_i(z) = (z - m_i)' S_i^-1 (z - m_i) / scale_i

    S_i is client i's own covariance, to which the one within all clients counts as D rows more; where N D^2 is beyond
    MOST all clients share that one. scale_i is the quantile of its own held-out rows, so that each client turns down
    alike many of its own queries, however wide its rows scatter: d_i <= 1 for 95 % of them, say. A query is foreign
    where no client finds it typical: its score is the least d_i (Lee et al. 2018 with classes, S shared and no scale).

    All of it adds up from the sums of the clients, each with its own second moment; quantiles are one number each.

    mean: (N, D). white: (N, D, D) or (1, D, D), inverse Cholesky factors of S_i. n: (N,) rows. scale: (N,). within:
    (D, D), the covariance within clients, for those who join."""

    mean: Tensor
    white: Tensor
    n: Tensor
    scale: Tensor
    within: Tensor

    @classmethod
    def of(cls, sums: Sequence[Sums], most: int | None = None) -> Self:
        """From the sums of each client by itself; scales are 1. most: numbers in all covariances, beyond which there is
        one for all; MOST by default. Raises InputError where no client has rows."""
        n = torch.cat([s.n for s in sums])
        if not bool(n.sum() > 0):
            raise InputError("router.abstain: no client has rows to compare with; give the federation a training part")
        width, total = sums[0].width, float(n.sum())
        within = symmetric(sum((s.within() for s in sums), torch.zeros(width, width, dtype=torch.float64)) / total)
        alone = len(sums) * width**2 <= (MOST if most is None else most)
        white = [_white(s, within) for s in sums] if alone else [_inverse_factor(within, within)]
        mean = torch.cat([s.mean for s in sums])
        return cls(mean, torch.stack(white), n, torch.ones_like(n), within)

    def scaled(self, z: Tensor, owner: Tensor, quantile: float = 0.95) -> Self:
        """With the scales of held-out rows z (B, D), owner (B,) the client of each. That of all rows, each by its own
        client, counts as ROWS rows beside a client's own (in logarithms)."""
        d = replace(self, scale=torch.ones_like(self.scale)).distances(z).gather(1, owner[:, None])[:, 0]
        there = self.n[owner] > 0
        return self.scaled_by([d[there & (owner == i)] for i in range(len(self.n))], quantile)

    def scaled_by(self, own: Sequence[Tensor], quantile: float = 0.95) -> Self:
        """As `scaled`, from the distances (at scales of 1) of each client's held-out rows from itself; of one without
        training rows none."""
        if not sum(map(len, own)):
            return self
        least = torch.finfo(torch.float64).tiny
        pooled = torch.cat([*own]).quantile(quantile).clamp(min=least).log()
        scale = torch.full_like(self.scale, float(pooled))
        for i, d in enumerate(own):
            if len(d):
                mine = d.quantile(quantile).clamp(min=least).log()
                scale[i] = (len(d) * mine + ROWS * pooled) / (len(d) + ROWS)
        return replace(self, scale=scale.exp())

    def distances(self, z: Tensor) -> Tensor:
        """(B, N) float64, d_i of queries z (B, D); inf from a client without rows."""
        clients, width = self.mean.shape
        chunk = max(1, NUMBERS // max(1, clients * width))
        d = torch.cat([self._squares(part) for part in z.double().split(chunk)]) if len(z) else z.new_zeros(0, clients)
        return (d / self.scale).masked_fill(self.n <= 0, torch.inf)

    def _squares(self, z: Tensor) -> Tensor:
        if len(self.white) == 1:  # one space for all
            return torch.cdist(z @ self.white[0].T, self.mean @ self.white[0].T).square()
        off = z - self.mean[:, None]  # (N, B, D)
        return (off @ self.white.mT).square().sum(2).T

    def join(self, sums: Sums) -> Self:
        """With one more client, whose scale is the middle one of the others; nobody else's distances change."""
        white = (
            self.white
            if len(self.white) == 1 < len(self.n)
            else torch.cat([self.white, _white(sums, self.within)[None]])
        )
        return replace(
            self, mean=torch.cat([self.mean, sums.mean]), n=torch.cat([self.n, sums.n]), white=white,
            scale=torch.cat([self.scale, self.scale.median()[None]]),
        )  # fmt: skip

    def leave(self, client: int) -> Self:
        """Without that client."""
        kept = torch.tensor([i for i in range(len(self.n)) if i != client])
        white = self.white if len(self.white) == 1 < len(self.n) else self.white[kept]
        return replace(self, mean=self.mean[kept], n=self.n[kept], scale=self.scale[kept], white=white)

    def state(self) -> Tree:
        return {k: getattr(self, k) for k in ("mean", "white", "n", "scale", "within")}


def _white(sums: Sums, within: Tensor) -> Tensor:
    """Of one client's own covariance."""
    behind = BEHIND * sums.width
    own = (sums.within() + behind * within) / (float(sums.n) + behind)
    return _inverse_factor(own, within)


def _inverse_factor(covariance: Tensor, within: Tensor) -> Tensor:
    """W with W' W the inverse of the covariance, a little wider in every direction than it is."""
    eye = torch.eye(len(within), dtype=within.dtype)
    size = within.diagonal().mean().clamp(min=1e-12)
    factor = torch.linalg.cholesky(covariance + SHRINK * size * eye)
    inverse: Tensor = torch.linalg.solve_triangular(factor, eye, upper=False)
    return inverse
