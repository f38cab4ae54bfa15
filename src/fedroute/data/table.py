"""Tables as tensors: what the columns mean, how gaps are filled, and how a later query is encoded the same way."""

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedroute.data.exact import Moments, median
from fedroute.data.rows import MISSING, canonical
from fedroute.data.spec import nearest
from fedroute.errors import InputError

Floats = NDArray[np.float64]
MOST = 1e30  # beyond which a number is none


class Statistics(BaseModel):
    """From training rows, gaps left out. fill: medians; mean, scale (standard deviation, 1 where constant) of the
    numeric columns, rounded once from exact sums (`data.exact`), so that the same rows have the same statistics however
    they are dealt to clients; common: the most frequent name of the categorical ones (the first by name of equals)."""

    model_config = ConfigDict(frozen=True)
    fill: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    common: tuple[str, ...]


class TableSchema(BaseModel):
    """x has the numeric columns, standardised (and cut off at a million deviations); then a 0/1 flag for each column
    of `flags`, 1 where the value was missing; then the categorical columns as codes: the place of the name among
    `categorical[column]` (sorted), or one more for a name that no training row of any client had. missing: the values
    that mean "missing" in a column, besides the usual marks. optional: whether a query over HTTP may leave columns out,
    which are then missing, as they are where a client has none (`missing_columns: fill`).
    JSON: `model_dump_json`, `model_validate_json`."""

    model_config = ConfigDict(frozen=True)
    numeric: tuple[str, ...]
    flags: tuple[str, ...]
    categorical: dict[str, tuple[str, ...]]
    federated: Statistics
    clients: dict[str, Statistics] = {}  # where each client uses its own
    missing: dict[str, tuple[str, ...]] = {}
    optional: bool = False

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
        optional: bool = False,
    ) -> Self:
        """table: a pyarrow Table of R rows, columns float64 (numeric) or string (categorical), null where missing;
        train: the training rows; clients: name -> its training rows, where each is to use its own statistics (what a
        client has no value for comes from the others); missing: column -> the values that mean "missing" in a later
        query, as they did when the table was read; optional: as of the schema."""
        import pyarrow as pa

        numeric = tuple(c for c in table.column_names if pa.types.is_floating(table.schema.field(c).type))
        names = tuple(c for c in table.column_names if c not in numeric)
        seen = table.take(train.numpy())
        flags = tuple(c for c in (*numeric, *names) if seen[c].null_count)
        categorical = {c: tuple(sorted(v for v in seen[c].unique().to_pylist() if v is not None)) for c in names}
        whole = statistics_of(seen, numeric, names)
        own = {c: statistics_of(table.take(rows.numpy()), numeric, names, whole) for c, rows in (clients or {}).items()}
        marks = {c: tuple(map(canonical, v)) for c, v in (missing or {}).items() if c in table.column_names and v}
        return cls(
            numeric=numeric, flags=flags, categorical=categorical, federated=whole, clients=own, missing=marks,
            optional=optional,
        )  # fmt: skip

    def encode(self, rows: Any, client: Sequence[str] | str | None = None) -> Tensor:
        """(R, F) float32. rows: a pyarrow Table as for `fit`, a mapping column -> values, a sequence of mappings
        column -> value, or one such mapping for one row; None, NaN, "", "?", NA and the values of
        `missing` are missing; columns that x does not use are ignored. client: whose
        statistics to use (a name, or one per row) where clients use their own; those of the federation otherwise, so
        that the encoding of a query never depends on who owns it.

        Raises InputError for a column that is not there, for a word where a number must be, for a number that is
        infinite or beyond 1e30, and for columns of different lengths."""
        table = self._table(rows)
        r = table.num_rows
        raw = np.stack([_column(table[c]) for c in self.numeric], 1) if self.numeric else np.empty((r, 0))
        return self._x(raw, [_codes(table[c], names) for c, names in self.categorical.items()], *self._whose(client, r))

    def encode_known(self, rows: Mapping[str, Sequence[Any]]) -> Tensor:
        """(R, F) float32, what `encode` makes of the same rows as queries, in a fraction of its time where they are
        few: of each column values that need no look any more, numbers or names, None where missing."""
        columns = [[np.nan if v is None else v for v in rows[c]] for c in self.numeric]
        r = len(next(iter(rows.values())))
        raw = np.array(columns, dtype=np.float64).T if columns else np.empty((r, 0))
        codes = [
            (
                np.array([_places(names).get(v, len(names)) for v in rows[c]], dtype=np.int64),
                np.array([v is None for v in rows[c]], dtype=np.bool_),
            )
            for c, names in self.categorical.items()
        ]
        return self._x(raw, codes, [self.federated], np.zeros(1, dtype=np.int64))

    def _x(
        self,
        raw: Floats,
        coded: Sequence[tuple[NDArray[np.int64], NDArray[np.bool_]]],
        stats: Sequence[Statistics],
        who: NDArray[np.int64],
    ) -> Tensor:
        """(R, F). raw: (R, numeric), NaN where missing; coded: of each categorical column its codes, and what is
        missing; stats, who: as of `_whose`."""
        gap = np.isnan(raw)
        fill, mean, scale = (np.array([getattr(s, k) for s in stats])[who] for k in ("fill", "mean", "scale"))
        with np.errstate(over="ignore"):  # a value a million deviations away says no more than that
            values = ((np.where(gap, fill, raw) - mean) / scale).clip(-1e6, 1e6)
        missing = dict(zip(self.numeric, gap.T, strict=True))
        codes = []
        for k, (c, names) in enumerate(self.categorical.items()):
            code, missing[c] = coded[k]
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
        if isinstance(rows, Mapping) and rows and all(map(_alone, rows.values())):
            rows = [rows]
        if isinstance(rows, Sequence):
            for i, row in enumerate(rows):
                if not isinstance(row, Mapping):
                    raise InputError(f"row {i}: a {type(row).__name__} is no row; give column -> value")
                for c in needed:
                    if c not in row:
                        raise InputError(f"row {i}: column {c!r} is not there{nearest(c, row)}")
            rows = {c: [row[c] for row in rows] for c in needed}
        elif not isinstance(rows, Mapping):
            rows = {c: rows[c] for c in rows.column_names} if isinstance(rows, pa.Table) else rows
        for c in needed:
            if c not in rows:
                raise InputError(f"column {c!r} is not there{nearest(c, rows)}")
            if _alone(rows[c]):
                raise InputError(f"column {c!r}: is one value and others are several; give a value for each row")
            if len(rows[c]) != len(rows[needed[0]]):
                raise InputError(f"column {c!r}: has {len(rows[c])} values and {needed[0]!r} {len(rows[needed[0]])}; "
                                 "give a value for each row")  # fmt: skip
        gone = {c: {*MISSING, *self.missing.get(c, ())} for c in needed}
        typed = {c: _numbers(c, rows[c], gone[c]) for c in self.numeric}
        typed |= {c: _names(rows[c], gone[c]) for c in self.categorical}
        return pa.table(typed)


