"""Any map-style dataset of torch, or of Hugging Face `datasets`, read once into tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedroute.data.rows import Names, canonical
from fedroute.errors import InputError


def read(
    dataset: Any, client: Sequence[str] | Callable[[Any], str] | str | None, x: int | str, y: int | str, bound: int
) -> tuple[Tensor, Tensor, Sequence[str] | None, tuple[str, ...]]:
    """(x, y, client of each row or None, label names). See `Federation.from_dataset`."""
    name = type(dataset).__name__
    try:
        rows = len(dataset)
    except TypeError:
        raise InputError(f"{name}: has no len(); give a map-style dataset, not an iterable one") from None
    if rows == 0:
        raise InputError(f"{name}: is empty")
    data, targets, owners = torch.empty(0), list[Any](), list[str]()
    for i in range(rows):
        item = dataset[i]
        image = _tensor(_part(item, x, name))
        if i == 0:
            if rows * image.numel() * image.element_size() > bound:
                raise InputError(f"{name}: {rows} rows of {tuple(image.shape)} take more than {bound:,} bytes; "
                                 "take fewer rows or smaller ones, or set `bound`")  # fmt: skip
            data = torch.empty(rows, *image.shape, dtype=image.dtype)
        if image.shape != data.shape[1:] or image.dtype != data.dtype:
            raise InputError(f"{name}: row {i} is {tuple(image.shape)} {image.dtype} and row 0 {tuple(data.shape[1:])} "
                             f"{data.dtype}; let the dataset's transform make them alike")  # fmt: skip
        data[i] = image
        targets.append(_part(item, y, name))
        if callable(client):
            owners.append(str(client(item)))
        elif isinstance(client, str):
            owners.append(str(_part(item, client, name)))
    target, labels = _targets(targets, dataset, y)
    return data, target, owners or (client if not isinstance(client, str) and not callable(client) else None), labels


def _part(item: Any, key: int | str, name: str) -> Any:
    try:
        return item[key]
    except (KeyError, IndexError, TypeError):
        there = f"the keys {', '.join(map(str, item))}" if isinstance(item, dict) else f"type {type(item).__name__}"
        raise InputError(f"{name}: an item has no {key!r}; it has {there}: name x=... and y=...") from None


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.float() if value.dtype == torch.float64 else value
    if hasattr(value, "convert"):  # a PIL image
        grey = value.mode in ("1", "L", "I", "F", "LA")
        array = np.asarray(value.convert("L" if grey else "RGB"))
        return torch.tensor(array[None] if grey else array.transpose(2, 0, 1))
    return torch.tensor(np.asarray(value, dtype=None if isinstance(value, np.ndarray) else np.float32))


def _targets(targets: list[Any], dataset: Any, key: int | str) -> tuple[Tensor, tuple[str, ...]]:
    if isinstance(targets[0], str):
        return _coded(targets)
    y = torch.stack([torch.as_tensor(t) for t in targets])
    if y.is_floating_point() or y.ndim != 1:
        return y.float() if y.dtype == torch.float64 else y, ()
    features = getattr(dataset, "features", None)  # Hugging Face keeps names there, torchvision in `classes`
    names = getattr(features[key], "names", None) if features and key in features else getattr(dataset, "classes", None)
    if names is not None:
        return y.long(), tuple(canonical(n) for n in names)
    return _coded(y.tolist())


def _coded(targets: list[Any]) -> tuple[Tensor, tuple[str, ...]]:
    names = Names.of(targets)
    return torch.from_numpy(names.codes), names.kinds
