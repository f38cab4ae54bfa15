"""pFedMe whose normalisation layers never leave their client."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field

from fedroute.algorithms.pfedme import PFedMe
from fedroute.parts import sharing, with_norms
from fedroute.task import Task


@dataclass(frozen=True, kw_only=True)
class PFedMeFedBN(PFedMe):
    """T Dinh et al. 2020, "Personalized Federated Learning with Moreau Envelopes", with the private normalisation
    layers of FedBN (Li et al. 2021, ICLR, algorithm 1): `pfedme` with private: [norm].

    Scale, shift and statistics of every normalisation layer, found by the type of its module, stay at their client and
    follow its theta without a spring; everything else is pFedMe. What else `private` names stays too. A newcomer begins
    with the initial normalisation layers and makes one local round.

    Deviations: those of pfedme; group and layer norm are private too, not only batch norm."""

    private: Annotated[
        tuple[str, ...], Field(description="roles or names of weights that stay with their client besides the norms")
    ] = ()

    def bind(self, task: Task) -> Self:
        with_norms(self, task)
        return sharing(super().bind(task))

    @cached_property
    def kept(self) -> frozenset[str]:
        return self.task.named("norm", *self.private)
