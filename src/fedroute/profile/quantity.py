"""Quantity skew: how unequal the clients' numbers of rows are, and who would dominate a mean weighted by rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
DRAWS = 999


@dataclass(frozen=True)
class Sizes:
    """strength: the Gini coefficient of the rows that train, over its largest value for so many clients; random: the
    same where rows were dealt one by one to clients at random. largest: the share of the largest client in a mean
    weighted by rows, and whose it is; clients: how many equal ones would be as concentrated (1 / sum of squares)."""

    strength: float
    interval: tuple[float, float]
    p: float | None
    gini: float
    random: float
    largest: float
    who: int
    clients: float


def measure(n: Ints, rng: np.random.Generator) -> Sizes:
    """n: (N,) different rows of each client, all that a client sends for it. The interval is that of rows that come
    by chance at each client (Poisson)."""
    total = int(n.sum())
    if len(n) < 2 or not total:
        return Sizes(0.0, (0.0, 0.0), None, 0.0, 0.0, 1.0, 0, float(bool(total)))
    best = 1 - 1 / len(n)
    found = gini(n)
    chance = np.array([gini(v) for v in rng.multinomial(total, np.full(len(n), 1 / len(n)), DRAWS)])
    again = np.array([gini(v) for v in rng.poisson(n, (200, len(n)))])
    share = n / total
    low, high = (float(np.clip(found / best + s * 1.96 * again.std() / best, 0, 1)) for s in (-1, 1))
    return Sizes(
        min(found / best, 1.0), (low, high), (1 + int((chance >= found).sum())) / (1 + DRAWS), found,
        float(chance.mean()), float(share.max()), int(share.argmax()), float(1 / (share**2).sum()),
    )  # fmt: skip


def gini(n: Ints) -> float:
    """Half the mean difference between two clients over the mean: 0 where all are equal."""
    v = np.sort(n)
    total = float(v.sum())
    k = np.arange(1, len(v) + 1)
    return float(((2 * k - len(v) - 1) @ v) / (len(v) * total)) if total else 0.0
