"""A router on disk, beside the run that made it: JSON, and tensors in one safetensors file that it names by its hash.

router/
  router.json             everything but tensors; written last, at once: until then the router is the one before
  HASH.safetensors        posterior, input, and the models: what is shared once, what a client has of its own stacked
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.data.queries import QueryForm
from fedroute.durable import taking, write
from fedroute.errors import InputError
from fedroute.hub_run import hub_of, no_models
from fedroute.router.abstain import Abstain
from fedroute.router.aggregator import Aggregator
from fedroute.router.calibrate import Temperatures
from fedroute.router.capacity import Capacity
from fedroute.router.cells import Cells
from fedroute.router.drm import Drm
from fedroute.router.inputs import RouterInput
from fedroute.router.lda import Lda
from fedroute.router.models import Models
from fedroute.router.ratio import Ratio
from fedroute.router.ridge import Ridge
from fedroute.router.softmax import Softmax
from fedroute.task import Loss, Task
from fedroute.tree import Tree, Weights, flatten, unflatten

SCHEMA = 1
FOLDER, FILE = "router", "router.json"
POSTERIORS: dict[str, Any] = {
    "cells": Cells, "drm": Drm, "lda": Lda, "ratio": Ratio, "ridge": Ridge, "softmax": Softmax,
}  # fmt: skip


def write_router(router: Mapping[str, Any], folder: Path) -> None:
    """router: its fields, by name; see `Router.save`. Raises RunFailed where the disk is full; what was there before is
    then untouched."""
    from safetensors.torch import save as packed

    models, place = router["models"], folder / FOLDER
    shared, common = models.shared, models.common
    tree: Tree = {
        "posterior": router["posterior"].state(),
        "read": router["read"].state(),
        "shared": shared,
        "common": {k: v for k, v in (common or {}).items() if shared.get(k) is not v},
        "own": _stacked(models.personal, shared),
        "law": {} if router["law"] is None else {"law": router["law"]},
        "mean": {} if router["mean"] is None else {"mean": router["mean"]},
        "temperatures": router["temperatures"]._asdict() if router["temperatures"] else {},
        "aggregator": router["aggregator"].state() if router["aggregator"] else {},
        "capacity": {"share": router["capacity"].share} if router["capacity"] else {},
        "seen": router["seen"].state() if router["seen"] else {},
        "abstain": router["abstain"].state() if router["abstain"] else {},
    }
    plain = {k: v.detach().cpu().contiguous().clone() for k, v in flatten(tree, whole=True).items()}
    data = packed(plain)
    digest = hashlib.sha256(data).hexdigest()
    document = {
        "schema": SCHEMA,
        "clients": router["clients"],
        "labels": router["labels"],
        "form": router["form"].model_dump(mode="json"),
        "read": router["read"].spec(),
        "seen": router["seen"].spec() if router["seen"] else None,
        "kind": router["kind"],
        "posterior": next(k for k, c in POSTERIORS.items() if type(router["posterior"]) is c),
        "rule": router["rule"],
        "best": router["best"],
        "voice": router["common"],
        "chosen": router["chosen"],
        "made_of": models.made_of,
        "common": None if common is None else [*common],
        "personal": [*models.personal[0]],
        "tensors": f"{digest[:16]}.safetensors",
        "sha256": digest,
    }
    with taking(place):
        place.mkdir(parents=True, exist_ok=True)
    write(place / f"{digest[:16]}.safetensors", data)
    write(place / FILE, json.dumps(document, ensure_ascii=False, default=_plain) + "\n")
    for old in place.glob("*.safetensors"):
        if old.name != document["tensors"]:
            old.unlink(missing_ok=True)


def read_router(
    folder: Path, model: nn.Module | None, roles: dict[str, str] | None, loss: Loss | None, algorithm: Algorithm | None
) -> dict[str, Any]:
    """The fields of a router, by name; see `Router.load`."""
    from safetensors.torch import load as unpacked

    place = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    document = _document(place, folder)
    path = place / document["tensors"]
    try:
        data = path.read_bytes()
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}: the router is not whole; copy the folder anew, or train again") from e
    if hashlib.sha256(data).hexdigest() != document["sha256"]:
        raise InputError(f"{path}: is not what was written; copy the folder anew, or train again")
    tree = unflatten(unpacked(data))
    form, shared = QueryForm.model_validate(document["form"]), tree["shared"]
    trunk, task = tasks_of(document, form, model, roles, loss, algorithm)
    personal = tuple(
        {k: _of(tree["own"].get(k), i, shared.get(k)) for k in document["personal"]}
        for i in range(len(document["clients"]))
    )
    common = document["common"] and {k: tree["common"].get(k, shared.get(k)) for k in document["common"]}
    return {
        "clients": tuple(document["clients"]),
        "labels": tuple(document["labels"]),
        "form": form,
        "models": Models(task, personal, common, trunk, shared, document["made_of"]),
        "read": RouterInput.load(document["read"], tree["read"], trunk, shared),
        "kind": document["kind"],
        "posterior": POSTERIORS[document["posterior"]].of(tree["posterior"]),
        "rule": document["rule"],
        "best": document["best"],
        "common": document["voice"],
        "law": tree["law"].get("law"),
        "mean": tree["mean"].get("mean"),
        "temperatures": Temperatures(**found) if (found := tree["temperatures"]) else None,
        "aggregator": Aggregator.of(found) if (found := tree["aggregator"]) else None,
        "seen": document["seen"] and RouterInput.load(document["seen"], tree["seen"], trunk, shared),
        "abstain": Abstain.of(found) if (found := tree["abstain"]) else None,
        "capacity": Capacity(**found) if (found := tree["capacity"]) else None,
        "chosen": document["chosen"],
    }


def _document(place: Path, folder: Path) -> dict[str, Any]:
    path = place / FILE
    if folder.is_file():
        raise InputError(f"{folder}: is a file; name the folder of the run, that --out was given")
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if hub := hub_of(folder):
            raise InputError(no_models(folder, hub)) from None
        if (folder / "summary.json").exists():
            raise InputError(f"{folder}: this run has no router; run its config with `--set router=auto`") from None
        if (folder / "config.yaml").exists():
            raise InputError(
                f"{folder}: the run has not ended, and its router is made at the end; `fedroute resume {folder}` first"
            ) from None
        raise InputError(f"{folder}: no run here: name the folder that --out was given") from None
    except (OSError, ValueError) as e:
        raise InputError(f"{path}: not readable ({e}); copy the folder anew, or train again") from None
    if document.get("schema") != SCHEMA:
        raise InputError(
            f"{path}: a router of schema {document.get('schema')}, this fedroute reads {SCHEMA}; take the version that "
            "wrote it, or train again"
        )
    return document


def tasks_of(
    document: Mapping[str, Any],
    form: QueryForm,
    model: nn.Module | None,
    roles: dict[str, str] | None,
    loss: Loss | None,
    algorithm: Algorithm | None,
) -> tuple[Task, Task]:
    """(the model as it was trained, the task that predicts)."""
    from fedroute.algorithms import ALGORITHMS, make
    from fedroute.models import adopt, build

    made = document["made_of"]
    if model is not None:
        task = Task(*adopt(model, roles), loss)
    elif made["model"] is None:
        raise InputError("router: it was made with a model of your own: give it, as in Router.load(folder, model=...)")
    else:
        task = Task(*build(made["model"], _empty(document, form), made["seed"]), loss)
    if algorithm is None and made["algorithm"]["name"] not in ALGORITHMS:
        raise InputError(
            f"router: it was made with your own algorithm {made['algorithm']['name']}: give it, as in "
            "Router.load(folder, algorithm=...)"
        )
    bound = (algorithm or make(made["algorithm"])).bind(task)
    return bound.task, bound.predictor()


def _empty(document: Mapping[str, Any], form: QueryForm) -> Federation:
    """A federation of the same clients, labels and columns, without a row."""
    none = (torch.zeros(0, dtype=torch.int64),) * len(document["clients"])
    return Federation(
        name="the router's federation",
        x=torch.zeros(0, *form.shape),
        y=torch.zeros(0, dtype=torch.int64),
        clients=tuple(document["clients"]),
        train=none,
        validation=none,
        test=none,
        labels=tuple(document["labels"]),
        columns=form.table.columns if form.table else (),
        table=form.table,
    )


def _stacked(personal: Sequence[Weights], shared: Weights) -> Tree:
    """What any client has otherwise than all: (N, ...) by name, or by name and client where the shapes differ."""
    found: Tree = {}
    for k in personal[0]:
        own = [w[k] for w in personal]
        if all(v is shared.get(k) for v in own):
            continue
        alike = all(v.shape == own[0].shape for v in own)
        found[k] = torch.stack(own) if alike else {str(i): v for i, v in enumerate(own)}
    return found


def _of(own: Tensor | Tree | None, client: int, shared: Any) -> Tensor:
    """One weight of one client."""
    found: Tensor = shared if own is None else own[str(client)] if isinstance(own, dict) else own[client]
    return found


def _plain(value: object) -> object:
    if isinstance(value, Tensor):
        return value.tolist()
    raise TypeError(f"a router's words are plain values, not {type(value).__name__}")
