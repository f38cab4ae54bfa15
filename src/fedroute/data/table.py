"""Tables as tensors: what the columns mean, how gaps are filled, and how a later query is encoded the same way."""

from collections.abc import Container, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedroute.data.rows import MISSING, canonical
from fedroute.data.spec import nearest
from fedroute.errors import InputError

Floats = NDArray[np.float64]


class Statistics(BaseModel):
    """From training rows, gaps left out. fill: medians; mean, scale (standard deviation, 1 where constant) of the
    numeric columns; common: the most frequent name of the categorical ones (the first by name of equals)."""

    model_config = ConfigDict(frozen=True)
    fill: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    common: tuple[str, ...]


class TableSchema(BaseModel):
    """x has the numeric columns, standardised (and cut off at a million deviations); then a 0/1 flag for each column
    of `flags`, 1 where the value was missing; then the categorical columns as codes: the place of the name among
    `categorical[column]` (sorted), or one more for a name that no training row of any client had. missing: the values
    that mean "missing" in a column, besides the usual marks. JSON: `model_dump_json`, `model_validate_json`."""

    model_config = ConfigDict(frozen=True)
    numeric: tuple[str, ...]
    flags: tuple[str, ...]
    categorical: dict[str, tuple[str, ...]]
    federated: Statistics
    clients: dict[str, Statistics] = {}  # where each client uses its own
    missing: dict[str, tuple[str, ...]] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of x."""
        return (*self.numeric, *(f"{c} missing" for c in self.flags), *self.categorical)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """How many codes each categorical column has, the one for unseen names included. These are the last columns
        of x, in this order."""
        return tuple(len(names) + 1 for names in self.categorical.values())

    @classmethod
    def fit(
        cls,
        table: Any,
        train: Tensor,
        clients: Mapping[str, Tensor] | None = None,
        missing: Mapping[str, Sequence[object]] | None = None,
    ) -> Self:
        """table: a pyarrow Table of R rows, columns float64 (numeric) or string (categorical), null where missing;
        train: the training rows; clients: name -> its training rows, where each is to use its own statistics (what a
        client has no value for comes from the others); missing: column -> the values that mean "missing" in a later
        query, as they did when the table was read."""
        import pyarrow as pa

        numeric = tuple(c for c in table.column_names if pa.types.is_floating(table.schema.field(c).type))
        names = tuple(c for c in table.column_names if c not in numeric)
        seen = table.take(train.numpy())
        flags = tuple(c for c in (*numeric, *names) if seen[c].null_count)
        categorical = {c: tuple(sorted(v for v in seen[c].unique().to_pylist() if v is not None)) for c in names}
        whole = _statistics(seen, numeric, names, None)
        own = {c: _statistics(table.take(rows.numpy()), numeric, names, whole) for c, rows in (clients or {}).items()}
        marks = {c: tuple(map(canonical, v)) for c, v in (missing or {}).items() if c in table.column_names and v}
        return cls(
            numeric=numeric, flags=flags, categorical=categorical, federated=whole, clients=own, missing=marks
        )  # fmt: skip

    def encode(self, rows: Any, client: Sequence[str] | str | None = None) -> Tensor:
        """(R, F) float32. rows: a pyarrow Table as for `fit`, a mapping column -> values, or a sequence of mappings
        column -> value; None, NaN, "", "?", NA and the values of
        `missing` are missing; columns that x does not use are ignored. client: whose
        statistics to use (a name, or one per row) where clients use their own; those of the federation otherwise, so
        that the encoding of a query never depends on who owns it.

        Raises InputError for a column that is not there and for a word where a number must be."""
        table = self._table(rows)
        r = table.num_rows
        raw = np.stack([_column(table[c]) for c in self.numeric], 1) if self.numeric else np.empty((r, 0))
        stats, who = self._whose(client, r)
        gap = np.isnan(raw)
        fill, mean, scale = (np.array([getattr(s, k) for s in stats])[who] for k in ("fill", "mean", "scale"))
        with np.errstate(over="ignore"):  # a value a million deviations away says no more than that
            values = ((np.where(gap, fill, raw) - mean) / scale).clip(-1e6, 1e6)
        missing = dict(zip(self.numeric, gap.T, strict=True))
        codes = []
        for k, (c, names) in enumerate(self.categorical.items()):
            code, missing[c] = _codes(table[c], names)
            common = np.array([_place(s.common[k], names) for s in stats])[who]
            codes.append(np.where(missing[c], common, code))
        flags = [missing[c] for c in self.flags]
        x = np.concatenate([values, *(np.asarray(v, dtype=np.float64)[:, None] for v in (*flags, *codes))], 1)
        return torch.from_numpy(x.astype(np.float32))

    def _whose(self, client: Sequence[str] | str | None, r: int) -> tuple[list[Statistics], NDArray[np.int64]]:
        """The statistics to choose from, and which of them each row uses: (R,), or (1,) for all rows."""
        if client is None or not self.clients:
            return [self.federated], np.zeros(1, dtype=np.int64)
        names = sorted(self.clients)
        found, code = np.unique(np.asarray([client] if isinstance(client, str) else client, str), return_inverse=True)
        for c in found.tolist():
            if c not in self.clients:
                raise InputError(f"client {c!r} has no statistics of its own{nearest(c, names)}")
        return [self.clients[c] for c in found.tolist()], code

    def _table(self, rows: Any) -> Any:
        import pyarrow as pa

        needed = (*self.numeric, *self.categorical)
        if isinstance(rows, Sequence):
            for i, row in enumerate(rows):
                for c in needed:
                    if c not in row:
                        raise InputError(f"row {i}: column {c!r} is not there{nearest(c, row)}")
            rows = {c: [row[c] for row in rows] for c in needed}
        elif not isinstance(rows, Mapping):
            rows = {c: rows[c] for c in rows.column_names} if isinstance(rows, pa.Table) else rows
        for c in needed:
            if c not in rows:
                raise InputError(f"column {c!r} is not there{nearest(c, rows)}")
        gone = {c: {*MISSING, *self.missing.get(c, ())} for c in needed}
        typed = {c: _numbers(c, rows[c], gone[c]) for c in self.numeric}
        typed |= {c: _names(rows[c], gone[c]) for c in self.categorical}
        return pa.table(typed)


def _statistics(seen: Any, numeric: Sequence[str], names: Sequence[str], other: Statistics | None) -> Statistics:
    """Of a table of training rows; what has no value at all is `other`'s, or 0, 0, 1 and ""."""
    fill, mean, scale = list[float](), list[float](), list[float]()
    common = list[str]()
    for k, c in enumerate(numeric):
        v = _column(seen[c])
        v = v[~np.isnan(v)]
        if len(v) == 0:
            found = (other.fill[k], other.mean[k], other.scale[k]) if other else (0.0, 0.0, 1.0)
        else:
            spread = float(v.std())
            constant = spread <= 1e-12 * max(1e-300, float(np.abs(v).max()))
            found = (float(np.median(v)), float(v.mean()), 1.0 if constant else spread)
        for kept, value in zip((fill, mean, scale), found, strict=True):
            kept.append(value)
    for k, c in enumerate(names):
        counts = [(-n["counts"], n["values"]) for n in seen[c].value_counts().to_pylist() if n["values"] is not None]
        common.append(min(counts)[1] if counts else other.common[k] if other else "")
    return Statistics(fill=tuple(fill), mean=tuple(mean), scale=tuple(scale), common=tuple(common))


