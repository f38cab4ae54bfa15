"""Temperatures: how sure a router and its heads may be, from validation rows alone.

A router in closed form, or heads that saw their own rows for many rounds, are surer than they are right. One number for
the router and one for each head mends most of it (Guo et al. 2017, section 4.2). Each is found on a fixed grid, so that
what a client uploads is one number for each point of it: sums that add up exactly, once, whoever adds them."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.router.scores import Scores

GRID = torch.logspace(
    -1.25, 1.25, 121, 10.0, dtype=torch.float64
)  # temperatures from 1/18 to 18, 5 % apart, 1 among them
STRENGTH = 20.0  # rows of everybody's that stand behind each head's own


class Temperatures(NamedTuple):
    """Above 1: less sure than it was. router: (), heads: (N,)."""

    router: Tensor
    heads: Tensor

    def apply(self, scores: Scores) -> Scores:
        """The scores at these temperatures; what is at 1 is left as it is, bit for bit."""
        return Scores(
            cooled_router(scores, float(self.router)),
            scores.prior,
            cooled_heads(scores.heads, self.heads),
            scores.common,
            scores.labels,
        )


def cooled_router(scores: Scores, temperature: float) -> Tensor:
    """(B, N), the router's logits at a temperature T:  d_i / T + log prior_i,  d_i = router_i - log prior_i.

    T belongs to the density ratios d, which are what the router has estimated; the prior is known and stays. So a query
    that says nothing (all d equal) is still told by the prior, `density` asks the same clients at every T, and so does
    `posterior` where all priors are equal. Dividing the logits with the prior in them, and then taking log prior away
    from that, would send what the router is unsure of to the smallest clients."""
    if temperature == 1:
        return scores.router
    there = (scores.prior > 0) & (scores.router > -torch.inf)
    ratio = torch.where(there, scores.router - scores.prior.log(), 0.0)
    return torch.where(there, scores.router + (1 / temperature - 1) * ratio, -torch.inf)


def cooled_heads(heads: Tensor, temperature: Tensor) -> Tensor:
    """(B, N, K), log-probabilities of the labels, each client's at its temperature (N,)."""
    if bool((temperature == 1).all()):
        return heads
    return torch.where(temperature[:, None] == 1, heads, (heads / temperature[:, None]).log_softmax(2))


def fit(scores: Scores, owner: Tensor, y: Tensor, *, strength: float = STRENGTH) -> Temperatures:
    """Temperatures from validation rows: scores of B rows, the client of each (B,), and its label (B,).

    router: the least log-loss of the owner among the clients; rows of clients without a prior are left out. heads: the
    least log-loss of a client's own rows by its own model, to which the mean of everybody's counts as `strength` more,
    so that a client with few rows gets nearly the temperature of all. 1 where there is no row to tell.

    Raises InputError where lengths differ."""
    if not len(scores.router) == len(owner) == len(y):
        raise InputError(
            f"router: {len(scores.router)} rows, {len(owner)} owners, {len(y)} labels: give one for each row"
        )
    clients = len(scores.prior)
    of_heads, rows = torch.zeros(clients, len(GRID), dtype=torch.float64), torch.bincount(owner, minlength=clients)
    for i in range(clients):
        mine = owner == i
        of_heads[i] = head_losses(scores.heads[mine, i], y[mine])
    shared = of_heads.sum(0) / rows.sum().clamp(min=1)
    return Temperatures(least(router_losses(scores, owner)), least(of_heads + strength * shared))


def router_losses(scores: Scores, owner: Tensor) -> Tensor:
    """(G,) float64, the log-loss of the owners of these rows at each temperature of GRID, summed: what a client uploads
    of its own validation rows."""
    kept = scores.prior[owner] > 0
    some, rows = scores._replace(router=scores.router[kept]), torch.arange(int(kept.sum()))
    losses = [-cooled_router(some, t).log_softmax(1)[rows, owner[kept]].clamp(min=LEAST).sum() for t in GRID.tolist()]
    return torch.stack(losses)


def head_losses(head: Tensor, y: Tensor) -> Tensor:
    """(G,) float64, the log-loss of labels y (B,) by one head's log-probabilities (B, K) at each temperature of GRID,
    summed. A label that the head holds impossible costs the same at each."""
    cooled = (head / GRID[:, None, None]).log_softmax(2)
    return -cooled[:, torch.arange(len(y)), y].clamp(min=LEAST).sum(1)


LEAST = -700.0  # a logarithm beyond which impossible is no worse


def effective_prior(router: Tensor) -> Tensor:
    """(N,) float64, the mean over training rows of P(client | row) from logits (B, N). A router with a bias of its own
    and no decay, at its optimum, has it equal to the shares of the rows; local steps and decay pull it away."""
    return router.double().softmax(1).mean(0)


def drift(router: Tensor, prior: Tensor) -> float:
    """The largest |log effective prior - log prior| over the clients that have one, in nats: by how much subtracting
    log prior is off. Beyond some tenths put the effective prior into Scores in its place."""
    there = prior > 0
    return float((effective_prior(router)[there].log() - prior[there].double().log()).abs().max())


def least(losses: Tensor) -> Tensor:
    """The temperature of least loss (..., G), of equals the one nearest to 1."""
    least = losses.amin(-1, keepdim=True)
    far = torch.where(losses <= least, GRID.log().abs(), torch.inf)
    return GRID[far.argmin(-1)]
