"""The posterior over clients: what every way to fit a router comes to."""

from typing import Protocol

from torch import Tensor

from fedroute.tree import Tree


class Posterior(Protocol):
    """q(client | z) for what a router reads of a query, z (B, D). Fitted, pure, and made of tensors alone."""

    @property
    def prior(self) -> Tensor:
        """(N,) float64, each client's share of the rows it was fitted to; 0: has none and is never chosen."""
        ...

    def logits(self, z: Tensor) -> Tensor:
        """(B, N) float64, log q(client | z) up to a number of each row; -inf where the prior is 0."""
        ...

    def state(self) -> Tree:
        """Its tensors, from which its class's `of(state)` makes an equal one."""
        ...
