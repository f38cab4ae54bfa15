"""What hub and sites agree on before the first round: the data, the model, the algorithm and how it is trained."""

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedroute.errors import InputError
from fedroute.federation.lanes import ONE
from fedroute.tree import sha256

if TYPE_CHECKING:
    from fedroute.config import Config, Training
    from fedroute.core import Algorithm, Task
    from fedroute.data.federation import Federation

Terms = dict[str, Any]  # plain JSON
SCHEMA = 1
MODEL = ("model", "algorithm", "training", "seed")


def terms(config: "Config", clients: Sequence[str], initial: str, run: str) -> Terms:
    """What is the same for every site, as JSON; `data`, an Agreement for that site alone, goes with it.

    initial: the hash of the weights that training starts from; run: what tells this run from another of the same
    config."""
    part = {
        "schema": SCHEMA,
        "run": run,
        "clients": list(clients),
        "model": config.model,
        "algorithm": config.algorithm,
        "training": config.training.model_dump(mode="json"),
        "seed": config.seed,
        "router": config.router is not None,
        "initial": initial,
    }
    return part | {"federation": _digest(part)}


def check(agreed: Terms) -> Terms:
    """Raises InputError where these are no terms that this version understands."""
    if agreed.get("schema") != SCHEMA:
        raise InputError(f"terms of schema {agreed.get('schema')!r}, this fedroute reads {SCHEMA}: use one version")
    if agreed.get("federation") != _digest({k: v for k, v in agreed.items() if k not in ("federation", "data")}):
        raise InputError("these terms were changed on their way")
    return agreed


def bound(agreed: Terms, federation: "Federation") -> tuple["Algorithm", "Training"]:
    """The algorithm, bound to the model that the terms name, and how it is trained: the same at hub and site. Of the
    federation only the form of a row and the labels count.

    Raises InputError where this machine makes another model of it."""
    from fedroute.algorithms import make
    from fedroute.config import Training
    from fedroute.rounds import prepare

    training = Training(**agreed["training"])
    task = task_of(agreed["model"], federation, agreed["seed"])
    if agreed["initial"] and (found := sha256(task.init())) != agreed["initial"]:
        raise InputError(
            f"the model starts from other weights here ({found[:12]}) than at the hub ({agreed['initial'][:12]}): "
            "install the same versions of fedroute and torch at both"
        )
    return prepare(make(agreed["algorithm"]), task, training), training


def task_of(model: dict[str, Any], federation: "Federation", seed: int) -> "Task":
    """The model on its way to be trained."""
    from fedroute.core import Task
    from fedroute.models import build
    from fedroute.task import loss_for

    with ONE:
        return Task(*build(model, federation, seed), loss_for(federation.y))


def _digest(part: Terms) -> str:
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16]
