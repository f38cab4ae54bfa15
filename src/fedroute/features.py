"""Which layer of a model is its head: what it is given are the features of a row."""

from torch import nn

from fedroute.errors import InputError
from fedroute.task import Task


def head_of(task: Task) -> tuple[str, nn.Linear]:
    """(name, module) of the one linear layer whose weights have the role "head"; it takes (B, D) and gives (B, K).

    Raises InputError where the head is not one linear layer."""
    owners = sorted({name.rpartition(".")[0] for name, role in task.roles.items() if role == "head"})
    head = task.module.get_submodule(owners[0]) if len(owners) == 1 else None
    if not isinstance(head, nn.Linear) or not owners[0]:
        what = ", ".join(o or "the model itself" for o in owners) or "none"
        raise InputError(
            f"model: this algorithm looks at what the head is given, so the head must be one linear layer inside the "
            f"model ({what} here): name it, as in roles={{'fc.': 'head'}}"
        )
    return owners[0], head
