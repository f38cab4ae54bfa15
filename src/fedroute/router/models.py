"""The models that clients answer with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedroute.task import Task
from fedroute.tree import Weights


@dataclass(frozen=True, eq=False)
class Models:
    """What a training has left to answer with. task: predicts with `personal`, the weights of each client, and with
    `common`, those of the global model where there is one. trunk, shared: the model as it was trained and its shared
    weights, which a router reads. made_of: {model, algorithm, seed}, by which it can be built again; model is None
    where it is not of the zoo."""

    task: Task
    personal: tuple[Weights, ...]
    common: Weights | None
    trunk: Task
    shared: Weights
    made_of: Mapping[str, Any]
