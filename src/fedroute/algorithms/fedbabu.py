"""FedAvg of the body under a head that nobody trains; at the end each client fine-tunes."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context, Task
from fedroute.parts import sharing, tuned, with_head
from fedroute.tree import Tree, Weights, pick


@dataclass(frozen=True, kw_only=True)
class FedBABU(Algorithm):
    """Oh et al. 2022, "FedBABU: Toward Enhanced Representation for Federated Image Classification", algorithm 1: the
    head, randomly initialised and the same everywhere, stays as it is in all rounds, and only the body is trained and
    averaged (body aggregation with body update); for personal models each client then fine-tunes on its own rows.

    The head neither moves, whatever the local optimiser (momentum, weight decay, Adam) or the server's, nor is it sent
    up; it is part of the global model. Before `adapt` a client predicts with the global weights; nothing tuned is ever
    kept for a round. Deviation: norms are part of the body, and are averaged; they are private where `private` says
    so."""

    adapt_epochs: Annotated[int, Field(ge=1, description="passes over a client's own rows at the end")] = 5
    tune: Annotated[Literal["all", "head", "body"], Field(description="the weights that these passes move")] = "all"

    def bind(self, task: Task) -> Self:
        with_head(self, task)
        bound = super().bind(task)
        return sharing(bound, still=bound.head)

    @cached_property
    def head(self) -> frozenset[str]:
        return self.task.named("head")

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        after, loss = super().step(carry, batch, ctx)
        return after | {"w": after["w"] | pick(carry["w"], self.head)}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return {"dw": {k: v for k, v in up["dw"].items() if k not in self.head}}, kept

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        only = {"all": None, "head": self.head, "body": frozenset(self.task.names) - self.head}[self.tune]
        return {"w": ctx.private["w"], "tuned": tuned(self, ctx, batches, only)}

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**super().personal(server, private), **private.get("tuned", {})}
