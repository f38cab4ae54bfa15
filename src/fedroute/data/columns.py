"""What the columns of a file hold: numbers, names, times. Typed once, over all clients together."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedroute.data.rows import MISSING, Floats, Names
from fedroute.data.sources.decimals import NUMBER
from fedroute.data.spec import Table, Value
from fedroute.data.spelling import in_yaml
from fedroute.errors import InputError
from fedroute.words import count

Where = Callable[[int], str]
_ID = re.compile(
    r"(^|[_\s.-])(id|uuid|guid|index|idx)$|^id[_\s.-]|编号|序号|号码|病历号|住院号|门诊号|病案号|身份证|学号|卡号|流水号",
    re.IGNORECASE,
)
_DRESSED = r"^[<>≤≥~±]?\s*[+-]?\d[\d.,]*\s*([%‰°µμ]|[%‰°µμ]?\p{L}[\p{L}/%²³]{0,7})?$"
"""A number with a sign or a unit beside it: <0.1, 60 kg, 5 %."""
_TIMES = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d",
    "%Y/%m/%d %H:%M",
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
    import pyarrow as pa
    import pyarrow.compute as pc

    named = name in (spec.features or ()) or name in spec.categorical
    t = column.type
    if pa.types.is_temporal(t):
        if not named:
            notes.append(f"column {name} holds dates: not used (name it in `features` to use it, in days)")
            return None
        days = times_of(column, name, where) / 86400
        return pa.chunked_array([pa.array(days, from_pandas=True)])
    if pa.types.is_null(t):
        column = pc.cast(column, pa.float64())
    elif _textual(t):
        column = _numeric(_marked(column, marks), name, spec, where)
    elif not (pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_boolean(t) or pa.types.is_decimal(t)):
        raise InputError(f"{where(0)}: column {name!r} holds {t}, which is no feature; `drop: [{name}]`"
                         + (f" or use it as `image: {name}`" if pa.types.is_binary(t) else ""))  # fmt: skip
    if not named and _identifies(column, name):
        _no_dressed_numbers(column, name, where)
        notes.append(f"column {name} looks like an identifier: not used (name it in `features` to use it)")
        return None
    if pa.types.is_string(column.type):
        return column
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
    if name in spec.categorical:
        return pa.chunked_array([pa.array(Names.of(values).objects(), pa.string())])
    return pa.chunked_array([pa.array(values, from_pandas=True)])


def names_of(column: Any, name: str, where: Where) -> Names:
    """(R,) names; 1.0 and 1 are one name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if _textual(column.type):
        return Names.of(_plain(_marked(column, ())))
    try:
        return Names.of(column if pa.types.is_floating(column.type) else pc.cast(column, pa.string()))
    except pa.ArrowException:
        raise InputError(f"{where(0)}: column {name!r} holds {column.type}, which cannot be names") from None


def times_of(column: Any, name: str, where: Where) -> Floats:
    """(R,) float64, NaN where missing: seconds since 1970 of dates and times, numbers as they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if _textual(column.type):
        text = _marked(column, ())
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
    """Text as timestamps, all by the first of the formats that fits every value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(text, pa.timestamp("ms"))
    except pa.ArrowException:
        tried = [pc.strptime(text, format=f, unit="ms", error_is_null=True) for f in _TIMES]
    best = min(tried, key=lambda t: t.null_count)
    if best.null_count > text.null_count:
        row = int(np.flatnonzero(pc.and_(best.is_null(), text.is_valid()).to_numpy())[0])
        raise InputError(f"{where(row)}: {text[row].as_py()!r} in column {name!r} is no time; "
                         "write times as 2024-01-31 or 2024-01-31 12:30:00, or as numbers")  # fmt: skip
    return best


def _textual(t: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t))


def _marked(column: Any, marks: Sequence[Value]) -> Any:
    """Text stripped, the marks of a missing value as null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    gone = pa.array([*MISSING, *(str(m) for m in marks)])
    return pc.if_else(pc.is_in(text, value_set=gone), pa.scalar(None, pa.string()), text)


def _plain(text: Any) -> Any:
    """Text with 1.0 written as 1."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(text, r"^([+-]?\d+)\.0+$", r"\1")


def _numeric(text: Any, name: str, spec: Table, where: Where) -> Any:
    """Text as float64 where it is numbers and not declared categorical, else as names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    number = pc.match_substring_regex(text, NUMBER)
    known = len(text) - text.null_count
    numbers = pc.sum(number).as_py() or 0
    if name in spec.categorical:
        return _plain(text)
    if numbers == known:
        coded = pc.any(pc.match_substring_regex(text, r"^0\d")).as_py()  # zeros in front: 00185 is a name
        return text if coded else pc.cast(text, pa.float64())
    if numbers > known / 2:
        row = int(np.flatnonzero(pc.fill_null(pc.invert(number), False).to_numpy())[0])
        raise InputError(f"{where(row)}: column {name!r} holds numbers and "
                         f"{count(known - numbers, 'other value')} such as {text[row].as_py()!r}; "
                         f"if that means missing, say `missing: {{{name}: [{in_yaml(text[row].as_py())}]}}`, "
                         f"if its values are names, `categorical: [{name}]`")  # fmt: skip
    return text


def _no_dressed_numbers(column: Any, name: str, where: Where) -> None:
    """Text that would be left out as an identifier and is amounts with a unit is an error instead."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type) or _ID.search(name):
        return
    dressed = pc.fill_null(pc.match_substring_regex(column, _DRESSED), False)
    if (pc.sum(dressed).as_py() or 0) < 0.9 * (len(column) - column.null_count):
        return
    odd = pc.and_(dressed, pc.invert(pc.fill_null(pc.match_substring_regex(column, NUMBER), False)))
    row = int(np.flatnonzero(odd.to_numpy())[0])
    raise InputError(f"{where(row)}: column {name!r} holds numbers with something beside them, such as "
                     f"{column[row].as_py()!r}; write the number alone, in one unit, or `drop: [{name}]`")  # fmt: skip


def _identifies(column: Any, name: str) -> bool:
    """Whether a column tells rows apart and nothing else: text that is mostly different, the numbers 0 or 1 and on, or
    what is called an identifier and has many values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = len(column) - column.null_count
    different = pc.count_distinct(column).as_py()
    text = pa.types.is_string(column.type)
    if not text and pa.types.is_floating(column.type) and not pc.all(pc.equal(pc.floor(column), column)).as_py():
        return False
    if _ID.search(name):
        return bool(different > max(20, known / 20) or 1 < different == known)
    if known < 20:
        return False
    if text:
        return bool(different > known / 2)
    if different < known:
        return False
    spread = pc.min_max(column).as_py()
    return bool(spread["min"] in (0, 1) and spread["max"] - spread["min"] == known - 1)
