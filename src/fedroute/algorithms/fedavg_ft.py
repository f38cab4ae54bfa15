"""FedAvg, and at the end each client fine-tunes the global model on its own data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Tree, Weights


@dataclass(frozen=True, kw_only=True)
class FedAvgFT(Algorithm):
    """Wang et al. 2019, "Federated Evaluation of On-device Personalization", section 2: train by FedAvg, then let
    client i continue from the global weights with local SGD on its own rows; it predicts with what it then has.

    The rounds are exactly FedAvg's: nothing tuned is ever started from, kept for the next round or sent. Before `adapt`
    a client predicts with the global weights. Deviation: all weights are tuned with the local optimiser of the rounds,
    at the learning rate that `adapt` is given."""

    adapt_epochs: Annotated[int, Field(ge=1, description="passes over a client's own rows at the end")] = 1

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        carry = self.begin(ctx)
        for batch in batches:
            carry, _ = self.step(carry, batch, ctx)
        return {"w": ctx.private["w"], "tuned": carry["w"]}

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**super().personal(server, private), **private.get("tuned", {})}