def _alone(value: Any) -> bool:
    """Whether it is one value and no column of values."""
    return isinstance(value, str | bytes) or getattr(value, "ndim", 1) == 0 or not hasattr(value, "__len__")


def statistics_of(
    seen: Any, numeric: Sequence[str], names: Sequence[str], other: Statistics | None = None
) -> Statistics:
    """Of a table of training rows; what has no value at all is `other`'s, or 0, 0, 1 and ""."""
    values = [known(seen[c]) for c in numeric]
    found = [(median(v), Moments.of(v)) if len(v) else None for v in values]
    return summed_up(found, [name_counts(seen[c]) for c in names], other)


def summed_up(
    numeric: Sequence[tuple[float, Moments] | None],
    names: Sequence[Mapping[str, int]],
    other: Statistics | None = None,
) -> Statistics:
    """numeric: the median and moments of each numeric column, None where it has no value; names: how often each name of
    a categorical column occurs. What has no value at all is `other`'s, or 0, 0, 1 and ""."""
    rows = list[tuple[float, float, float]]()
    for k, of in enumerate(numeric):
        none = (other.fill[k], other.mean[k], other.scale[k]) if other else (0.0, 0.0, 1.0)
        rows.append((of[0], of[1].mean, of[1].deviation or 1.0) if of else none)
    common = [
        min((-n, name) for name, n in counts.items())[1] if counts else other.common[k] if other else ""
        for k, counts in enumerate(names)
    ]
    fill, mean, scale = zip(*rows, strict=True) if rows else ((), (), ())
    return Statistics(fill=fill, mean=mean, scale=scale, common=tuple(common))


def known(column: Any) -> Floats:
    """The numbers of a numeric column, gaps left out."""
    v = _column(column)
    return v[~np.isnan(v)]


def name_counts(column: Any) -> dict[str, int]:
    """How often each name of a categorical column occurs, gaps left out."""
    return {n["values"]: n["counts"] for n in column.value_counts().to_pylist() if n["values"] is not None}


def _column(column: Any) -> Floats:
    found: Floats = column.to_numpy()
    return found


def _codes(column: Any, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    place = pc.fill_null(pc.index_in(column, value_set=pa.array(names, pa.string())), len(names))
    return place.to_numpy().astype(np.int64), column.is_null().to_numpy().astype(bool)


@lru_cache(1024)
def _places(names: tuple[str, ...]) -> dict[str, int]:
    """Name -> its code."""
    return {name: k for k, name in enumerate(names)}


def _place(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def _numbers(name: str, values: Any, gone: Container[str]) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray | pa.Array) and pa.types.is_floating(values.type):
        endless = np.flatnonzero(np.abs(_column(values)) > MOST)
        if len(endless):
            raise _no_number(name, int(endless[0]), float(_column(values)[endless[0]]))
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
        if abs(number) > MOST:
            raise _no_number(name, i, v)
        found.append(None if np.isnan(number) or canonical(number) in gone else number)
    return pa.array(found, pa.float64())


def _no_number(name: str, row: int, value: object) -> InputError:
    return InputError(f"column {name!r}, row {row}: {value!r} is beyond {MOST:g}, no finite number")


def _names(values: Any, gone: Container[str]) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray | pa.Array) and pa.types.is_string(values.type):
        return values
    listed = values.to_pylist() if isinstance(values, pa.ChunkedArray | pa.Array) else values
    named = [None if v is None else canonical(v) for v in listed]
    return pa.array([None if v in gone else v for v in named], pa.string())
