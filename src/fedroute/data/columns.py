"""What the columns of a file hold: numbers, names, times. Typed once, over all clients together."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fedroute.data.look import FAULTS, LEFT_OUT, Look, left_out, look_at, marked, reading_of, textual, trimmed
from fedroute.data.look import dressed as _dressed
from fedroute.data.rows import Floats, Names
from fedroute.data.sources.decimals import NUMBER
from fedroute.data.spec import Table, Value
from fedroute.data.spelling import in_yaml
from fedroute.errors import InputError
from fedroute.words import count

Where = Callable[[int], str]
_TIMES = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S",
)


def feature(column: Any, name: str, spec: Table, marks: Sequence[Value], where: Where, notes: list[str]) -> Any:
    """The column as float64 (numeric) or string (categorical), null where missing; or None where it is left out (a
    date, an identifier, free text, all the same to a model) unless `features` names it, with a note.

    Text is numeric where every value is a number (and none has zeros in front), else categorical; a column that is
    mostly numbers and not wholly is an error, because both readings would mislead. Numbers beyond 1e30, infinite
    ones too, are missing."""
    column = trimmed(column, marks)
    reading = reading_of(look := look_at(column, name in {*(spec.features or ()), *spec.categorical}), name, spec)
    if reading in FAULTS:
        raise InputError(_fault(column, name, look, reading, where))
    if reading in LEFT_OUT:
        notes.append(left_out(name, reading))
        return None
    return typed(column, name, reading, name in spec.categorical, marks, where, notes)


def _fault(column: Any, name: str, look: Look, reading: str, where: Where) -> str:
    """With the first row that shows it."""
    import pyarrow as pa

    if reading == "strange":
        image = f" or use it as `image: {name}`" if pa.types.is_binary(column.type) else ""
        return f"{where(0)}: column {name!r} holds {column.type}, which is no feature; `drop: [{name}]`{image}"
    row, odd = first_odd(column, reading)
    if reading == "dressed":
        return (f"{where(row)}: column {name!r} holds numbers with something beside them, such as {odd!r}; write the "
                f"number alone, in one unit, or `drop: [{name}]`")  # fmt: skip
    others = count(look.known - look.numbers, "other value")
    return (f"{where(row)}: column {name!r} holds numbers and {others} such as {odd!r}; if that means missing, say "
            f"`missing: {{{name}: [{in_yaml(odd)}]}}`, if its values are names, `categorical: [{name}]`")  # fmt: skip


def first_odd(column: Any, reading: str) -> tuple[int, str]:
    """(row, value): the first that shows that a trimmed column is `mixed` or `dressed`."""
    import pyarrow.compute as pc

    number = pc.fill_null(pc.match_substring_regex(column, NUMBER), False)
    odd = pc.invert(number) if reading == "mixed" else pc.and_(_dressed(column), pc.invert(number))
    row = int(np.flatnonzero(pc.and_(odd, column.is_valid()).to_numpy())[0])
    return row, str(column[row].as_py())


def typed(
    column: Any, name: str, reading: str, declared: bool, marks: Sequence[Value], where: Where, notes: list[str]
) -> Any:
    """A trimmed column as float64 or string, as it is to be read: "days", "number" or "name". declared: whether the
    config calls it categorical."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if reading == "days":
        days = times_of(column, name, where) / 86400
        return pa.chunked_array([pa.array(days, from_pandas=True)])
    if textual(column.type):
        if reading == "name":
            return _plain(column) if declared else column
        column = pc.cast(column, pa.float64())
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.uint8())
    column = pc.cast(column, pa.float64(), safe=False)
    values = column.to_numpy().copy()
    infinite = np.abs(values) > 1e30
    if infinite.any():
        notes.append(f"column {name}: {count(int(infinite.sum()), 'value')} infinite or beyond 1e30, taken as missing")
        values[infinite] = np.nan
    numbers = [float(m) for m in marks if isinstance(m, int | float) or re.match(NUMBER, str(m))]
    values[np.isin(values, numbers)] = np.nan
    if reading == "name":
        return pa.chunked_array([pa.array(Names.of(values).objects(), pa.string())])
    return pa.chunked_array([pa.array(values, from_pandas=True)])


def names_of(column: Any, name: str, where: Where) -> Names:
    """(R,) names; 1.0 and 1 are one name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if textual(column.type):
        return Names.of(_plain(marked(column, ())))
    try:
        return Names.of(column if pa.types.is_floating(column.type) else pc.cast(column, pa.string()))
    except pa.ArrowException:
        raise InputError(f"{where(0)}: column {name!r} holds {column.type}, which cannot be names") from None


def times_of(column: Any, name: str, where: Where) -> Floats:
    """(R,) float64, NaN where missing: seconds since 1970 of dates and times, numbers as they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if textual(column.type):
        text = marked(column, ())
        if pc.all(pc.match_substring_regex(text, NUMBER)).as_py():
            column = pc.cast(text, pa.float64())
        else:
            text = pc.replace_substring_regex(text, r"^(\d{4}-\d{2})$", r"\1-01")  # a month
            column = _parsed(text, name, where)
    try:
        if pa.types.is_temporal(column.type):
            stamps = pc.cast(pc.cast(column, pa.timestamp("ms"), safe=False), pa.int64())
            return np.asarray(pc.divide(pc.cast(stamps, pa.float64()), 1000.0).to_numpy(), dtype=np.float64)
        return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    except pa.ArrowException:
        raise InputError(f"{where(0)}: column {name!r} holds {column.type}, which are no points in time") from None


def _parsed(text: Any, name: str, where: Where) -> Any:
    """Text as timestamps, all by the first of the formats that fits every value; with offsets from UTC, in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(text, pa.timestamp("ms"))
    except pa.ArrowException:
        with suppress(pa.ArrowException):
            return pc.cast(text, pa.timestamp("ms", "UTC"))
        tried = [pc.strptime(text, format=f, unit="ms", error_is_null=True) for f in _TIMES]
    best = min(tried, key=lambda t: t.null_count)
    if best.null_count > text.null_count:
        row = int(np.flatnonzero(pc.and_(best.is_null(), text.is_valid()).to_numpy())[0])
        raise InputError(f"{where(row)}: {text[row].as_py()!r} in column {name!r} is no time; "
                         "write times as 2024-01-31 or 2024-01-31 12:30:00, or as numbers")  # fmt: skip
    return best


def _plain(text: Any) -> Any:
    """Text with 1.0 written as 1."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(text, r"^([+-]?\d+)\.0+$", r"\1")
