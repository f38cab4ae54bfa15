"""A file of queries from outside: rows of the same form as a federation's, that nobody in particular owns.

A query is encoded with the statistics of all clients together, never with a client's own: what a router reads of it may
not depend on who owns it."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedroute.data.columns import times_of
from fedroute.data.federation import Federation
from fedroute.data.load import checked_source
from fedroute.data.rows import Mask
from fedroute.data.sources.csv_files import first_cells, read_csv
from fedroute.data.sources.decode import decode, decode_column
from fedroute.data.sources.images import ENDINGS
from fedroute.data.spec import Csv, Source, Table, nearest
from fedroute.data.table import TableSchema
from fedroute.errors import InputError
from fedroute.words import count, then

PARQUET, ARRAYS = (".parquet", ".pq"), (".npz", ".npy")
MENDS = {
    r"say `encoding: .*": "save the queries as UTF-8",
    r"give a file with rows or leave the client out": "give a line of column names and a row for each query",
    r", or give `columns: .*": "",
    r", put quotes (.*), or give `delimiter: .*": r", or put quotes \1",
    r"; say `decimal: .*": "; write 1234.5, without a sign between thousands",
}
"""Mends of a client's file, which has a config in which things can be said -> those of a file of queries."""


class QueryForm(BaseModel):
    """What a query must be. shape: of a row of x; whole: whether x was uint8, pixels read as 0..1; table: of a
    federation that is a table, its columns. JSON: `model_dump_json`, `model_validate_json`."""

    model_config = ConfigDict(frozen=True)
    shape: tuple[int, ...]
    whole: bool = False
    table: TableSchema | None = None

    @classmethod
    def of(cls, federation: Federation) -> Self:
        return cls(shape=tuple(federation.x.shape[1:]), whole=federation.x.dtype == torch.uint8, table=federation.table)

    def encode(self, queries: Any) -> Tensor:
        """x (B, ...) as the models take it: a tensor of such rows, checked; of a table (pyarrow, column -> values, rows
        column -> value, or one such row) its columns, filled and scaled by the statistics of all clients together.

        Raises InputError for what the models cannot take."""
        if not isinstance(queries, Tensor) and self.table is not None:
            if isinstance(queries, str) or not (
                isinstance(queries, Mapping | Sequence) or hasattr(queries, "column_names")
            ):
                raise InputError(f"the queries: a {type(queries).__name__} is no table; give column -> values, or rows")
            try:
                queries = self.table.encode(queries)
            except InputError as e:
                mend = "; give a number, or None where it is not known" if str(e).endswith("number") else ""
                raise InputError(f"the queries: {e}{mend}") from None
        try:
            x = torch.as_tensor(queries)
        except (TypeError, ValueError, RuntimeError) as e:
            raise InputError(
                f"the queries: {type(queries).__name__} cannot be read as numbers ({e}); give a tensor of rows"
            ) from None
        return self.checked(x)

    def checked(self, x: Tensor, where: str = "the queries") -> Tensor:
        """x (B, ...) as the models take it: float32, or uint8 where pixels are bytes.

        Raises InputError for rows of another shape, NaN or Inf, or pixels that are neither bytes nor in 0..1."""
        if not x.ndim or tuple(x.shape[1:]) != self.shape:
            raise InputError(f"{where}: has shape {tuple(x.shape)}, and the models were trained on rows of "
                             f"{self.shape}; give ({', '.join(['queries', *map(str, self.shape)])})")  # fmt: skip
        if x.is_complex():
            raise InputError(f"{where}: holds {x.dtype}; give real numbers")
        if x.is_floating_point():
            if not bool((good := torch.isfinite(x).reshape(len(x), math.prod(self.shape)).all(1)).all()):
                row = int((~good).nonzero()[0]) + 1
                raise InputError(f"{where}: row {row} has NaN or Inf; fill it, or leave the row out")
            if self.whole and len(x) and not 0 <= float(x.min()) <= float(x.max()) <= 1:
                raise InputError(f"{where}: pixels from {float(x.min()):g} to {float(x.max()):g}; give them as uint8, "
                                 "or in 0..1")  # fmt: skip
            return x.float()
        if self.whole and x.dtype != torch.uint8:
            if len(x) and not 0 <= int(x.min()) <= int(x.max()) <= 255:
                raise InputError(f"{where}: pixels from {int(x.min())} to {int(x.max())}; give them in 0..255")
            return x.to(torch.uint8)
        return x if self.whole else x.float()


