"""One body with two heads: a generic one for all labels alike, and at each client one for its own mix of labels."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear

from fedroute.core import Algorithm, Batch, Context
from fedroute.errors import InputError
from fedroute.features import head_of
from fedroute.heads import Head, replace_head
from fedroute.task import Task
from fedroute.tree import Tree, Weights

OWN = "personal_"


class TwoHeads(Head):
    """z (B, D) -> (personal logits, generic logits), (B, K) each: the personal ones are the generic ones plus those of
    a second layer, which starts at zero and sends no gradient into what it stands on."""

    personal_weight: nn.Parameter
    personal_bias: nn.Parameter | None

    @classmethod
    def of(cls, head: nn.Linear) -> Self:
        made = super().of(head)
        made.personal_weight = nn.Parameter(torch.zeros_like(head.weight))
        made.personal_bias = None if head.bias is None else nn.Parameter(torch.zeros_like(head.bias))
        return made

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        generic = super().forward(z)
        return generic.detach() + linear(z.detach(), self.personal_weight, self.personal_bias), generic


class OneHead(Head):
    """Without the personal part."""

    @classmethod
    def of(cls, head: nn.Linear) -> Self:
        made = super().of(head)
        made._parameters = {k: v for k, v in head._parameters.items() if not k.startswith(OWN)}
        return made


@dataclass(frozen=True, kw_only=True)
class FedRoD(Algorithm):
    """Chen & Chao 2022, "On Bridging Generic and Personalized Federated Learning for Image Classification",
    with linear heads. z: features; g: the generic head; h_i: client i's own head; n_ic: its training rows of label c.

        body and g    minimise the balanced softmax loss -log( n_iy^gamma e^(g_y(z)) / sum_c n_ic^gamma e^(g_c(z)) )
        h_i           minimises the task's loss of g(z) + h_i(z), with z and g(z) held fixed

    Shared: body and g. Kept: h_i. A client predicts with g + h_i, the global model with g. Since both are linear layers
    a personal model is the user's model with the sum of the two in its head. gamma = 0 trains body and g as FedAvg
    does.

    Deviations: h_i is a linear layer that starts at zero, not made by a hypernetwork. The task's own loss is taken, on
    logits to which gamma log n_ic is added, which for cross entropy is the balanced softmax. A newcomer fits h_i to the
    body and g it is given. Needs labels that are classes, and a head that is one linear layer."""

    only_classes: ClassVar[bool] = True  # targets that are no classes are refused before the first round
    gamma: Annotated[float, Field(ge=0, description="power of the label counts in the balanced softmax")] = 1.0

    def bind(self, task: Task) -> Self:
        name, head = head_of(task)
        two = TwoHeads.of(head)
        own = {f"{name}.{k}": "head" for k, v in two._parameters.items() if k.startswith(OWN) and v is not None}
        return super().bind(replace_head(task, two, place=1, roles=own))

    @cached_property
    def kept(self) -> frozenset[str]:
        return super().kept | {k for k in self.task.names if k.rpartition(".")[2].startswith(OWN)}

    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        personal, generic = out
        return self.task.loss(self.balanced(generic, ctx), batch) + self.task.loss(personal, batch)

    def balanced(self, generic: Tensor, ctx: Context) -> Tensor:
        """(B, K) logits whose cross entropy is the balanced softmax loss of these; a label that the client has not is
        left out of the sum."""
        if not self.gamma:
            return generic
        if ctx.counts.shape[-1] != generic.shape[-1]:
            raise InputError(
                f"algorithm: fedrod balances by label, and the federation names {ctx.counts.shape[-1]} labels where "
                f"the model has {generic.shape[-1]} outputs: give labels that are classes, one for each output"
            )
        return generic + self.gamma * ctx.counts.to(generic.dtype).log()

    @cached_property
    def _plain(self) -> Task:
        return replace_head(self.task, OneHead.of(head_of(self.task)[1]))

    def predictor(self) -> Task:
        return self._plain

    def personal(self, server: Tree, private: Tree) -> Weights:
        w = super().personal(server, private)
        own = {k: v for k, v in w.items() if k.rpartition(".")[2].startswith(OWN)}
        return {k: v for k, v in w.items() if k not in own} | {
            (name := k.replace(OWN, "")): w[name] + v for k, v in own.items()
        }
