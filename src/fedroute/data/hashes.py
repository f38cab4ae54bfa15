"""A hash of each row of a table as it was read, by which it is known again whatever the other clients' rows are."""

import hashlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint64]
ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of splitmix64 (Steele, Lea and Flood 2014)


def row_hashes(table: Any) -> Tensor:
    """(R,) int64 of a pyarrow Table with columns float64 or string: equal for equal rows, and by chance for others once
    in 2^64. Encoding a table mixes in the statistics of all; this does not."""
    found = np.zeros(table.num_rows, np.uint64)
    for column in table.columns:
        found = _mixed(found ^ _column(column))
    return torch.from_numpy(found.view(np.int64).copy())


def _column(column: Any) -> Words:
    """(R,), the bits of numbers, hashes of names; a gap is one value of its own."""
    import pyarrow as pa

    if pa.types.is_floating(column.type):
        values = column.to_numpy() + 0.0  # -0 becomes 0
        bits: Words = np.where(np.isnan(values), np.nan, values).view(np.uint64)
        return bits
    coded = column.combine_chunks().dictionary_encode()
    names = [hashlib.blake2b(str(n).encode(), digest_size=8).digest() for n in coded.dictionary.to_pylist()]
    hashes = np.frombuffer(b"".join([*names, bytes(8)]), np.uint64)
    place: Words = hashes[coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    return place


def _mixed(h: Words) -> Words:
    h = h + np.uint64(ODD[0])
    for shift, factor in zip((30, 27), ODD[1:], strict=True):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h ^ (h >> np.uint64(31))
