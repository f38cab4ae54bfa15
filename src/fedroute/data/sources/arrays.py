"""Arrays in a NumPy .npz file."""

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedroute.data.labels import called
from fedroute.data.rows import Floats, Names, Rows
from fedroute.data.sources.files import resolve
from fedroute.data.spec import Npz, nearest
from fedroute.errors import InputError


def read(spec: Npz, base: Path) -> Rows:
    """x stays uint8 or becomes float32; images get the shape (R, C, H, W). Float y is numbers to regress.

    Raises InputError for missing, pickled or unequal arrays."""
    rows, where = as_written(spec, base)
    if not isinstance(rows.label, Names):
        return rows
    notes = list[str]()
    label = called(rows.label, spec.label_names, where, rows.client, notes)
    return replace(rows, label=label, notes=tuple(notes))


def as_written(spec: Npz, base: Path) -> tuple[Rows, Callable[[int], str]]:
    """The rows with their labels as the array has them, and the place of a row."""
    path = resolve(spec.path, base)
    x = _array(path, spec.x, "x")
    name = spec.client or ("client" if spec.partition is None and _has(path, "client") else None)
    y, client = _array(path, spec.y, "y"), None if name is None else _array(path, name, "client")
    for key, a in (("y", y), ("client", client)):
        if a is not None and a.shape != x.shape[:1]:
            raise InputError(f"{path}: {key} has shape {a.shape} and x {x.shape}: {key} needs one value for each of "
                             f"the {x.shape[0] if x.ndim else 0} rows")  # fmt: skip
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.dtype.kind not in "biuf":
        raise InputError(f"{path}: x holds {x.dtype}, which is no number")
    data = torch.tensor(np.ascontiguousarray(x), dtype=torch.uint8 if x.dtype == np.uint8 else torch.float32)
    numbers = y.dtype.kind == "f" and not np.equal(np.floor(y), y).all()
    label: Names | Floats = y.astype(np.float64) if numbers else Names.of(y)
    rows = Rows(name=path.stem, x=data, label=label, client=None if client is None else Names.of(client))
    return rows, lambda row: f"{path}, row {row}"


def _has(path: Path, name: str) -> bool:
    """Whether the file has such an array; False for what is no such file, which is told when it is read."""
    return zipfile.is_zipfile(path) and f"{name}.npy" in zipfile.ZipFile(path).namelist()


def _array(path: Path, name: str, key: str) -> NDArray[np.generic]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: holds one array; save x, y and client together: numpy.savez")
            if name not in file:
                raise InputError(f"{path}: no array {name!r} (federation.{key}){nearest(name, file)}")
            found: NDArray[np.generic] = file[name]
            return found
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as e:
        why = "it holds Python objects; save plain numbers or text" if "pickle" in str(e).lower() else str(e)
        raise InputError(f"{path}: cannot be read as .npz ({why.splitlines()[0]})") from None