def read_queries(path: Path, form: QueryForm, source: Mapping[str, Any] | None = None) -> tuple[Tensor, list[str]]:
    """(x (B, ...), notes) of a file: CSV or Parquet with the columns of a table, .npz or .npy with arrays, Parquet with
    a column of images, an image, or a folder of them (sorted by path).

    source: the `federation:` part of the config that the models were trained with; it says how its CSV files are
    written, what its column of images is called, and whether a column that is not there is filled. Columns that the
    models do not read, the label among them, are ignored. Raises InputError with the file, the column and the mend."""
    spec = None if source is None else checked_source(source)
    if not path.exists():
        near = nearest(path.name, sorted(p.name for p in path.parent.iterdir())) if path.parent.is_dir() else ""
        raise InputError(f"{path}: no such file{near}")
    ending = (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()
    notes = list[str]()
    if ending in (".yaml", ".yml"):
        raise InputError(f"{path}: is a YAML file and holds no queries; give the file of rows that it may name")
    if form.table is not None:
        if ending in ARRAYS or path.is_dir():
            raise InputError(f"{path}: the models were trained on a table; give CSV or Parquet with its columns")
        try:
            found = _parquet(path) if ending in PARQUET else _csv(path, form.table, spec)
        except InputError as e:
            told = str(e)
            for mend, instead in MENDS.items():
                told = re.sub(mend, instead, told)
            raise InputError(told) from None
        return _table(path, found, form.table, spec, notes), notes
    if path.is_dir() or ending in ENDINGS:
        x = _images(path, form, spec)
    elif ending in PARQUET and isinstance(spec, Table) and spec.image:
        x = _image_column(path, _parquet(path), spec)
    elif ending in ARRAYS:
        x = _array(path, getattr(spec, "x", "x"))
        if x.ndim == len(form.shape) and len(form.shape) == 3 and form.shape[0] == 1:
            x = x[:, None]  # images without channels
        elif x.ndim == 4 and tuple(x.shape[3:] + x.shape[1:3]) == form.shape != tuple(x.shape[1:]):
            x = x.permute(0, 3, 1, 2).contiguous()
    else:
        raise InputError(f"{path}: cannot be read as queries; the models were trained on rows of {form.shape}: give "
                         "arrays (.npz with x, or .npy), images, or the Parquet file of images")  # fmt: skip
    if not len(x):
        raise InputError(f"{path}: holds no query; give a row for each")
    if x.dtype == torch.uint8 and not form.whole and ending not in ARRAYS:
        x = x.float() / 255
        notes.append(f"{path}: the models were trained on numbers, and pixels are read as 0..1")
    return form.checked(x, str(path)), notes


# tables


def _parquet(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_table(path)
    except (pa.ArrowException, OSError) as e:
        raise InputError(f"{path}: cannot be read as Parquet ({str(e).splitlines()[0]})") from None


def _csv(path: Path, schema: TableSchema, spec: Source | None) -> Any:
    """A table of strings. Without a line of names the columns are those of the training files, with or without label,
    client and time."""
    own = spec if isinstance(spec, Csv) else Csv(source="csv", label="")
    plain = own.model_copy(update={"columns": None, "header": True})
    first = first_cells(path, plain, str(path))
    if own.columns and not {*first} & {*schema.numeric, *schema.categorical}:
        aside = {own.label, own.client, own.time}
        for names in (own.columns, [c for c in own.columns if c != own.label],
                      [c for c in own.columns if c not in aside]):  # fmt: skip
            if len(names) == len(first):
                return read_csv(path, own.model_copy(update={"columns": names, "header": False}), str(path))
    return read_csv(path, plain, str(path))


def _table(path: Path, found: Any, schema: TableSchema, spec: Source | None, notes: list[str]) -> Tensor:
    wanted = (*schema.numeric, *schema.categorical)
    if lacking := [c for c in wanted if c not in found.column_names]:
        if not (isinstance(spec, Table) and spec.missing_columns == "fill"):
            near = nearest(lacking[0], found.column_names)
            mend = f"a query has the columns {', '.join(wanted)}; leave the cell empty where a value is not known"
            raise InputError(then(f"{path}: no column {lacking[0]!r}{near}", mend))
        notes.append(f"{path}: no column {', '.join(lacking)}: taken as missing")
    if not found.num_rows:
        raise InputError(f"{path}: holds no query; give a row for each")
    rows: dict[str, list[Any]] = {c: [None] * found.num_rows for c in lacking}
    for c in wanted:
        if c not in rows:
            rows[c] = _values(path, found[c], c, schema.categorical.get(c))
    try:
        x = schema.encode(rows)
    except InputError as e:
        told = re.sub(r"\brow (\d+)", lambda m: f"row {int(m[1]) + 1}", str(e))  # for people rows count from 1
        raise InputError(f"{path}: {told}; give a number, or leave the cell empty where it is not known") from None
    notes += _not_given(path, rows)
    for k, (c, names) in enumerate(schema.categorical.items()):
        unseen = (x[:, k - len(schema.categorical)] == len(names)).nonzero().flatten().tolist()
        if unseen:
            notes.append(f"{path}: column {c!r}: {count(len(unseen), 'value')} that no client had in training, such as "
                         f"{rows[c][unseen[0]]!r}")  # fmt: skip
    return x


def _not_given(path: Path, rows: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Queries of which nothing is known."""
    bare = [k for k, row in enumerate(zip(*rows.values(), strict=True), 1) if all(_blank(v) for v in row)]
    if bare:
        yield (
            f"{path}: row {bare[0]}{' and others' if len(bare) > 1 else ''}: no value is given; where a client is "
            "found for it all the same, it answers as to an average case"
        )


def _blank(value: Any) -> bool:
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or (isinstance(value, str) and not value.strip())


def _values(path: Path, column: Any, name: str, names: tuple[str, ...] | None) -> list[Any]:
    """As training read them: dates as days, names without the .0 of a number that is one."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_temporal(column.type):
        days = (times_of(column, name, lambda row: f"{path}, row {row + 1}") / 86400).tolist()
        return [None if np.isnan(d) else d for d in days]
    values: list[Any] = column.to_pylist()
    if names is None:
        return values
    return [plain_name(v, names) if isinstance(v, str) else v for v in values]


def plain_name(value: str, names: tuple[str, ...]) -> str:
    """A name without the .0 of a number that is one, as training read it, unless it is a name with it."""
    text = value.strip()
    head, dot, zeros = text.partition(".")
    return head if text not in names and dot and head.lstrip("+-").isdigit() and not zeros.strip("0") else text


# arrays and images


def _array(path: Path, name: str) -> Tensor:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            found = loaded
        else:
            with loaded as file:
                if name not in file:
                    mend = f"give the queries as {name!r}"
                    raise InputError(then(f"{path}: no array {name!r}{nearest(name, file)}", mend))
                found = file[name]
    except InputError:
        raise
    except Exception as e:  # a damaged archive raises whatever its bytes lead to
        why = (str(e).splitlines() or [type(e).__name__])[0]
        raise InputError(f"{path}: cannot be read as arrays ({why}); save plain numbers with numpy.savez") from None
    if found.dtype.kind not in "biuf":
        raise InputError(f"{path}: {name} holds {found.dtype}, which is no number")
    if not found.ndim:
        raise InputError(f"{path}: {name} is one number; give a row for each query")
    return torch.from_numpy(np.ascontiguousarray(found.astype(_known(found.dtype))))


def _known(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type that torch has, in the machine's byte order."""
    if dtype.kind == "f":
        return np.dtype(np.float64 if dtype.itemsize > 4 else np.float32)
    return np.dtype(np.uint8 if dtype == np.uint8 or dtype.kind == "b" else np.int64)


def _images(path: Path, form: QueryForm, spec: Source | None) -> Tensor:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix.lower() in ENDINGS)
    if not files:
        raise InputError(f"{path}: has no images ({', '.join(sorted(ENDINGS))})")
    size, colour = getattr(spec, "size", None), "rgb" if form.shape[:1] == (3,) else "grey"
    x, good, notes = decode(files, len(files), lambda i: str(files[i]), size, colour)
    return _all(path, x, good, notes)


def _image_column(path: Path, found: Any, spec: Table) -> Tensor:
    assert spec.image
    if spec.image not in found.column_names:
        near = nearest(spec.image, found.column_names)
        raise InputError(then(f"{path}: no column {spec.image!r}{near}", "it holds the images"))
    if not found.num_rows:
        raise InputError(f"{path}: holds no query; give a row for each")
    keep = np.ones(found.num_rows, dtype=bool)
    x, good, notes = decode_column(found[spec.image], keep, spec, lambda row: f"{path}, row {row + 1}")
    return _all(path, x, good, notes)


def _all(path: Path, x: Tensor, good: Mask, notes: list[str]) -> Tensor:
    """Raises InputError unless every image could be read: an answer must belong to its query."""
    if not good.all():
        raise InputError(f"{path}: {notes[0]}; mend or remove what cannot be read")
    return x
