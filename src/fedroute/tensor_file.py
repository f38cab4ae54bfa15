"""Trees of tensors as safetensors: streamed, exact to the bit, the nesting in the metadata. No pickles."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.tree import Tree, Weights

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def form_of(tree: Tree, prefix: str, tensors: Weights) -> dict[str, Any]:
    """The nesting of a tree, empty dicts and the order of keys included, with the name of a tensor at each leaf;
    `tensors` gets them. Names are paths; one that is taken (a slash inside a key) gets a star."""
    form: dict[str, Any] = {}
    for k, v in tree.items():
        if isinstance(v, dict):
            form[k] = form_of(v, f"{prefix}{k}/", tensors)
        else:
            name = prefix + k
            while name in tensors:
                name += "*"
            form[k], tensors[name] = name, v
    return form


def tree_of(form: Mapping[str, Any], tensors: Weights, prefix: str = "") -> Tree:
    """The tree of a form and its tensors, whose names begin with `prefix`."""
    return {k: tree_of(v, tensors, prefix) if isinstance(v, dict) else tensors[prefix + v] for k, v in form.items()}


def parts(tensors: Weights, metadata: Mapping[str, str] | None = None) -> Iterator[Any]:
    """The bytes of a safetensors file, piece by piece. Written here and not by the library's `save_file`, which copies
    all tensors first, and refuses views of one memory. The layout of tensors that do not lie row by row is in the
    metadata, under their names.

    Raises InputError for a tensor of a type that safetensors has no word for."""
    header: dict[str, Any] = {}
    layouts = {k: json.dumps(strides) for k, t in tensors.items() if (strides := _layout(t))}
    if layouts or metadata:
        header["__metadata__"] = layouts | dict(metadata or {})
    names = sorted(tensors, key=lambda k: -tensors[k].element_size())  # so that each stands aligned
    offset = 0
    for k in names:
        t = tensors[k]
        if t.dtype not in DTYPES:
            raise InputError(f"{k}: weights of type {t.dtype} cannot be kept: use {sorted(DTYPES.values())}")
        end = offset + t.numel() * t.element_size()
        header[k] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return chain((len(text).to_bytes(8, "little"), text), (raw(tensors[k]) for k in names))


def write_tensors(path: Path, tensors: Weights, metadata: Mapping[str, str] | None = None) -> str:
    """A safetensors file, streamed and synced; returns its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as f:
        for part in parts(tensors, metadata):
            f.write(part)
            digest.update(part)
        f.flush()
        os.fsync(f.fileno())
    return digest.hexdigest()


def read_tensors(path: Path) -> Weights:
    """What `write_tensors` wrote, each tensor in memory of its own and in the layout it had."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as f:
        metadata = f.metadata() or {}
        return {k: laid_out_as(f.get_tensor(k), metadata.get(k)) for k in f.keys()}  # noqa: SIM118  # no mapping


def raw(t: Tensor) -> Any:  # a buffer; numpy and Python 3.11 do not agree on its type
    """The bytes of a tensor, row by row."""
    return t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def laid_out_as(t: Tensor, strides: str | None) -> Tensor:
    """A copy in memory of its own (a file is mapped), in the layout that it had. strides: as JSON, where not row by
    row."""
    return torch.empty_strided(t.shape, json.loads(strides), dtype=t.dtype).copy_(t) if strides else t.clone()


def _layout(t: Tensor) -> list[int]:
    """The strides, where a dense tensor lies otherwise than row by row (channels last); [] where not. Kernels may round
    otherwise on another layout, and a resumed run must not."""
    strides = t.stride()
    order = sorted(range(t.ndim), key=lambda d: -strides[d])
    plain = strides == torch.empty(t.shape, device="meta").stride()
    return [] if plain or not t.permute(order).is_contiguous() else list(strides)
