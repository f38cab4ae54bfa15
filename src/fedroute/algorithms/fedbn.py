"""FedAvg in which every client keeps its normalisation layers: scale, shift and statistics."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field

from fedroute.core import Algorithm, Batch, Context, Task
from fedroute.parts import own_statistics, sharing, with_norms
from fedroute.tree import Tree


@dataclass(frozen=True, kw_only=True)
class FedBN(Algorithm):
    """Li et al. 2021, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", algorithm 1: all
    weights but those of batch norm are averaged. Which they are is told by the type of the module and never by a name,
    so that the norms of a shortcut or of a Sequential stay too. The rounds are those of FedAvg with [norm] private.

    A newcomer, which has no norms of its own, fits scale and shift from the initial ones to its rows, over the shared
    weights, and then gets the statistics that its rows have under all of these. With `unlabeled` its labels are not
    read: the initial scale and shift, and the statistics of its rows. What it gets is worth as much as its rows are
    many; of none it is the initial layer.

    Deviation: layers of group, layer and instance norm stay as well, where a model has them; they have no statistics to
    be estimated."""

    private: Annotated[
        tuple[str, ...], Field(description="roles or names of weights that stay with their client besides the norms")
    ] = ()

    unlabeled: Annotated[bool, Field(description="whether a newcomer's norms do without its labels")] = False

    def bind(self, task: Task) -> Self:
        with_norms(self, task)
        return sharing(super().bind(task))

    @cached_property
    def kept(self) -> frozenset[str]:
        return self.task.named("norm", *self.private)

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        found = list(batches)
        w = (ctx.private if self.unlabeled else super().adapt(ctx, found))["w"]
        return {"w": w | own_statistics(self.task, ctx.server["w"] | w, found)}
