"""Worlds in which whose query it is, and what its label is, are known in closed form."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedroute.randomness import generator
from fedroute.router.scores import Scores


class World(NamedTuple):
    """Clients i with shares w_i, labels with shares pi_ik there, and rows of (i, k) normal about mean_ik, of variance 1
    in each of D directions."""

    w: Tensor  # (N,)
    pi: Tensor  # (N, K)
    mean: Tensor  # (N, K, D)

    def draw(self, rows: int, seed: int = 0, arrival: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(x (B, D), owner (B,), y (B,)), clients arriving by this law, by default w."""
        g = generator(seed, "world")
        owner = torch.multinomial(self.w if arrival is None else arrival, rows, replacement=True, generator=g)
        y = torch.multinomial(self.pi[owner], 1, generator=g)[:, 0]
        noise = torch.randn(rows, self.mean.shape[2], generator=g, dtype=torch.float64)
        return self.mean[owner, y] + noise, owner, y

    def log_joint(self, x: Tensor) -> Tensor:
        """(B, N, K), log p_i(x, y), up to a number that is the same everywhere."""
        return self.pi.log() - (x[:, None, None] - self.mean).square().sum(3) / 2

    def scores(self, x: Tensor) -> Scores:
        """The exact ones."""
        joint = self.log_joint(x)
        density = joint.logsumexp(2)
        return Scores(density + self.w.log(), self.w, joint - density[..., None])

    def pooled(self, x: Tensor) -> Tensor:
        """(B, K), log P(y | x) of all rows together."""
        joint = (self.log_joint(x) + self.w.log()[:, None]).logsumexp(1)
        return joint.log_softmax(1)


def normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def differing(clients: int = 5, labels: int = 4, width: int = 6, seed: int = 0, shift: float = 1.0) -> World:
    """Clients that differ in size, label mix and features."""
    g = generator(seed, "differing")
    mean = 1.5 * normal(g, 1, labels, width) + shift * normal(g, clients, labels, width)
    return World(normal(g, clients).softmax(0), (1.5 * normal(g, clients, labels)).softmax(1), mean)


def anyhow(rows: int = 200, clients: int = 5, labels: int = 4, seed: int = 0) -> Scores:
    """Scores of nothing real, with a global model and router of cells."""
    g = generator(seed, "anyhow")
    return Scores(
        3 * normal(g, rows, clients),
        normal(g, clients).softmax(0),
        (2 * normal(g, rows, clients, labels)).log_softmax(2),
        (2 * normal(g, rows, labels)).log_softmax(1),
        (2 * normal(g, rows, labels)).log_softmax(1),
    )


def accuracy(answer: Tensor, y: Tensor) -> float:
    return float((answer.argmax(1) == y).double().mean())
