"""Trees as bytes between organisations: exact to the bit, and checked before anything is made of them.

The bytes are a safetensors file, in whose metadata stands how the tensors nest. Nothing in it can be code.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedroute.quarantine import misfit
from fedroute.tensor_file import form_of, parts, tree_of, write_tensors
from fedroute.tree import Tree, Weights, tree_map

FORM = "fedroute form"  # the key of the metadata that says how tensors nest
HEADER = 100 << 20  # bytes that a header may have, as the library's own limit
DEEP = 32  # levels of nesting


class Garbled(ValueError):
    """What arrived is no tree, or not the declared one. The message says why, in words."""


def encode(tree: Tree) -> bytes:
    """The tree as bytes. Raises InputError for a tensor that safetensors has no word for."""
    tensors, metadata = _flat(tree)
    return b"".join(bytes(p) for p in parts(tensors, metadata))


def write(path: Path, tree: Tree) -> str:
    """The tree as a file, streamed; returns the SHA-256 of its bytes, which are those of `encode`."""
    return write_tensors(path, *_flat(tree))


def decode(source: bytes | Path, pattern: Tree | None = None, bound: float | None = None) -> Tree:
    """The tree that `encode` or `write` made bytes of, each tensor in memory of its own, row by row.

    pattern: a tree of the form that was declared; then the same names, shapes and types are demanded, and with `bound`
    values that are finite and not beyond it; the order of keys is the pattern's. Raises Garbled."""
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load

    form = form_in(source)
    try:
        if isinstance(source, Path):
            with safe_open(source, framework="pt") as f:
                tensors = {k: f.get_tensor(k).clone() for k in f.keys()}  # noqa: SIM118  # no mapping
        else:
            tensors = {k: v.clone(memory_format=torch.contiguous_format) for k, v in load(source).items()}
    except (SafetensorError, ValueError, KeyError, RuntimeError, TypeError) as e:
        raise Garbled(f"not safetensors: {e}") from e
    names = list(_leaves(form))
    if sorted(names) != sorted(tensors):
        odd = sorted({*names} ^ {*tensors}) or ["a tensor that stands twice"]
        raise Garbled(f"its form and its tensors do not agree: {odd[0]}")
    tree = tree_of(form, tensors)
    if pattern is None:
        return tree
    if why := misfit(tree, pattern, bound):
        raise Garbled(why)
    return _like(pattern, tree)


def plain_bytes(name: str, t: Tensor) -> bytes:
    """One tensor as an ordinary safetensors file, which any client of the format writes and reads."""
    return b"".join(bytes(p) for p in parts({name: t.detach().contiguous()}))


def plain(data: bytes, name: str) -> Tensor:
    """The one tensor, of this name, in an ordinary safetensors file. Raises Garbled."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        found = load(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError, TypeError) as e:
        raise Garbled(f"not safetensors: {e}") from e
    if list(found) != [name]:
        raise Garbled(f"one tensor, {name!r}, is asked for")
    return found[name].clone()


def sha256(data: bytes | Path) -> str:
    """Of the bytes."""
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    with data.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _flat(tree: Tree) -> tuple[Weights, dict[str, str]]:
    tensors: Weights = {}
    form = form_of(tree_map(lambda t: t.detach().contiguous(), tree), "", tensors)
    return tensors, {FORM: json.dumps(form)}


def _like(pattern: Tree, tree: Tree) -> Tree:
    """The leaves of `tree` as `pattern` nests them, empty dicts and all."""
    return {k: _like(v, tree.get(k, {})) if isinstance(v, dict) else tree[k] for k, v in pattern.items()}


def form_in(source: bytes | Path) -> dict[str, Any]:
    if isinstance(source, Path):
        with source.open("rb") as f:
            head = f.read(8)
            text = f.read(min(int.from_bytes(head, "little"), HEADER))
    else:
        head = source[:8]
        text = source[8 : 8 + min(int.from_bytes(head, "little"), HEADER)]
    try:
        header = json.loads(text)
        form = json.loads(header["__metadata__"][FORM])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Garbled("not safetensors with the form of a tree") from None
    if not isinstance(form, dict):
        raise Garbled("its form is no tree")
    return form


def _leaves(form: Mapping[str, Any], depth: int = 0) -> list[str]:
    found: list[str] = []
    for v in form.values():
        if isinstance(v, dict) and depth < DEEP:
            found += _leaves(v, depth + 1)
        elif isinstance(v, str):
            found.append(v)
        else:
            raise Garbled("its form is no tree")
    return found
