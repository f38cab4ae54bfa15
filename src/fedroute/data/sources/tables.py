"""Parquet and CSV files, of one client each or of all, put together by column name and typed."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroute.data.columns import feature, names_of, times_of
from fedroute.data.labels import label_of
from fedroute.data.rows import Names, Rows
from fedroute.data.sources.csv_files import read_csv
from fedroute.data.sources.decode import decode_column
from fedroute.data.sources.files import NO_PATH, by_client, listed
from fedroute.data.spec import Csv, Parquet, Table, Value, nearest
from fedroute.errors import InputError
from fedroute.words import count


@dataclass(frozen=True)
class File:
    client: str | None
    path: Path
    table: Any  # pyarrow Table

    @property
    def where(self) -> str:
        return place(self.path, self.client)


def place(path: Path, client: str | None) -> str:
    """A file and whose it is, for people."""
    return f"{path}" + (f" (client {client})" if client else "")


@dataclass(frozen=True)
class Files:
    """All rows of all files; `where` says which line of which file one is."""

    files: Sequence[File]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(f.table.num_rows for f in self.files)])

    def where(self, row: int) -> str:
        k = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"{self.files[k].where}, row {row - int(self.starts[k]) + 1}"

    def column(self, name: str) -> Any:
        """A pyarrow ChunkedArray; one type where the files agree or hold numbers, text otherwise; null where a file
        lacks the column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        parts = []
        for f in self.files:
            part = f.table[name] if name in f.table.column_names else pa.nulls(f.table.num_rows)
            parts.append(part.cast(part.type.value_type) if pa.types.is_dictionary(part.type) else part)
        types = {p.type for p in parts if not pa.types.is_null(p.type)}
        for target in types if len(types) <= 1 else (pa.float64(), pa.string()):
            try:
                parts = [p if p.type == target else pc.cast(p, target, safe=False) for p in parts]
                break
            except pa.ArrowException:
                continue
        if len({p.type for p in parts}) > 1:
            kinds = ", ".join(sorted(map(str, types)))
            raise InputError(f"{self.files[0].path}: column {name!r} has other types in other files ({kinds}); "
                             f"make them alike or `drop: [{name}]`")  # fmt: skip
        chunks = [c for p in parts for c in (p.chunks if isinstance(p, pa.ChunkedArray) else [p])]
        return pa.chunked_array(chunks, chunks[0].type)


def read(spec: Parquet | Csv, base: Path) -> Rows:
    """Rows of a table or, with `image`, of a column of images. Rows without label, client or time are left out and
    counted in the notes."""
    files, notes = _read_files(spec, base), list[str]()
    first = files.files[0].path.absolute()  # relative to the current folder it has none
    name = first.name.partition(".")[0] if len(files.files) == 1 else first.parent.name
    client = time = None
    if spec.client:
        client = names_of(files.column(spec.client), spec.client, files.where)
    elif spec.paths is not None:
        sizes = [f.table.num_rows for f in files.files]
        client = Names(tuple(str(f.client) for f in files.files), np.repeat(np.arange(len(sizes)), sizes))
    label = label_of(names_of(files.column(spec.label), spec.label, files.where), spec, files.where, client, notes)
    keep = label.known if isinstance(label, Names) else ~np.isnan(label)
    _count(notes, ~keep, f"without {spec.label}")
    if client is not None:
        _count(notes, keep & ~client.known, f"without {spec.client}")
        keep &= client.known
    if spec.time:
        time = times_of(files.column(spec.time), spec.time, files.where)
        _count(notes, keep & np.isnan(time), f"without {spec.time}")
        keep &= ~np.isnan(time)
    x = table = None
    if spec.image:
        x, good, found = decode_column(files.column(spec.image), keep, spec, files.where)
        notes += found
        x = x if good[keep].all() else x[good[keep]]
        keep &= good
    else:
        table = _features(spec, files, notes).filter(_mask(keep))
    return Rows(
        name=name, label=label.where(keep) if isinstance(label, Names) else label[keep], x=x, table=table,
        client=client and client.where(keep), time=None if time is None else time[keep], notes=tuple(notes),
    )  # fmt: skip


def _read_files(spec: Parquet | Csv, base: Path) -> Files:
    if spec.path is None and spec.paths is None:
        raise InputError(f"federation: {NO_PATH}")
    if spec.path is not None and spec.paths is not None:
        raise InputError("federation: give `path` (one file with all rows) or `paths` (one file per client), not both")
    if spec.paths is not None and spec.client:
        raise InputError("federation.client: with `paths` the clients are the files; leave `client` out")
    found = listed(spec.path, base) if spec.path is not None else by_client(spec.paths or {}, base)
    if not found:
        raise InputError("federation.paths: names no file")
    files = [File(c, p, read_file(c, p, spec)) for c, p in found]
    needed = {"label": spec.label, "client": spec.client, "time": spec.time, "image": spec.image}
    for f in files:
        for key, column in needed.items():
            if column and column not in f.table.column_names:
                raise InputError(f"{f.where}: no column {column!r} (federation.{key})"
                                 f"{nearest(column, f.table.column_names)}")  # fmt: skip
    return Files(files)


def read_file(client: str | None, path: Path, spec: Parquet | Csv) -> Any:
    where = place(path, client)
    return read_csv(path, spec, where) if isinstance(spec, Csv) else _read_parquet(path, spec, where)


