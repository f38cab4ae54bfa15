"""Another linear layer in the place of a model's head, with the weights of the head under the names they had."""

import copy
from typing import Any, Self

from torch import Tensor, nn

from fedroute.features import head_of
from fedroute.task import Batch, Loss, Task


class Head(nn.Linear):
    """A linear layer made from another, whose weights it shares; a subclass adds to it."""

    @classmethod
    def of(cls, head: nn.Linear) -> Self:
        made: Any = copy.copy(head)
        made.__class__ = cls
        for kind in ("_parameters", "_buffers", "_modules"):  # what is added is not added to the one copied from
            setattr(made, kind, dict(getattr(head, kind)))
        return made  # type: ignore[no-any-return]


class TellingHead(Head):
    """z (B, D) -> (logits (B, K), z): it tells what it was given."""

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(z), z


class OfOutput:
    """A loss of one member of the tuple that a model puts out, or of what it puts out where that is no tuple."""

    def __init__(self, loss: Loss, place: int = 0):
        self.loss, self.place = loss, place

    def __call__(self, out: Any, batch: Batch) -> Tensor:
        return self.loss(out[self.place] if isinstance(out, tuple) else out, batch)


def replace_head(task: Task, head: nn.Linear, place: int = 0, roles: dict[str, str] | None = None) -> Task:
    """The task whose model has this layer as its head. The model itself is left as it is.

    place: where the head puts out a tuple, and with it the model, whose last layer it must be: the member that the
    task's loss is of. roles: of weights that the head adds, by their full names.

    Raises InputError where the task's head is not one linear layer."""
    name, _ = head_of(task)
    module = _replaced(task.module, name.split("."), head)
    return Task(module, task.roles | (roles or {}), OfOutput(task.loss, place))


def _replaced(module: nn.Module, path: list[str], new: nn.Module) -> nn.Module:
    """A copy of the module that shares all but what lies on the path."""
    if not path:
        return new
    made = copy.copy(module)
    made._modules = dict(module._modules)
    child = made._modules[path[0]]
    assert child is not None
    made._modules[path[0]] = _replaced(child, path[1:], new)
    return made
