"""Where queries come from, estimated from the queries themselves, without labels or owners."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedroute.errors import InputError

STEPS = 2000
TOLERANCE = 1e-7  # the largest change of a share in a step at which it stops
STRENGTH = 1.0  # queries that the prior counts for


class Arrival(NamedTuple):
    """law: (N,) float64, the share of each client among the queries. gain: by how much it raises the mean
    log-likelihood of a query above that of the prior, >= 0; near 0: queries come as training rows did. steps: taken;
    fewer than the most allowed where it converged."""

    law: Tensor
    gain: float
    steps: int


def estimate(
    router: Tensor, prior: Tensor, *, strength: float = STRENGTH, steps: int = STEPS, tolerance: float = TOLERANCE
) -> Arrival:
    """The law by which B queries arrive, from a router's logits (B, N) where clients arrived as `prior` (N,) says.

    Expectation maximisation (Saerens, Latinne and Decaestecker 2002, equations 2.2 to 2.4), started at the prior:

        P_b(i) proportional to q_i exp(router_bi) / prior_i,      q_i = mean over queries of P_b(i)

    which climbs to the maximum of a concave likelihood. Deviation: the prior counts for `strength` queries beside the
    B, so that a client unseen in a short stream is not ruled out, and no query at all leaves the prior; 0 for maximum
    likelihood. Clients that cannot be told apart keep the proportion of their priors. A client whose prior is 0 gets 0.

    It rests on a router that is calibrated on queries as they came in training, and on clients whose own queries look
    as they did then. Raises InputError where shapes differ, or a logit is NaN or +inf."""
    if router.ndim != 2 or router.shape[1:] != prior.shape:
        raise InputError(f"router: logits {tuple(router.shape)} and prior {tuple(prior.shape)}: give (B, N) and (N,)")
    there = prior > 0
    logits = router[:, there].double()
    if bool((logits.isnan() | (logits == torch.inf)).any()):
        raise InputError("router: a logit is NaN or +inf: look for NaN or Inf in the queries")
    start = prior[there].double() / prior[there].sum()
    ratio = logits - start.log()
    top = ratio.amax(1, keepdim=True) if ratio.shape[1] else ratio
    density = (ratio - top)[top[:, 0] > -torch.inf].exp()  # of queries that no client explains nothing is learnt
    q, n, taken, change = start, len(density) + strength, 0, torch.inf
    while taken < steps and change >= tolerance:
        taken += 1
        mean = q * (density.T @ (density @ q).reciprocal())
        new = (mean + strength * start) / n if n else q
        change, q = float((new - q).abs().max()), new
    gain = float((density @ q).log().mean() - (density @ start).log().mean()) if len(density) else 0.0
    law = torch.zeros_like(prior, dtype=torch.float64)
    law[there] = q / q.sum()
    return Arrival(law, gain, taken)
