"""A site's own rows: as its file has them, and as they are once all sites agree how they are to be read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedroute.data.columns import names_of, times_of, typed
from fedroute.data.federation import Federation
from fedroute.data.labels import label_of
from fedroute.data.look import textual, trimmed
from fedroute.data.rows import Floats, Names, Rows, canonical
from fedroute.data.sources.decode import decode_column
from fedroute.data.sources.files import listed
from fedroute.data.sources.tables import File, Files, marks_of, read_file
from fedroute.data.spec import Csv, Parquet, Table, nearest
from fedroute.errors import InputError
from fedroute.federation.form import Form, hub_spec, without_paths
from fedroute.federation.site_spec import DataSpec, Whose, data_spec

WRITTEN = ("delimiter", "decimal", "header", "columns", "encoding")  # how a CSV file is written
Parts = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Prepared:
    """A site's rows as agreed. y: (R,) codes or numbers. x: (R, ...), or None and `table`, its columns typed. time:
    (R,). parts: the rows for training, validation and test. notes: what was found and done."""

    y: Tensor
    x: Tensor | None
    table: Any
    time: Tensor | None
    parts: Parts
    notes: tuple[str, ...]


@dataclass(eq=False)
class SiteData:
    """What a site has read of its own file: of a table the files, of anything else the rows. spec: the hub's
    `federation:` part, checked; given: the same as it came."""

    client: str
    spec: Any
    given: Mapping[str, Any]
    files: Files | None = None
    rows: Rows | None = None
    kept: tuple[Form, Prepared] | None = field(default=None, repr=False)
    told: dict[str, set[str]] = field(default_factory=dict, repr=False)  # agreement -> questions answered of its rows

    @classmethod
    def read(cls, source: DataSpec | Mapping[str, Any], base: Path, spec: Mapping[str, Any], client: str) -> Self:
        """source: what DATA.yaml says, relative paths from `base`; spec: the `federation:` part of the hub's config;
        client: this site's name.

        Raises InputError for what is wrong with file or specs, for the eyes of this site: it may name paths and show
        values, and is not to be sent."""
        data = source if isinstance(source, DataSpec) else data_spec(source)
        checked = hub_spec(spec)
        kind = data.source or checked.source
        if isinstance(checked, Table) != (kind in ("csv", "parquet")):
            raise InputError(f"source: {kind} does not go with the federation's {checked.source}; both must be tables, "
                             "or the same")  # fmt: skip
        made = cls(client, checked, without_paths(spec))
        try:
            if isinstance(checked, Csv | Parquet):
                made.files = _files(data, checked, base, client)
            else:
                made.rows = _rows(data, checked, base, client)
        except InputError as e:  # readers know one config, in which all stands
            raise InputError(str(e).replace("federation.path:", "DATA.yaml path:")) from None
        return made

    @property
    def many(self) -> int:
        """Rows, usable or not."""
        if self.files is not None:
            return sum(f.table.num_rows for f in self.files.files)
        assert self.rows is not None
        return len(_codes(self.rows))

    def column(self, name: str, target: str = "") -> Any:
        """A column of a table, of the type that the sites agree on ("" for its own), trimmed; null where there is none
        of that name. Raises InputError where the values do not fit."""
        import pyarrow as pa

        assert self.files is not None
        if not any(name in f.table.column_names for f in self.files.files):
            return pa.chunked_array([pa.nulls(self.many)])
        found = as_type(self.files.column(name), target)
        if found is None:
            raise InputError(f"{self.files.files[0].path}: column {name!r} does not hold {target} alone")
        return trimmed(found, marks_of(self.spec, name)) if name != self.spec.label else found

    def label(self, target: str = "") -> Names:
        """The labels as written. Only of tables."""
        assert self.files is not None
        return names_of(self.column(self.spec.label, target), self.spec.label, self.files.where)

    def time(self) -> Floats | None:
        if self.files is None or not self.spec.time:
            return None
        return times_of(self.files.column(self.spec.time), self.spec.time, self.files.where)

    def prepared(self, form: Form) -> Prepared:
        """The rows as the sites have agreed to read them: typed, labelled, split. Raises InputError where they cannot
        be read so, or where the form is of another config than the rows were read by."""
        if self.kept is None or self.kept[0] != form:
            if form.spec != self.given or self.client not in form.clients:
                raise InputError(
                    f"the agreement is not of the config that {self.client}'s data were read by; read anew"
                )
            self.kept = form, (_of_table if self.files is not None else _of_rows)(self, form)
        return self.kept[1]


def as_type(column: Any, target: str) -> Any:
    """A pyarrow column as "double" or "string"; as it is for "" and its own type, and where it has no value; None where
    its values do not fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if target in ("", str(column.type)) or pa.types.is_null(column.type):
        return column
    to = {"double": pa.float64(), "string": pa.string()}.get(target)
    try:
        return None if to is None else pc.cast(column, to, safe=False)
    except pa.ArrowException:
        return None


