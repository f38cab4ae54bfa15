"""A site's own file, as DATA.yaml says where it lies and how it is written."""

from collections.abc import Collection
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from fedroute.data.columns import names_of
from fedroute.data.look import textual
from fedroute.data.rows import Names, Rows, canonical
from fedroute.data.sources.files import listed
from fedroute.data.sources.tables import File, Files, read_file
from fedroute.data.spec import Csv, Parquet, Table, nearest
from fedroute.errors import InputError
from fedroute.federation.own_labels import called_here
from fedroute.federation.site_spec import DataSpec, Whose
from fedroute.words import then

WRITTEN = ("delimiter", "decimal", "header", "columns", "encoding")  # how a CSV file is written


def files_of(data: DataSpec, spec: Csv | Parquet, base: Path, client: str) -> Files:
    if data.path is None:
        raise InputError("path: not given; say where this site's table lies: `path: visits.csv`")
    shared = {k: getattr(spec, k) for k in Table.model_fields if k in spec.model_fields_set}
    written = {k: getattr(spec, k) for k in WRITTEN} if isinstance(spec, Csv) else {}
    written |= {k: v for k in WRITTEN if (v := getattr(data, k)) is not None}
    shared |= {"path": None, "paths": None, "client": data.client.column if data.client else None}
    if data.rename:
        shared["features"] = None  # what is needed goes by other names in the file
    own: Csv | Parquet
    if (data.source or spec.source) == "csv":
        own = Csv.model_validate(shared | written | {"source": "csv"})
    else:
        own = Parquet.model_validate(shared | {"source": "parquet"})
    found = [File(None, path, read_file(None, path, own)) for _, path in listed(data.path, base)]
    aside = {spec.label, spec.client, spec.time}
    files = [replace(f, table=_own(_renamed(f, data), f, data, client, aside)) for f in found]
    files = [replace(f, table=_dropped(f, data.drop)) for f in files]
    needed = {"label": spec.label, "time": spec.time, "image": spec.image}
    for f in files:
        for key, column in needed.items():
            if column and column in data.drop:
                raise InputError(f"{f.path}: column {column!r} is the federation's {key}: take it out of `drop` in "
                                 "DATA.yaml")  # fmt: skip
            if column and column not in f.table.column_names:
                near = nearest(column, f.table.column_names)
                mend = f"or say in DATA.yaml `rename: {{its name: {column}}}`"
                raise InputError(then(f"{f.path}: no column {column!r} (federation.{key}){near}", mend))
    if not sum(f.table.num_rows for f in files):
        raise InputError(f"{files[0].path}: no row is {client}'s; look at `client` in DATA.yaml")
    return _relabelled(Files(files), spec.label, data)


def _dropped(f: File, drop: Collection[str]) -> Any:
    if lacking := [c for c in drop if c not in f.table.column_names]:
        raise InputError(f"{f.path}: no column {lacking[0]!r} (drop){nearest(lacking[0], f.table.column_names)}")
    return f.table.drop_columns([*drop])


def _relabelled(files: Files, label: str, data: DataSpec) -> Files:
    """With the labels as DATA.yaml calls them."""
    import pyarrow as pa

    if not data.label_names:
        return files
    names = called_here(
        names_of(_plain_type(files.column(label)), label, files.where), data.label_names, str(files.files[0].path)
    )
    column, start, found = pa.array(names.objects(), pa.string()), 0, list[File]()
    for f in files.files:
        n, at = f.table.num_rows, f.table.column_names.index(label)
        found.append(replace(f, table=f.table.set_column(at, label, column.slice(start, n))))
        start += n
    return Files(found)


def _renamed(f: File, data: DataSpec) -> Any:
    columns = f.table.column_names
    for old in data.rename:
        if old not in columns:
            raise InputError(f"{f.path}: no column {old!r} (rename){nearest(old, columns)}")
    new = [data.rename.get(c, c) for c in columns]
    if twice := sorted({c for c in new if new.count(c) > 1}):
        raise InputError(f"{f.path}: two columns would be called {twice[0]!r} (rename); choose another name")
    return f.table.rename_columns(new)


def _own(table: Any, f: File, data: DataSpec, client: str, aside: Collection[str | None]) -> Any:
    """The rows that are this site's, without the marks that only this site has for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if data.client and data.client.column:
        column = data.rename.get(data.client.column, data.client.column)
        if column not in table.column_names:
            raise InputError(f"{f.path}: no column {column!r} (client.column){nearest(column, table.column_names)}")
        own = canonical(client if data.client.value is None else data.client.value)
        names = names_of(_plain_type(table[column]), column, lambda row: f"{f.path}, row {row + 1}")
        if own not in names.kinds:
            raise InputError(
                f"{f.path}: no row has {own!r} in column {column!r} (client.value){nearest(own, names.kinds)}"
            )
        table = table.filter(pa.array(names.codes == names.kinds.index(own)))
        if column not in aside:  # which are no features anyway
            table = table.drop_columns([column])
    by_column = data.missing if isinstance(data.missing, dict) else dict.fromkeys(table.column_names, data.missing)
    for c, marks in by_column.items():
        if c not in table.column_names:
            raise InputError(f"{f.path}: no column {c!r} (missing){nearest(c, table.column_names)}")
        if not marks:
            continue
        column, gone = _plain_type(table[c]), {canonical(m) for m in marks}
        if textual(column.type):
            hit = pc.is_in(
                pc.utf8_trim_whitespace(pc.cast(column, pa.string())), value_set=pa.array([*map(str, marks)])
            )
        elif pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            values = pc.cast(column, pa.float64(), safe=False).to_numpy()
            hit = pa.array([canonical(float(v)) in gone for v in values.tolist()])
        else:
            continue
        at = table.column_names.index(c)
        table = table.set_column(at, c, pc.if_else(hit, pa.scalar(None, column.type), column))
    return table


def _plain_type(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def rows_of(data: DataSpec, spec: Any, base: Path, client: str) -> Rows:
    """Of images, arrays and bundled data."""
    whose, kind = data.client or (Whose() if spec.source == "bundled" else None), spec.source
    given = {k: getattr(data, k) for k in ("path", "x", "y", "name") if getattr(data, k) is not None}
    if kind == "images":
        given["layout"] = "client/class/file" if whose else "class/file"
    elif kind == "npz":
        given["client"] = (whose.column or "client") if whose else None
    if kind != "bundled" and not isinstance(data.path, str):
        raise InputError(f"path: not given, or several; say where this site's {kind} lie")
    own = spec.model_copy(update={**given, "partition": None})
    source = import_module(f"fedroute.data.sources.{'arrays' if kind == 'npz' else kind}")
    rows: Rows = source.read(own) if kind == "bundled" else source.as_written(own, base)[0]
    if data.label_names:
        if not isinstance(rows.label, Names):
            raise InputError(f"{rows.name}: labels are numbers here, and label_names in DATA.yaml calls them something")
        rows = replace(rows, label=called_here(rows.label, data.label_names, rows.name))
    if whose is None:
        return rows
    assert rows.client is not None
    value = canonical(client if whose.value is None else whose.value)
    if value not in rows.client.kinds:
        raise InputError(f"{rows.name}: nothing of {value!r} (client.value){nearest(value, rows.client.kinds)}")
    keep = rows.client.codes == rows.client.kinds.index(value)
    label = rows.label.where(keep) if isinstance(rows.label, Names) else rows.label[keep]
    assert rows.x is not None
    return replace(rows, label=label, x=rows.x[torch.from_numpy(keep)], client=None)
