"""What one client sees: its own rows in the units of its file, missing values as gaps, and nobody else's."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedroute.data.federation import Federation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PARTS = ("train", "validation", "test")
SIDE = 8  # images are looked at as so many blocks a side
WIDE = 256  # numbers a row has at most where it is neither a table nor an image


@dataclass(frozen=True, kw_only=True)
class OwnRows:
    """n rows of one client, in the order of the file. rows: (n,) their numbers in the federation; part: (n,) 0 train,
    1 validation, 2 test. values: (n, F) float64, NaN where missing; of images the means of blocks, 0..1.
    codes: (n, C) names as numbers, -1 where missing; columns: the F names, then the C. y: (n,) class codes or numbers,
    or (n, ...) targets. raw: (n, ...) what makes two rows the same. table: whether each column means something."""

    client: str
    rows: Ints
    part: NDArray[np.int8]
    values: Floats
    codes: Ints
    columns: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    y: NDArray[np.generic]
    raw: Tensor
    table: bool
    images: bool
    time: Floats | None

    def __len__(self) -> int:
        return len(self.rows)


def own_rows(federation: Federation) -> Iterator[OwnRows]:
    """Each client in turn, one at a time in memory."""
    for i, client in enumerate(federation.clients):
        parts = [getattr(federation, p)[i] for p in PARTS]
        order = torch.cat(parts).argsort()
        at = torch.cat(parts)[order]
        part = np.repeat(np.arange(3, dtype=np.int8), [len(p) for p in parts])[order.numpy()]
        x = federation.x.index_select(0, at)
        values, codes, columns, names = _columns(federation, x, client)
        raw = x
        if federation.table is not None and federation.table.clients:  # each client's own scale: not comparable
            raw = torch.from_numpy(np.concatenate([np.nan_to_num(values, nan=-1e300), codes], 1))
        yield OwnRows(
            client=client, rows=at.numpy(), part=part, values=values, codes=codes, columns=columns, names=names,
            y=federation.y.index_select(0, at).numpy(), raw=raw, table=x.ndim == 2, images=_images(x),
            time=None if federation.time is None else federation.time.index_select(0, at).numpy(),
        )  # fmt: skip


def _images(x: Tensor) -> bool:
    return x.ndim == 4 or (x.ndim == 3 and min(x.shape[1:]) >= SIDE)


def _columns(
    federation: Federation, x: Tensor, client: str
) -> tuple[Floats, Ints, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    none = np.empty((len(x), 0), dtype=np.int64)
    if (table := federation.table) is None:
        if x.ndim != 2:
            return _pooled(x), none, (), ()
        names = federation.columns or tuple(f"column {j}" for j in range(x.shape[1]))
        return x.double().numpy(), none, names, ()
    stats = table.clients.get(client, table.federated)
    f, gaps = len(table.numeric), len(table.flags)
    raw = x.double().numpy()
    values = raw[:, :f] * np.array(stats.scale) + np.array(stats.mean)
    codes = raw[:, f + gaps :].astype(np.int64)
    for j, column in enumerate(table.flags):
        gone = raw[:, f + j] > 0.5
        if column in table.categorical:
            codes[gone, list(table.categorical).index(column)] = -1
        else:
            values[gone, table.numeric.index(column)] = np.nan
    # x is float32: digits that it does not hold are not the file's
    np.multiply(np.rint(values / (unit := _unit(np.array(stats.scale)))), unit, out=values)
    return values, codes, (*table.numeric, *table.categorical), tuple(table.categorical.values())


def _unit(scale: Floats) -> Floats:
    """A power of ten, a millionth to a hundred-thousandth of the scale."""
    found: Floats = 10.0 ** np.floor(np.log10(np.maximum(scale, 1e-300)) - 5)
    return found


def _pooled(x: Tensor) -> Floats:
    """(n, D) means of blocks, so that coding noise of single pixels is averaged out."""
    from torch.nn.functional import adaptive_avg_pool1d, adaptive_avg_pool2d

    found = []
    for chunk in x.split(4096):
        v = chunk.float() / (255 if chunk.dtype == torch.uint8 else 1)
        if _images(x):
            v = v if v.ndim == 4 else v[:, None]
            size = (min(SIDE, v.shape[2]), min(SIDE, v.shape[3]))
            found.append(adaptive_avg_pool2d(v, size).flatten(1))
        else:
            flat = v.reshape(len(v), 1, -1)
            found.append(adaptive_avg_pool1d(flat, min(WIDE, flat.shape[2]))[:, 0])
    pooled = torch.cat(found) if found else torch.zeros(0, 1)
    return pooled.double().numpy()
