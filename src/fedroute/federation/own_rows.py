"""A site's own rows: as its file has them, and as they are once all sites agree how they are to be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedroute.data.columns import first_odd, names_of, times_of, typed
from fedroute.data.federation import Federation
from fedroute.data.labels import label_of
from fedroute.data.look import trimmed
from fedroute.data.rows import Floats, Names, Rows, canonical
from fedroute.data.sources.decode import decode_column
from fedroute.data.sources.tables import Files, marks_of
from fedroute.data.spec import Csv, Parquet, Table
from fedroute.errors import InputError
from fedroute.federation.form import Form, hub_spec, without_paths
from fedroute.federation.own_files import files_of, rows_of
from fedroute.federation.site_spec import DataSpec, data_spec
from fedroute.words import count

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
    sure: tuple[str, ...] = ()  # labels that DATA.yaml calls by their own names
    kept: tuple[Form, Prepared] | None = field(default=None, repr=False)
    told: dict[str, set[str]] = field(default_factory=dict, repr=False)  # agreement -> questions answered of its rows

    @classmethod
    def read(
        cls,
        source: DataSpec | Mapping[str, Any],
        base: Path,
        spec: Mapping[str, Any],
        client: str,
        file: str = "DATA.yaml",
    ) -> Self:
        """source: what DATA.yaml says, relative paths from `base`; spec: the `federation:` part of the hub's config;
        client: this site's name; file: what that DATA.yaml is called.

        Raises InputError for what is wrong with file or specs, for the eyes of this site: it may name paths and show
        values, and is not to be sent."""
        data = source if isinstance(source, DataSpec) else data_spec(source)
        checked = hub_spec(spec)
        kind = data.source or checked.source
        if isinstance(checked, Table) != (kind in ("csv", "parquet")):
            raise InputError(f"source: {kind} does not go with the federation's {checked.source}; both must be tables, "
                             "or the same")  # fmt: skip
        sure = tuple(v for k, v in data.label_names.items() if canonical(k) == v)
        made = cls(client, checked, without_paths(spec), sure=sure)
        try:
            if isinstance(checked, Csv | Parquet):
                made.files = files_of(data, checked, base, client)
            else:
                made.rows = rows_of(data, checked, base, client)
        except InputError as e:  # readers know one config, in which all stands
            said = str(e).replace("federation.path:", "DATA.yaml path:")
            raise type(e)(said.replace("DATA.yaml", file)) from None
        return made

    @property
    def where(self) -> str:
        """The files, for people."""
        if self.files is None:
            assert self.rows is not None
            return self.rows.name
        first, *more = (str(f.path) for f in self.files.files)
        return f"{first} and {count(len(more), 'more file')}" if more else first

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
            try:
                columns[c.name] = typed(
                    column, c.name, c.reading, c.name in spec.categorical, marks, files.where, notes
                )
            except pa.ArrowInvalid:
                row, odd = first_odd(column, "mixed")
                where = f"{files.where(row)}: column {c.name!r}"
                raise InputError(f"{where} holds {odd!r}, and numbers were agreed on: mend it there") from None
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
