"""The posterior that FedDRM trains along with the model: what its branch puts out, as it is."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedroute.router.inputs import RouterInput
from fedroute.tree import Tree


@dataclass(frozen=True, eq=False)
class Drm:
    """Wang et al. 2026, theorem 2.2: the branch's logits are log q(client | x) up to a number of each x, where clients
    come as in training. z: the branch's logits as a router's input has them, standardised; that is undone here.

    prior: (N,), the shares by which clients counted in training; 0: was not trained with. mean, deviation: (N,).
    place: (N,) int64, the place of each client's logit in z."""

    prior: Tensor
    mean: Tensor
    deviation: Tensor
    place: Tensor

    @classmethod
    def fit(cls, read: RouterInput, shares: Tensor) -> Self:
        """read: of kind "branch". shares: (N,), of any sum."""
        mean, deviation = read.scales["branch"]
        return cls(shares.double() / shares.sum(), mean, deviation, torch.arange(len(shares)))

    def logits(self, z: Tensor) -> Tensor:
        return (z[:, self.place] * self.deviation + self.mean).masked_fill(self.prior <= 0, -torch.inf)

    def leave(self, client: int) -> Self:
        kept = [i for i in range(len(self.prior)) if i != client]
        prior = self.prior[kept]
        return type(self)(prior / prior.sum(), self.mean[kept], self.deviation[kept], self.place[kept])

    def state(self) -> Tree:
        return {"prior": self.prior, "mean": self.mean, "deviation": self.deviation, "place": self.place}

    @classmethod
    def of(cls, state: Tree) -> Self:
        return cls(**state)
