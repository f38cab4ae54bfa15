"""What a source hands over: rows as read, before clients are split and a table is encoded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null")
"""Marks of a missing value that need not be declared."""


def canonical(value: object) -> str:
    """The name of a value: 1.0 and 1 are the same name."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def by_value(name: str) -> tuple[int, float, str]:
    """A sort key: numbers by value, then words."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


@dataclass(frozen=True)
class Names:
    """R names as codes: kinds[codes[r]], or missing where the code is -1."""

    kinds: tuple[str, ...]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, values: Sequence[object] | NDArray[Any]) -> Self:
        """Kinds in order of value: 2 before 10, numbers before words. None is missing, and so are "" and NaN."""
        import pyarrow as pa

        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.Array) and pa.types.is_floating(values.type):
            values = values.to_numpy(zero_copy_only=False)  # with gaps as NaN
        array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
        coded = array.dictionary_encode()
        called = ["" if v is None else canonical(v) for v in coded.dictionary.to_pylist()]
        kinds = tuple(sorted({*called} - {""}, key=by_value))
        place = {c: i for i, c in enumerate(kinds)} | {"": -1}
        new = np.array([*(place[c] for c in called), -1], dtype=np.int64)
        codes = coded.indices.fill_null(len(called)).to_numpy(zero_copy_only=False)
        return cls(kinds, new[codes])

    @property
    def known(self) -> Mask:
        """(R,) whether a row has a name."""
        found: Mask = self.codes >= 0
        return found

    def where(self, keep: Mask) -> Self:
        """The names of the rows in `keep`."""
        return type(self)(self.kinds, self.codes[keep])

    def floats(self) -> Floats:
        """(R,) the names as numbers, NaN where missing. Raises ValueError for a name that is no number."""
        return np.array([*map(float, self.kinds), np.nan])[self.codes]

    def objects(self) -> NDArray[np.object_]:
        """(R,) of str; no name may be missing."""
        return np.array([*self.kinds, None], dtype=object)[self.codes]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """R rows. x: (R, ...) tensor, or None and `table`: a pyarrow Table of float64 and string columns, null where
    missing. label: names, whose kinds in their order are the classes, or (R,) numbers to regress; client: names, or
    None for data to be partitioned; time: (R,)."""

    name: str
    label: Names | Floats
    x: Tensor | None = None
    table: Any = None
    client: Names | None = None
    time: Floats | None = None
    notes: tuple[str, ...] = ()
