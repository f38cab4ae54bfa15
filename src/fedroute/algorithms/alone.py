"""Every client for itself: nothing leaves, nothing comes."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fedroute.core import Algorithm, Batch, Context, run_client
from fedroute.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Alone(Algorithm):
    """McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", without its
    averaging: each client goes on from its own weights, on the batches and at the learning rate that it would have in
    the federation. The baseline that tells whether a client is better off together.

    All weights are private, whatever `private` says; the server's state holds none, an update is empty, and there is no
    global model. As with the other algorithms momentum starts anew in each round."""

    sends: ClassVar[dict[str, str]] = {}

    @cached_property
    def kept(self) -> frozenset[str]:
        return frozenset(self.task.names)

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return {}, super().end(carry, ctx)[1]

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        return server

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        """A newcomer trains from the initial weights."""
        return run_client(self, ctx, batches)[1]
