"""Linear discriminant analysis from sums: every client a Gaussian, all of one covariance."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.router.linear import NOTHING, Linear, factor_of
from fedroute.router.sums import Sums


@dataclass(frozen=True, eq=False)
class Lda(Linear):
    """Fisher 1936; with random features in place of z, the penalised and flexible discriminant analysis of Hastie,
    Buja & Tibshirani 1995. m_i: client i's mean, S: the covariance within clients.

        logits_i = m_i' S^-1 z - m_i' S^-1 m_i / 2 + log n_i

    join: m_i and n_i alone are uploaded, S stays as it was fitted, so that nobody else's row changes; a join that moved
    S would move all. A copy of a client gets the row of that client. leave: its row is deleted.

    factor: (D, D), lower Cholesky factor of S."""

    factor: Tensor

    def join(self, sums: Sums) -> Self:
        """With the clients of these sums, in their order; their second moment is not used."""
        mean = sums.mean @ self.through if self.through.shape[1] else sums.mean
        return self._with(*rows_of_lda(mean, self.factor), sums.n)


def fit_lda(sums: Sums, shrink: float = 3e-4, rank: int | None = None) -> Lda:
    """From the sums of all clients.

    shrink: added to the diagonal of S, in units of its mean, so that S can be inverted. rank: keep that many
    directions, those in which the clients' means differ most (Hastie, Tibshirani & Friedman 2009, section 4.3.3); at
    N - 1 or more nothing is lost, and a query costs N rank; who joins is told from others by these directions alone.
    None: all.

    Raises InputError where no client has rows."""
    if not bool(sums.n.sum() > 0):
        raise InputError("router: no client has rows to fit to; give the federation a training part")
    there = int((sums.n > 0).sum())
    spread = sums.within() / (sums.n.sum() - there).clamp(min=1)
    whole = sums.about_mean().diagonal().mean() / sums.n.sum()  # all that counts where every client has a single row
    factor = factor_of(spread, shrink, spread.diagonal().mean().clamp(min=1e-6 * float(whole)))
    mean, through = sums.mean, NOTHING
    if rank is not None:
        about = (mean - sums.pooled().mean) * sums.n.sqrt()[:, None]
        white = torch.linalg.solve_triangular(factor, about.T, upper=False)
        main = torch.linalg.svd(white, full_matrices=False).U[:, :rank]
        through = torch.linalg.solve_triangular(factor.T, main, upper=True)
        mean, factor = mean @ through, torch.eye(through.shape[1], dtype=factor.dtype)
    return Lda(*rows_of_lda(mean, factor), sums.n, through, factor)


def rows_of_lda(mean: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """(slope, offset) of clients with these means."""
    slope = torch.cholesky_solve(mean.T, factor).T
    return slope, -(slope * mean).sum(1) / 2
