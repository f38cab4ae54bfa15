"""Clients whose features follow known laws, and what a router reads of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.data.spec import Split
from fedroute.randomness import generator
from fedroute.router.sums import Sums

SPREAD = torch.tensor([[1.0, 0.3, 0.0], [0.3, 0.8, -0.2], [0.0, -0.2, 1.5]], dtype=torch.float64)
MEANS = torch.tensor([[0.0, 0, 0], [1.2, -0.4, 0.3], [-0.5, 0.9, 1.0], [0.4, 0.2, -1.1]], dtype=torch.float64)


def gaussian(sizes: Sequence[int], seed: int = 0, means: Tensor = MEANS, spread: Tensor = SPREAD) -> list[Tensor]:
    """Of each client (n_i, D) rows, normal about its mean with a common covariance."""
    factor = torch.linalg.cholesky(spread)
    return [
        means[i] + torch.randn(n, len(spread), generator=generator(seed, "law", i), dtype=torch.float64) @ factor.T
        for i, n in enumerate(sizes)
    ]


def added(rows: Sequence[Tensor]) -> Sums:
    return Sums.together(map(Sums.of, rows))


def owners(rows: Sequence[Tensor]) -> Tensor:
    return torch.cat([torch.full((len(z),), i) for i, z in enumerate(rows)])


def hit(logits: Tensor, owner: Tensor) -> float:
    return float((logits.argmax(1) == owner).double().mean())


def federation(rows: Sequence[Tensor], labels: int = 2, seed: int = 0) -> Federation:
    """A table of these rows, labels drawn at random, a fifth for validation."""
    owner = owners(rows)
    y = torch.randint(labels, (len(owner),), generator=generator(seed, "labels"))
    names = [f"c{i}" for i in owner.tolist()]
    return Federation.from_arrays(torch.cat(list(rows)).float(), y, names, split=Split(validation=0.2, test=0.2))
