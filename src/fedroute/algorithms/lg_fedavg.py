"""FedAvg in which every client keeps a body of its own, under a head that all share."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field

from fedroute.core import Algorithm, Task
from fedroute.parts import sharing, with_head


@dataclass(frozen=True, kw_only=True)
class LgFedAvg(Algorithm):
    """Liang et al. 2020, "Think Locally, Act Globally: Federated Learning with Local and Global Representations",
    algorithm 1: the local representation (all weights but those with the role head) stays with its client, the global
    model over it (the head) is averaged; local SGD moves both together. The rounds are those of FedAvg with body and
    norms private.

    A newcomer trains a body of its own from the initial one on its rows, under the shared head, which stays as it is.
    Deviations: neither the auxiliary losses of the paper (self-supervised, adversarial) nor its start from some rounds
    of FedAvg; a new device gets one body and not the ensemble of the others'."""

    private: Annotated[
        tuple[str, ...], Field(description="roles or names of weights that stay with their client besides the body")
    ] = ()

    def bind(self, task: Task) -> Self:
        with_head(self, task)
        return sharing(super().bind(task))

    @cached_property
    def kept(self) -> frozenset[str]:
        return frozenset(self.task.names) - self.task.named("head") | self.task.named(*self.private)
