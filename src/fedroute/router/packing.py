"""A guide as bytes: one safetensors file, everything but tensors as JSON in its metadata."""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedroute.core import Algorithm
from fedroute.data.queries import QueryForm
from fedroute.errors import InputError
from fedroute.router.abstain import Abstain
from fedroute.router.aggregator import Aggregator
from fedroute.router.inputs import RouterInput
from fedroute.router.stored import POSTERIORS, tasks_of
from fedroute.tree import Tree, Weights, flatten, unflatten

SCHEMA = 1
ALONE = ("style", "histogram", "columns")  # inputs that are read without a model


def packed(guide: Mapping[str, Any]) -> bytes:
    """guide: its fields, by name."""
    from safetensors.torch import save

    read, seen, mix, abstain = (guide[k] for k in ("read", "seen", "aggregator", "abstain"))
    plain = {k: guide[k] for k in ("law", "temperature", "mean") if guide[k] is not None}
    tree: Tree = {
        "posterior": guide["posterior"].state(), "read": read.state(), "plain": plain,
        "seen": seen.state() if seen else {}, "aggregator": mix.state() if mix else {},
        "abstain": abstain.state() if abstain else {}, "shared": _looked_through(read, seen),
    }  # fmt: skip
    document = {
        "schema": SCHEMA, "clients": guide["clients"], "labels": guide["labels"], "kind": guide["kind"],
        "form": guide["form"].model_dump(mode="json"), "read": read.spec(), "seen": seen.spec() if seen else None,
        "posterior": next(k for k, c in POSTERIORS.items() if type(guide["posterior"]) is c), "rule": guide["rule"],
        "made_of": guide["made_of"], "chosen": guide["chosen"],
    }  # fmt: skip
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in flatten(tree, whole=True).items()}
    data: bytes = save(tensors, {"guide": json.dumps(document, ensure_ascii=False, default=_plain)})
    return data


def unpacked(
    data: bytes, model: nn.Module | None, roles: dict[str, str] | None, algorithm: Algorithm | None
) -> dict[str, Any]:
    """The fields of a guide, by name; see `Guide.unpacked`."""
    document, tree = _opened(data)
    try:
        return _fields(document, tree, model, roles, algorithm)
    except (KeyError, TypeError, AttributeError, RuntimeError, IndexError) as e:
        raise InputError(f"this guide is not whole ({type(e).__name__}: {e}); download it anew") from None


def _opened(data: bytes) -> tuple[dict[str, Any], Tree]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tree = unflatten(load(data))
        head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        document: dict[str, Any] = json.loads(head["__metadata__"]["guide"])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise InputError(f"these bytes are no guide ({e}); download it anew from /v1/router") from None
    if document.get("schema") != SCHEMA:
        raise InputError(
            f"a guide of schema {document.get('schema')}, this fedroute reads {SCHEMA}; take the version that wrote it"
        )
    return document, tree


def _fields(
    document: Mapping[str, Any],
    tree: Tree,
    model: nn.Module | None,
    roles: dict[str, str] | None,
    algorithm: Algorithm | None,
) -> dict[str, Any]:
    form, shared, plain = QueryForm.model_validate(document["form"]), tree["shared"], tree["plain"]
    task = tasks_of(document, form, model, roles, None, algorithm)[0] if shared else None
    return {
        "clients": tuple(document["clients"]),
        "labels": tuple(document["labels"]),
        "form": form,
        "read": _input(document["read"], tree["read"], task, shared),
        "kind": document["kind"],
        "posterior": POSTERIORS[document["posterior"]].of(tree["posterior"]),
        "rule": document["rule"],
        "made_of": document["made_of"],
        "law": plain.get("law"),
        "temperature": plain.get("temperature"),
        "aggregator": Aggregator.of(found) if (found := tree["aggregator"]) else None,
        "mean": plain.get("mean"),
        "seen": document["seen"] and _input(document["seen"], tree["seen"], task, shared),
        "abstain": Abstain.of(found) if (found := tree["abstain"]) else None,
        "chosen": document["chosen"],
    }


def _input(spec: Mapping[str, Any], state: Tree, task: Any, shared: Weights) -> RouterInput:
    return RouterInput.load(spec, state, None if {*spec["kinds"]} <= {*ALONE} else task, shared)


def _looked_through(*inputs: RouterInput | None) -> Weights:
    """The shared weights of the model that is read, but its head: what is read lies before it. Weights that clients
    do not share are NaN in a router's input, and are left out as well."""
    for read in inputs:
        if read and read.task and not {*read.kinds} <= {*ALONE}:
            roles = read.task.roles
            return {k: v for k, v in read.weights.items() if roles[k] != "head" and not _gone(v)}
    return {}


def _gone(v: Tensor) -> bool:
    return bool(v.is_floating_point() and v.numel() and v.isnan().all())


def _plain(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    raise TypeError(f"a guide's words are plain values, not {type(value).__name__}")
