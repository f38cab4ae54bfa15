"""Each client against a reference that all know: its density ratio, fitted at home."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fedroute.errors import InputError
from fedroute.randomness import generator
from fedroute.router.linear import NOTHING, Linear, factor_of
from fedroute.router.sums import Sums


@dataclass(frozen=True, eq=False)
class Ratio(Linear):
    """The exponential tilt of FedDRM (Wang et al. 2026, after Anderson 1979) taken at its word:

        log dP_i / dP_0 (z) = slope_i . z + offset_i

    with P_0 the law of reference rows that every client is sent. Each fits its own row by logistic regression of its
    rows against them (Qin 1998), both kinds being there, and uploads D + 2 numbers: no rounds, no drift, and nobody's
    row depends on another client. It is as good as the reference is like all clients together: where the two are told
    apart too easily, ratios are rough.

    reference: (M, D). decay: (), of all fits."""

    reference: Tensor
    decay: Tensor

    def joined(self, z: Tensor) -> Self:
        """With the client of these rows, (B, D), which fits its row at home."""
        row, offset = fit_one(z, self.reference, float(self.decay))
        n = torch.tensor([float(len(z))], dtype=torch.float64)
        return self._with(row.unsqueeze(0), offset.reshape(1), n)


def reference_rows(sums: Sums, count: int, *key: int | str, shrink: float = 1e-3) -> Tensor:
    """(count, D): drawn from the mixture, by their rows, of Gaussians at the clients' means with the covariance within
    clients, which is what sums can say of all clients together. Raises InputError where no client has rows."""
    if not bool(sums.n.sum() > 0):
        raise InputError("router: no client has rows to fit to; give the federation a training part")
    g = generator("reference rows", *key)
    spread = sums.within() / sums.n.sum()
    factor = factor_of(spread, shrink, spread.diagonal().mean())
    who = torch.multinomial(sums.n, count, replacement=True, generator=g)
    drawn: Tensor = sums.mean[who] + torch.randn(count, sums.width, generator=g, dtype=spread.dtype) @ factor.T
    return drawn


def fit_one(z: Tensor, reference: Tensor, decay: float = 1e-3) -> tuple[Tensor, Tensor]:
    """At one client: (slope (D,), offset ()) of its rows z (B, D) against the reference; 0 where it has none.

    decay: lam of lam/2 |slope|^2 beside the mean loss, in which both kinds of rows weigh a half."""
    from scipy.optimize import minimize

    slope = torch.zeros(reference.shape[1], dtype=torch.float64)
    if not len(z):
        return slope, torch.zeros((), dtype=torch.float64)
    both = torch.cat([z, reference])
    sign = torch.cat([torch.ones(len(z)), -torch.ones(len(reference))]).double()
    weight = torch.cat([torch.full((len(z),), 0.5 / len(z)), torch.full((len(reference),), 0.5 / len(reference))])
    weight = weight.double()

    def objective(flat: Any) -> tuple[float, Any]:
        v = torch.from_numpy(flat)
        margin = sign * (both @ v[:-1] + v[-1])
        push = -sign * weight * (-margin).sigmoid()
        gradient = torch.cat([both.T @ push + decay * v[:-1], push.sum().reshape(1)])
        value = (weight * softplus(-margin)).sum() + decay / 2 * v[:-1].square().sum()
        return float(value), gradient.numpy()

    options = {"maxiter": 500, "maxfun": 1000, "gtol": 1e-7, "ftol": 1e-15, "maxcor": 30}
    start = torch.zeros(len(slope) + 1, dtype=torch.float64).numpy()
    found = torch.from_numpy(minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x)
    return found[:-1], found[-1]


def fit_ratio(rows: Sequence[Tensor], reference: Tensor, decay: float = 1e-3) -> Ratio:
    """rows: of each client what is read of its rows, (n_i, D). reference: (M, D), as of `reference_rows`."""
    fits = [fit_one(z, reference, decay) for z in rows]
    n = torch.tensor([float(len(z)) for z in rows], dtype=torch.float64)
    slope, offset = (torch.stack(v) for v in zip(*fits, strict=True))
    return Ratio(slope, offset, n, NOTHING, reference, torch.tensor(decay, dtype=torch.float64))
