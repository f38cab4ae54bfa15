"""Limits on what each client takes, and the prices that make queries keep to them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.evaluate.metrics import Array

STEP = 1e-4  # the least by which a price rises, in units of utility (a probability)


class Assignment(NamedTuple):
    """client: (B,) int64, -1 where everybody it may be sent to is full. price: (N,) float64, of a place with each
    client, in units of utility; 0 where it has places left. load: (N,) int64, queries of each."""

    client: Tensor
    price: Tensor
    load: Tensor


@dataclass(frozen=True)
class Capacity:
    """share: (N,) float64, the largest share of the queries that each client takes; 1: as many as may come."""

    share: Tensor

    def __post_init__(self) -> None:
        """Raises InputError where a share is no share, or all together do not reach 1."""
        if not bool(((self.share > 0) & (self.share <= 1)).all()):
            raise InputError("router.capacity: a share must be above 0 and at most 1")
        if float(self.share.sum()) < 1 - 1e-9:
            raise InputError(
                f"router.capacity: all clients together take {float(self.share.sum()):g} of the queries; raise the "
                "limits to 1 in sum, or leave a client without one"
            )

    def limits(self, queries: int) -> Tensor:
        """(N,) int64, how many of so many queries each takes: its share, rounded up."""
        return (self.share.double() * (1 - 1e-6) * queries).ceil().long()

    def assign(self, utility: Tensor, step: float = STEP) -> Assignment:
        """Who answers each of B queries, by what each client is worth to each, (B, N), -inf where it may not be asked
        (`rules.utility`): the sum of worth is largest, to B * step at most, among all ways that keep to the limits.

        An auction (Bertsekas 1988; with clients that have many alike places Bertsekas and Castanon 1989), which is
        dual ascent one price at a time: each query without a place bids for the client where worth less price is
        largest, by as much as makes the next best equally good; a full client keeps its highest bids and asks for the
        lowest of them. Prices start at 0 and rise only at full clients. Where nobody's limit binds everyone gets the
        client of most worth and all prices are 0."""
        u = utility.double().numpy()
        free = u.argmax(1) if u.shape[1] else np.zeros(len(u), dtype=np.int64)
        cap = self.limits(len(u)).numpy()
        client: Array = np.where(u.max(1, initial=-np.inf) == -np.inf, -1, free)
        price = np.zeros(u.shape[1])
        if bool((np.bincount(client[client >= 0], minlength=len(cap)) > cap).any()):
            client, price = _auction(u, cap, step)
        load = np.bincount(client[client >= 0], minlength=len(cap))
        return Assignment(torch.from_numpy(client), torch.from_numpy(price), torch.from_numpy(load))

    def stream(
        self, utility: Tensor, price: Tensor, load: Tensor | None = None, burst: int = 0
    ) -> tuple[Tensor, Tensor]:
        """(client (B,), load (N,)): queries as they come, each sent at once to where worth less price is largest among
        the clients with room, -1 where none has any.

        price: of `assign` on earlier queries, such as validation rows; zeros hold the limits as well, only less wisely.
        load: what each has taken until now. After n queries a client has taken at most its share of n, rounded up,
        and `burst` more."""
        taken = torch.zeros(len(self.share), dtype=torch.int64) if load is None else load.clone()
        served, found = int(taken.sum()), torch.full((len(utility),), -1)
        for b, u in enumerate(utility):
            served += 1
            room = taken < self.limits(served) + burst
            worth = (u - price).masked_fill(~room, -torch.inf)
            k = int(worth.argmax())
            if worth[k] > -torch.inf:
                found[b] = k
                taken[k] += 1
        return found, taken


def _auction(u: Array, cap: Array, step: float) -> tuple[Array, Array]:
    """(client (B,), price (N,)) by bids; u (B, N), cap (N,)."""
    n, clients = u.shape
    finite = u[np.isfinite(u)]
    outside = finite.min() - np.ptp(finite) - 2 * n * step - 1  # to be left out is worse than any place
    client, bid, price = np.full(n, -1), np.zeros(n), np.zeros(clients)
    out: Array = np.isneginf(u.max(1))
    while len(waiting := np.flatnonzero((client < 0) & ~out)):
        value = u[waiting] - price
        rows, best = np.arange(len(waiting)), value.argmax(1)
        first = value[rows, best]
        value[rows, best] = outside
        second = np.maximum(value.max(1), outside)
        out[waiting[first <= outside]] = True
        bidding = first > outside
        waiting, best = waiting[bidding], best[bidding]
        bid[waiting] = price[best] + (first - second)[bidding] + step
        client[waiting] = best
        for k in np.unique(best):
            held = np.flatnonzero(client == k)
            if len(held) >= cap[k]:
                ranked = held[np.argsort(-bid[held], kind="stable")]
                client[ranked[cap[k] :]] = -1
                price[k] = bid[ranked[cap[k] - 1]]
    return client, price
