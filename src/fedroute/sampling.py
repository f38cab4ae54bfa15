"""Which clients take part in a round."""

import math

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.randomness import generator

SAMPLINGS = ("all", "uniform", "weighted")


def choose(sizes: Tensor, share: float, sampling: str, seed: int, round: int) -> tuple[int, ...]:
    """The clients of this round, ascending. `sizes`: (N,) training rows; a client without rows never takes part.

    share: the fraction of those with rows (rounded up; all of them at 1.0), or their number where it is over 1.
    sampling: "all"; "uniform", without replacement; "weighted", without replacement with a chance in proportion to
    the rows (weight the answers uniformly then, or size counts twice). Raises InputError for another name."""
    present = [i for i, n in enumerate(sizes.tolist()) if n]
    if sampling not in SAMPLINGS:
        raise InputError(f"training.sampling: no {sampling!r}; take one of {', '.join(SAMPLINGS)}")
    k = math.ceil(share * len(present) - 1e-9) if share <= 1 else int(share)
    if sampling == "all" or k >= len(present):
        return tuple(present)
    chance = sizes[present].double() if sampling == "weighted" else torch.ones(len(present), dtype=torch.float64)
    picked = torch.multinomial(chance, k, generator=generator(seed, "sampling", round))
    return tuple(sorted(present[j] for j in picked.tolist()))
