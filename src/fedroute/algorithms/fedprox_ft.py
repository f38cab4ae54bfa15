"""FedProx, and at the end each client fine-tunes the global model on its own data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedroute.algorithms.fedprox import FedProx
from fedroute.core import Batch, Context
from fedroute.parts import tuned
from fedroute.tree import Tree, Weights


@dataclass(frozen=True, kw_only=True)
class FedProxFT(FedProx):
    """Li et al. 2020, "Federated Optimization in Heterogeneous Networks", algorithm 2, and then local SGD from the
    global weights on a client's own rows, as Wang et al. 2019 do after FedAvg.

    The rounds are exactly FedProx's: nothing tuned is ever started from, kept for the next round or sent. Before
    `adapt` a client predicts with the global weights. Deviations: those of fedprox; fine-tuning minimises F_i alone,
    without the spring to the server's weights, and moves all weights."""

    adapt_epochs: Annotated[int, Field(ge=1, description="passes over a client's own rows at the end")] = 1

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return {"w": ctx.private["w"], "tuned": tuned(self, ctx, batches)}

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**super().personal(server, private), **private.get("tuned", {})}
