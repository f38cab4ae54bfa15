"""What a site tells of its data before anything is agreed on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedroute.data.columns import names_of
from fedroute.data.labels import check_classes, label_of
from fedroute.data.look import look_at, textual, trimmed
from fedroute.data.rows import Names
from fedroute.data.sources.decimals import NUMBER
from fedroute.data.sources.decode import decode_column
from fedroute.data.sources.tables import marks_of
from fedroute.data.spec import Table
from fedroute.federation.form import TYPES
from fedroute.federation.own_rows import SiteData, as_type


def survey(data: SiteData, as_types: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The report of a site, as JSON: {rows, order, columns, label, time, shape, whole}.

    What leaves by it: the number of rows; of a table the names of the columns, and of each that may be a feature its
    type and a `Look`: how many cells have a value, are numbers, and differ, and 8-byte hashes of the different names
    where names repeat (who knows the names that there can be can undo these); of integers that all differ, as in a
    numbering, the largest. Of labels that are names, the names and how many rows have each; of others nothing. Of
    images or arrays the shape of a row. Some 200 bytes a column, and 17 for each name; no row, and no other value.

    as_types: column -> the type to read it as, where sites have several (`types_of`).

    Raises InputError, for the site's own eyes, where the file cannot be read as the config says."""
    found: dict[str, Any] = {"schema": 1, "rows": data.many, "order": [], "columns": {}, "time": None}
    if data.files is not None:
        found |= _table(data, data.spec, as_types or {})
    else:
        assert data.rows is not None
        assert data.rows.x is not None
        label = data.rows.label
        found["label"] = _named(label, data.sure) if isinstance(label, Names) else {"how": "numbers", "number": True}
        found |= {"shape": list(data.rows.x.shape[1:]), "whole": data.rows.x.dtype == torch.uint8}
    return found


def _table(data: SiteData, spec: Table, as_types: Mapping[str, str]) -> dict[str, Any]:
    assert data.files is not None
    order = list(dict.fromkeys(c for f in data.files.files for c in f.table.column_names))
    columns = {spec.label: _column(data, spec.label, as_types.get(spec.label, ""), look=False)}
    found: dict[str, Any] = {"order": order, "columns": columns, "label": _label(data, spec, as_types)}
    found |= {"time": _time(data, spec), "shape": None, "whole": False}
    if spec.image:
        every = np.ones(data.many, dtype=bool)
        x, _, _ = decode_column(data.files.column(spec.image), every, spec, data.files.where)
        return found | {"shape": list(x.shape[1:]), "whole": True}
    aside = {spec.label, spec.client, spec.time, *spec.drop}
    for c in order if spec.features is None else spec.features:
        if c in order and c not in aside:
            columns[c] = _column(data, c, as_types.get(c, ""))
    return found


def _column(data: SiteData, name: str, target: str, look: bool = True) -> dict[str, Any]:
    """{type, fits, look}: its own type, those of TYPES that it can be read as, and its look under `target`."""
    assert data.files is not None
    spec, own = data.spec, data.files.column(name)
    fits = [t for t in TYPES if as_type(own, t) is not None]
    told = {"type": str(own.type), "fits": fits, "look": None}
    column = as_type(own, target) if look else None
    if column is None:
        return told
    named = name in {*(spec.features or ()), *spec.categorical}
    seen = look_at(trimmed(column, marks_of(spec, name)), named, tell=True)
    return told | {"look": seen.json()}


def _label(data: SiteData, spec: Table, as_types: Mapping[str, str]) -> dict[str, Any]:
    """Names with the rows of each where all sites must agree on them; else only how they are made."""
    assert data.files is not None
    target = as_types.get(spec.label, "")
    column = as_type(data.files.column(spec.label), target)
    names = names_of(column, spec.label, data.files.where)
    if spec.label_as == "number" or spec.bands is not None or isinstance(spec.positive, str):
        found = label_of(names, spec, data.files.where, None, [])
        number = not isinstance(found, Names)
        return {"how": "numbers" if number else "fixed", "number": number}
    check_classes(names, spec.label, data.files.where)
    return _named(names, data.sure)


def _named(names: Names, sure: Sequence[str]) -> dict[str, Any]:
    counts = np.bincount(names.codes[names.known], minlength=len(names.kinds)).tolist()
    number = all(_is_number(k) for k in names.kinds)
    found = {"how": "names", "number": number, "counts": dict(zip(names.kinds, counts, strict=True))}
    return found | ({"sure": [*sure]} if sure else {})


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _time(data: SiteData, spec: Table) -> str | None:
    """Whether points in time are written as dates or as numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not spec.time:
        return None
    assert data.files is not None
    data.time()  # raises where they are neither
    column = data.files.column(spec.time)
    if textual(column.type):
        cells = trimmed(column, ())
        return "numbers" if pc.all(pc.match_substring_regex(cells, NUMBER)).as_py() in (True, None) else "dates"
    return "dates" if pa.types.is_temporal(column.type) else "numbers"