def _column(column: Any) -> Floats:
    found: Floats = column.to_numpy()
    return found


def _codes(column: Any, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    place = pc.fill_null(pc.index_in(column, value_set=pa.array(names, pa.string())), len(names))
    return place.to_numpy().astype(np.int64), column.is_null().to_numpy().astype(bool)


def _place(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def _numbers(name: str, values: Any, gone: Container[str]) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray | pa.Array) and pa.types.is_floating(values.type):
        return values
    found: list[float | None] = []
    for i, v in enumerate(values.to_pylist() if isinstance(values, pa.ChunkedArray | pa.Array) else values):
        if v is None or canonical(v) in gone:
            found.append(None)
            continue
        try:
            number = float(v)
        except (TypeError, ValueError):
            raise InputError(f"column {name!r}, row {i}: {v!r} is not a number") from None
        found.append(None if not abs(number) <= 1e30 or canonical(number) in gone else number)
    return pa.array(found, pa.float64())


def _names(values: Any, gone: Container[str]) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray | pa.Array) and pa.types.is_string(values.type):
        return values
    listed = values.to_pylist() if isinstance(values, pa.ChunkedArray | pa.Array) else values
    named = [None if v is None else canonical(v) for v in listed]
    return pa.array([None if v in gone else v for v in named], pa.string())
