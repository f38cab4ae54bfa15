"""FedAvg in which every client keeps a head of its own."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field

from fedroute.core import Algorithm, Task
from fedroute.parts import sharing, with_head


@dataclass(frozen=True, kw_only=True)
class FedPer(Algorithm):
    """Arivazhagan et al. 2019, "Federated Learning with Personalization Layers", algorithm 1: the base layers W_B are
    shared and averaged, the personalization layers W_P (here the weights with the role head) stay with their client;
    local SGD moves both together. The rounds are those of FedAvg with the head private.

    A newcomer trains a head of its own from the initial one on its rows, over the shared weights, which stay as they
    are. Deviation: a client's say is its share of the training rows of those who answered."""

    private: Annotated[
        tuple[str, ...], Field(description="roles or names of weights that stay with their client besides the head")
    ] = ()

    def bind(self, task: Task) -> Self:
        with_head(self, task)
        return sharing(super().bind(task))

    @cached_property
    def kept(self) -> frozenset[str]:
        return self.task.named("head", *self.private)