# reading


def _files(data: DataSpec, spec: Csv | Parquet, base: Path, client: str) -> Files:
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
    needed = {"label": spec.label, "time": spec.time, "image": spec.image}
    for f in files:
        for key, column in needed.items():
            if column and column not in f.table.column_names:
                near = nearest(column, f.table.column_names)
                mend = f"or say in DATA.yaml `rename: {{its name: {column}}}`"
                raise InputError(f"{f.path}: no column {column!r} (federation.{key}){near}; {mend}")
    if not sum(f.table.num_rows for f in files):
        raise InputError(f"{files[0].path}: no row is {client}'s; look at `client` in DATA.yaml")
    return Files(files)


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


def _rows(data: DataSpec, spec: Any, base: Path, client: str) -> Rows:
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


def _codes(rows: Rows) -> Any:
    return rows.label.codes if isinstance(rows.label, Names) else rows.label


# as agreed


def _of_table(data: SiteData, form: Form) -> Prepared:
    import pyarrow as pa

    spec, files, notes = data.spec, data.files, list[str]()
    assert files is not None
    label = _mapped(data.label(form.label_type), form, lambda n: label_of(n, spec, files.where, None, notes))
    keep = ~np.isnan(label)
    if (time := data.time()) is not None:
        keep &= ~np.isnan(time)
    x = table = None
    if spec.image:
        x, good, found = decode_column(files.column(spec.image), keep, spec, files.where)
        notes += found
        x = _channels(x if good[keep].all() else x[torch.from_numpy(good[keep])], form)
        keep &= good
    else:
        columns = {}
        for c in form.columns:
            column, marks = data.column(c.name, c.type), marks_of(spec, c.name)
            columns[c.name] = typed(column, c.name, c.reading, c.name in spec.categorical, marks, files.where, notes)
        table = pa.table(columns).filter(pa.array(keep))
    return _split(data, form, label[keep], x, table, None if time is None else time[keep], notes)


def _of_rows(data: SiteData, form: Form) -> Prepared:
    rows = data.rows
    assert rows is not None
    assert rows.x is not None
    label = rows.label
    if isinstance(label, Names):
        label = label.floats() if form.numbers else _mapped(label, form, lambda n: n)
    keep = ~np.isnan(label)
    x = _channels(rows.x if keep.all() else rows.x[torch.from_numpy(keep)], form)
    return _split(data, form, label[keep], x, None, None, list(rows.notes))


def _mapped(names: Names, form: Form, alone: Any) -> Floats:
    """(R,) float64: the code of each row's label, or its number; NaN where there is none. alone: what makes labels of
    names where every site can do so by itself."""
    if form.label_map is None:
        found = alone(names)
        if not isinstance(found, Names):
            numbers: Floats = found
            return numbers
        return np.where(found.codes < 0, np.nan, found.codes.astype(np.float64))
    unknown = [k for k in names.kinds if k not in form.label_map]
    if unknown:
        raise InputError(f"label {unknown[0]!r} is none of those agreed on; the file has changed since it was surveyed")
    codes = np.array([*(form.label_map[k] for k in names.kinds), -1])[names.codes]
    return np.where(codes < 0, np.nan, codes.astype(np.float64))


def _channels(x: Tensor, form: Form) -> Tensor:
    """Grey images as the three channels that other sites' have."""
    grey = form.shape is not None and x.ndim == 4 and x.shape[1] == 1 and form.shape[0] == 3
    return x.repeat(1, 3, 1, 1) if grey else x


def _split(
    data: SiteData, form: Form, label: Floats, x: Tensor | None, table: Any, time: Floats | None, notes: list[str]
) -> Prepared:
    if not len(label):
        raise InputError(f"{data.client}: no row with a label is left; look at the file and the label")
    y = torch.from_numpy(label.astype(np.float32) if form.numbers else label.astype(np.int64))
    when = None if time is None else torch.from_numpy(time)
    none = torch.zeros(len(y), 0) if x is None else x
    own = Federation.from_arrays(
        none, y, [data.client] * len(y), name=form.name, labels=form.labels, split=data.spec.split, seed=form.seed,
        time=when,
    )  # fmt: skip
    return Prepared(y, x, table, when, (own.train[0], own.validation[0], own.test[0]), tuple(notes))
