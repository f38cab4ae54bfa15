"""Image bytes to one uint8 tensor. Files that cannot be read are counted and left out."""

import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedroute.data.spec import Table
from fedroute.errors import InputError
from fedroute.words import count as counted

Where = Callable[[int], str]


def decode(
    images: Iterable[bytes | Path | None], count: int, where: Where, size: Sequence[int] | None, colour: str = "auto"
) -> tuple[Tensor, NDArray[np.bool_], list[str]]:
    """(x, good, notes). x: (count, C, H, W) uint8, zeros where good (count,) is False. where(i): the place of an image,
    for messages.

    colour "auto": RGB where any image has colour, else grey; size: (H, W) to resize to, else all must have one size.
    Raises InputError for unequal sizes (with the first file that differs) and where no image can be read."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise InputError("images need Pillow: pip install 'fedroute[vision]'") from None

    x: NDArray[np.uint8] | None = None
    good, grey, bad, first = np.zeros(count, dtype=bool), 0, list[int](), 0
    for i, data in enumerate(images):
        try:
            with Image.open(data if isinstance(data, Path) else io.BytesIO(data or b"")) as opened:
                image: Any = ImageOps.exif_transpose(opened) if "exif" in opened.info else opened
                plain = image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16")
                if plain and image.mode not in ("1", "L", "LA"):
                    image = _eight_bits(image)
                image = image.convert("L" if plain or colour == "grey" else "RGB")
                if size is not None and (image.height, image.width) != tuple(size):
                    image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
                pixels = np.asarray(image)
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError, TypeError, Image.DecompressionBombError):
            bad.append(i)
            continue
        if x is None:
            channels = 3 if colour == "rgb" or pixels.ndim == 3 else 1
            shape = (count, channels, *pixels.shape[:2])
            if (need := math.prod(shape)) > _memory():
                raise InputError(f"{counted(count, 'image')} of {shape[1:]} take {need:,} bytes, more than the machine "
                                 "has; say a smaller `size: [H, W]` or take fewer")  # fmt: skip
            x, first = np.zeros(shape, dtype=np.uint8), i
        if pixels.shape[:2] != x.shape[2:]:
            h, w = pixels.shape[:2]
            raise InputError(f"{where(i)}: is {h} x {w} and {where(first)} is {x.shape[2]} x {x.shape[3]}; say "
                             "`size: [H, W]` to resize all")  # fmt: skip
        if pixels.ndim == 3 and x.shape[1] == 1:  # the first in colour: what came before was grey
            x = np.repeat(x, 3, axis=1)
        x[i] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        good[i] = True
        grey += plain
    listed = ", ".join(map(where, bad[:5])) + (", ..." if len(bad) > 5 else "")
    if x is None:
        raise InputError(f"no image can be read, {len(bad)} cannot: {listed}")
    words = "image cannot be read and was left out", "images cannot be read and were left out"
    notes = [f"{counted(len(bad), *words)}: {listed}"] if bad else []
    if x.shape[1] == 3 and grey:
        notes.append(f"{counted(grey, 'grey image')} among the coloured ones, read as RGB")
    return torch.from_numpy(x), good, notes


def _memory() -> float:
    """Bytes of the machine, where the system says."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf


def _eight_bits(image: Any) -> Any:
    """16 and 32 bit grey, 65535 as white, to 8 bit."""
    from PIL import Image

    values = np.asarray(image, dtype=np.float64)
    return Image.fromarray((values / 257 if values.max(initial=0) > 255 else values).clip(0, 255).astype(np.uint8))


def decode_column(
    column: Any, keep: NDArray[np.bool_], spec: Table, where: Where
) -> tuple[Tensor, NDArray[np.bool_], list[str]]:
    """Images of the rows in `keep`, from a column of encoded bytes (also as Hugging Face writes them), or of raw bytes
    where `spec.shape` is given. (x of the kept rows, good (R,), notes). Raises InputError."""
    import pyarrow as pa

    if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        column = pa.chunked_array([chunk.field("bytes") for chunk in column.chunks])
    t = column.type
    if not (pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_fixed_size_binary(t)):
        raise InputError(f"{where(0)}: column {spec.image!r} (federation.image) holds {t} and not bytes")
    rows = np.flatnonzero(keep)
    column = column.take(pa.array(rows))
    if spec.shape is not None:
        return _raw(column, rows, keep, spec, where)
    images = (data for chunk in column.chunks for data in chunk.to_pylist())
    x, found, notes = decode(images, len(rows), lambda i: where(int(rows[i])), spec.size)
    good = np.zeros(len(keep), dtype=bool)
    good[rows] = found
    return x, good, notes


def _raw(
    column: Any, rows: NDArray[np.int64], keep: NDArray[np.bool_], spec: Table, where: Where
) -> tuple[Tensor, NDArray[np.bool_], list[str]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    shape = [1] * (3 - len(spec.shape or [])) + list(spec.shape or [])
    size = int(np.prod(shape))
    lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy()
    right = lengths == size
    if not right.any():
        raise InputError(f"{where(int(rows[0]))}: column {spec.image!r} has {lengths[0]} bytes and federation.shape "
                         f"{spec.shape} needs {size}; mend the shape, or leave it out for JPEG and PNG")  # fmt: skip
    values = column.filter(pa.array(right)).cast(pa.large_binary()).combine_chunks()
    start = values.offset * size
    flat = np.frombuffer(values.buffers()[2], dtype=np.uint8)[start : start + int(right.sum()) * size]
    x = torch.zeros(len(rows), *shape, dtype=torch.uint8)
    x[torch.from_numpy(right)] = torch.tensor(flat).reshape(-1, *shape)
    good = np.zeros(len(keep), dtype=bool)
    good[rows] = right
    wrong = int((~right).sum())
    words = f"image does not have {size} bytes and was", f"images do not have {size} bytes and were"
    return x, good, [f"{counted(wrong, *words)} left out"] if wrong else []
