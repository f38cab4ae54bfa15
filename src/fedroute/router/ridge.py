"""Least squares from sums: the share of each client in the rows near a query."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.router.linear import NOTHING, Linear, factor_of
from fedroute.router.sums import Sums


@dataclass(frozen=True, eq=False)
class Ridge(Linear):
    """Ridge regression of who owns a row, 0 or 1 for each client, on z; as a classifier of federated features Fed3R
    (Fani et al. 2024). m, C: mean and covariance of all rows; w_i = n_i / n.

        s_i(z) = w_i + b_i' (z - m),   b_i = (C + shrink)^-1 w_i (m_i - m)

    s_i estimates q(i | z) and may lie outside 0..1; it is read as the owner's 0 or 1 with Gaussian noise, so that
    logits_i = s_i / v, v the mean squared residual of a client; temperatures come after that. The prior is in s_i.

    join: w_i and m_i are uploaded; C, m and n stay as they were fitted, so that nobody else's row changes. A fit anew
    would move the others' as well, since rows of the new client count against them. leave: its row is deleted.

    factor: (D, D), lower Cholesky factor of C + shrink. centre: (D,), m. scale: (2,), n and v."""

    factor: Tensor
    centre: Tensor
    scale: Tensor

    def join(self, sums: Sums) -> Self:
        """With the clients of these sums, in their order; their second moment is not used."""
        return self._with(*_rows(sums, self.factor, self.centre, self.scale), sums.n)


def fit_ridge(sums: Sums, shrink: float = 3e-4) -> Ridge:
    """From the sums of all clients. shrink: added to the diagonal of C, in units of its mean.

    Raises InputError where no client has rows."""
    n = sums.n.sum()
    if not bool(n > 0):
        raise InputError("router: no client has rows to fit to; give the federation a training part")
    spread, centre = sums.about_mean() / n, sums.pooled().mean[0]
    factor = factor_of(spread, shrink, spread.diagonal().mean())
    cross = (sums.total - sums.n[:, None] * centre) / n
    weight = torch.cholesky_solve(cross.T, factor).T
    share = sums.n / n
    residual = share * (1 - share) - 2 * (weight * cross).sum(1) + ((weight @ spread) * weight).sum(1)
    scale = torch.stack([n, residual[sums.n > 0].mean().clamp(min=1e-6)])
    return Ridge(*_rows(sums, factor, centre, scale), sums.n, NOTHING, factor, centre, scale)


def _rows(sums: Sums, factor: Tensor, centre: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """(slope, offset) of these clients; log n is taken out of the offset, since the logits add it."""
    n, noise = scale
    slope = torch.cholesky_solve((sums.total - sums.n[:, None] * centre).T / n, factor).T / noise
    return slope, sums.n / n / noise - slope @ centre - sums.n.log().nan_to_num(neginf=0.0)