def _read_parquet(path: Path, spec: Parquet, where: str) -> Any:
    """Only the columns that are needed, where the spec says which."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path)
        wanted: set[str] | None = None
        if spec.image or spec.features is not None:
            wanted = {c for c in (spec.label, spec.client, spec.time, spec.image, *(spec.features or ())) if c}
        columns = [c for c in schema.names if wanted is None or c in wanted]
        table = parquet.read_table(path, columns=columns)
    except (pa.ArrowException, OSError) as e:
        raise InputError(f"{where}: cannot be read as Parquet ({str(e).splitlines()[0]})") from None
    if table.num_rows == 0:
        raise InputError(f"{where}: has no rows; give a file with rows or leave the client out")
    # a wanted column that is not there is reported with all the names that are
    lacks = wanted is not None and not wanted <= set(schema.names)
    return parquet.read_table(path) if lacks else table


def _features(spec: Parquet | Csv, files: Files, notes: list[str]) -> Any:
    """A pyarrow Table of the feature columns: float64 or string, null where missing."""
    import pyarrow as pa

    found = [(f.where, f.table.column_names) for f in files.files]
    known = list(dict.fromkeys(c for _, columns in found for c in columns))
    wanted = wanted_columns(spec, known, str(files.files[0].path))
    lacked = lacking_columns(spec, wanted, found)
    columns: dict[str, Any] = {}
    faults = list[str]()
    for c in wanted:
        if c in lacked:  # one that is not used anyway may be lacking
            with contextlib.suppress(InputError):
                if feature(files.column(c), c, spec, marks_of(spec, c), files.where, notes) is None:
                    continue
            faults.append(lacked[c])
            continue
        if lacking := [f for f in files.files if c not in f.table.column_names]:
            notes.append(f"column {c} is missing at {', '.join(f.client or str(f.path) for f in lacking)}: filled")
        column = feature(files.column(c), c, spec, marks_of(spec, c), files.where, notes)
        if column is not None:
            columns[c] = column
    if faults:
        raise InputError("\n".join(faults))
    if not columns:
        raise InputError(f"{files.files[0].path}: no feature column is left; name them: `features: [...]`")
    return pa.table(columns)


def marks_of(spec: Table, column: str) -> Sequence[Value]:
    """What means "missing" in a column, besides the usual marks."""
    return spec.missing if isinstance(spec.missing, list) else spec.missing.get(column, [])


def wanted_columns(spec: Table, known: Sequence[str], whole: str) -> list[str]:
    """The columns that are to be features, of the names of all columns that there are. whole: what to call the data.

    Raises InputError for a column that the spec names and that is not there."""
    marked = spec.missing if isinstance(spec.missing, dict) else {}
    named = {"features": spec.features, "drop": spec.drop, "categorical": spec.categorical, "missing": marked}
    for key, names in named.items():
        for c in names or ():
            if c not in known:
                raise InputError(f"{whole}: no column {c!r} (federation.{key}){nearest(c, known)}")
    reserved = {spec.label, spec.client, spec.time} - {None}
    return [c for c in (known if spec.features is None else spec.features) if c not in {*spec.drop, *reserved}]


def lacking_columns(
    spec: Table, wanted: Sequence[str], found: Sequence[tuple[str, Sequence[str]]], own: bool = False
) -> dict[str, str]:
    """What to say of each wanted column that some files lack, where they are not to be filled. found: of each file what
    to call it and its columns; own: each is a site's, which can mend its own part in its DATA.yaml."""
    if spec.missing_columns == "fill":
        return {}
    return {c: _lacking(c, found, own) for c in wanted if any(c not in columns for _, columns in found)}


def _lacking(c: str, found: Sequence[tuple[str, Sequence[str]]], own: bool) -> str:
    """What to say of a column that some have and others do not; the fewer are named first."""
    having, lacking = [w for w, cs in found if c in cs], [w for w, cs in found if c not in cs]
    few, rest = _some(having), _some(lacking)
    mends = f"`drop: [{c}]` or `missing_columns: fill` (filled and flagged)"
    if len(having) < len(lacking):
        columns = next(cs for w, cs in found if w in lacking)
        others = [n for n in columns if any(n not in cs for w, cs in found if w in having)]
        near = nearest(c, others)
        mean = near if near.startswith("; did") else ""
        who = f"{few}: has a column {c!r} that {rest} {'has' if len(lacking) == 1 else 'have'} not{mean}"
        if own:
            return (f"{who}; that site can say `drop: [{c}]` or `rename: {{{c}: its name}}` in its DATA.yaml; or the "
                    f"hub says {mends} in its config for all, and all join anew")  # fmt: skip
        return f"{who}; say {mends}, or rename it"
    columns = next(cs for w, cs in found if w == lacking[0])
    others = [n for n in columns if any(n not in cs for w, cs in found if w in having)]
    who = f"{rest}: no column {c!r}, which {few} {'has' if len(having) == 1 else 'have'}{nearest(c, others)}"
    if own:
        return (f"{who}; rename it (`rename: {{its name: {c}}}` in DATA.yaml there), leave it out where it is (`drop: "
                f"[{c}]` in DATA.yaml there), or the hub says {mends} in its config for all, and all join "
                "anew")  # fmt: skip
    return f"{who}; rename it, or say {mends}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _mask(keep: NDArray[np.bool_]) -> Any:
    import pyarrow as pa

    return pa.array(keep)


def _count(notes: list[str], gone: NDArray[np.bool_], why: str) -> None:
    if n := int(gone.sum()):
        notes.append(f"{count(n, f'row {why} was', f'rows {why} were')} left out")
