"""Multinomial logistic regression of who owns a row, by gradients that clients add up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.router.lda import Lda, fit_lda, rows_of_lda
from fedroute.router.linear import NOTHING, Linear, factor_of
from fedroute.router.sums import Sums

START, START_SHRINK = 0.6, 1e-3  # of LDA's rows, and of its covariance


@dataclass(frozen=True, eq=False)
class Softmax(Linear):
    """The density ratio model of FedDRM (Wang et al. 2026, section 2) on fixed features: q(i | z) is a softmax of
    slope_i . z + offset_i + log n_i, whose fit by cross entropy maximises the empirical likelihood. offset_i and
    slope_i are its gamma_i and xi_i, up to one number and one vector for all clients.

    leave: its row is deleted. join: where the fit had sums, by count and mean alone, and nobody else's row changes: the
    newcomer gets its row of LDA times `share`, plus `common`, by which LDA's rows come nearest to the fitted ones. This
    is no fit: it lies between LDA's and a fit anew, which would move all rows.

    factor: (D, D), of the covariance within clients; (0, 0) where nobody can join. share: (). common: (D + 1,), offset
    last."""

    factor: Tensor
    share: Tensor
    common: Tensor

    def join(self, sums: Sums) -> Self:
        """With the clients of these sums, in their order. Raises InputError where the fit had no sums."""
        if not len(self.factor):
            raise InputError("router: this softmax was fitted without second moments, so that nobody can join it; fit "
                             "it with sums, or take lda")  # fmt: skip
        slope, offset = rows_of_lda(sums.mean, self.factor)
        return self._with(self.share * slope + self.common[:-1], self.share * offset + self.common[-1], sums.n)


class Fit(NamedTuple):
    """A softmax, and what it took."""

    posterior: Softmax
    rounds: int  # sums of gradients that clients were asked for
    upload: int  # numbers of each client in a round
    loss: float  # mean cross entropy in nat, without the decay


def loss_and_gradient(slope: Tensor, offset: Tensor, n: Tensor, z: Tensor, client: int) -> tuple[Tensor, Tensor]:
    """What one client sends in a round: (sum of the cross entropy of its rows, () ; its gradient, (N, D + 1), offset
    last)."""
    logits = z @ slope.T + offset + n.log()
    error = logits.softmax(1)
    error[:, client] -= 1
    return -logits.log_softmax(1)[:, client].sum(), torch.cat([error.T @ z, error.sum(0)[:, None]], 1)


def fit_softmax(
    rows: Sequence[Tensor],
    decay: float = 1e-4,
    rounds: int = 100,
    sums: Sums | None = None,
    tolerance: float = 1e-6,
    start: Linear | None = None,
) -> Fit:
    """rows: of each client what is read of its rows, (n_i, D). decay: lam of lam/2 |slope|^2, in units of the mean
    variance of z; offsets are free. rounds: at most so many. sums: of the same rows, whose covariance then turns the
    space in which steps are made, so that fewer of them do. tolerance: of the largest number of the mean gradient.
    start: where to begin, such as a fit with another decay; by default LDA's rows times START, which is surer than
    it is right, where there are sums, and else where every posterior is the prior.

    Each round the server broadcasts slopes and offsets, and every client adds up loss and gradient over all its rows:
    this is the pooled fit, by L-BFGS (Liu & Nocedal 1989), without drift. Of rows of one client only nothing is
    learnt: all logits are then its prior. Raises InputError where no client has rows."""
    from scipy.optimize import minimize

    n = torch.tensor([float(len(z)) for z in rows], dtype=torch.float64)
    total, width, there = n.sum(), rows[0].shape[1], n > 0
    if not bool(total > 0):
        raise InputError("router: no client has rows to fit to; give the federation a training part")
    turn, level = _turn(rows, sums)
    inside = [(k, i) for k, i in enumerate(torch.nonzero(there)[:, 0].tolist())]
    known = n[there]
    asked = 0

    def split(flat: Any) -> tuple[Tensor, Tensor]:
        both = torch.from_numpy(flat).reshape(len(known), width + 1)
        return torch.linalg.solve_triangular(turn.T, both[:, :-1].T, upper=True).T, both[:, -1]

    def objective(flat: Any) -> tuple[float, Any]:
        nonlocal asked
        asked += 1
        slope, offset = split(flat)
        loss, gradient = _added(loss_and_gradient(slope, offset, known, rows[i], k) for k, i in inside)
        loss, gradient = loss / total, gradient / total
        gradient[:, :-1] += decay * level * slope
        turned = torch.linalg.solve_triangular(turn, gradient[:, :-1].T, upper=False).T
        value = loss + decay * level / 2 * slope.square().sum()
        return float(value), torch.cat([turned, gradient[:, -1:]], 1).flatten().numpy().copy()

    first = torch.zeros(len(known), width + 1, dtype=torch.float64)
    lda = None if sums is None else fit_lda(sums, START_SHRINK)
    start = lda if start is None else start
    if start is not None:
        share = START if isinstance(start, Lda) else 1.0
        first = share * torch.cat([start.slope[there] @ turn, start.offset[there][:, None]], 1)
    limits = {"maxfun": rounds, "maxiter": rounds, "gtol": tolerance, "ftol": 1e-15, "maxcor": 30}
    found = minimize(objective, first.flatten().numpy(), jac=True, method="L-BFGS-B", options=limits)
    slope, offset = [v.new_zeros(len(n), *v.shape[1:]).index_copy(0, there.nonzero()[:, 0], v) for v in split(found.x)]
    loss = _added(loss_and_gradient(slope[there], offset[there], known, rows[i], k) for k, i in inside)[0] / total
    return Fit(
        Softmax(slope, offset, n, NOTHING, *_tied(slope, offset, n, lda)),
        asked,
        len(known) * (width + 1) + 1,
        float(loss),
    )


def _tied(slope: Tensor, offset: Tensor, n: Tensor, lda: Lda | None) -> tuple[Tensor, Tensor, Tensor]:
    """(factor, share, common): the least squares of the fitted rows on LDA's, each by its client's rows, slopes in the
    metric of the covariance within clients."""
    if lda is None:
        return NOTHING, torch.ones(()).double(), torch.zeros(slope.shape[1] + 1).double()
    weight = (n / n.sum())[:, None]
    mine, its = (torch.cat([s, o[:, None]], 1) for s, o in ((slope, offset), (lda.slope, lda.offset)))
    about = [(v - (weight * v).sum(0))[:, :-1] @ lda.factor for v in (mine, its)]
    below = (weight * about[1].square()).sum()
    share = (weight * about[0] * about[1]).sum() / below if below > 0 else torch.ones_like(below)
    return lda.factor, share, (weight * (mine - share * its)).sum(0)


def _added(parts: Any) -> tuple[Tensor, Tensor]:
    """The sums over clients."""
    losses, gradients = zip(*parts, strict=True)
    return torch.stack(losses).sum(), torch.stack(gradients).sum(0)


def _turn(rows: Sequence[Tensor], sums: Sums | None) -> tuple[Tensor, Tensor]:
    """(lower factor of the covariance of z, or the identity; the mean variance of z). The latter takes each client a
    sum of squares."""
    width = rows[0].shape[1]
    if sums is None:
        n = sum(len(z) for z in rows)
        mean = torch.stack([z.sum(0) for z in rows]).sum(0) / n
        squares = torch.stack([(z - mean).square().sum() for z in rows]).sum() / n / max(width, 1)
        return torch.eye(width, dtype=torch.float64) * squares.clamp(min=1e-12).sqrt(), squares
    spread = sums.about_mean() / sums.n.sum()
    level = spread.diagonal().mean()
    return factor_of(spread, 1e-4, level), level
