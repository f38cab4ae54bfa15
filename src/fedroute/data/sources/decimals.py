"""Numbers as people write them, 1.234,56 or 1,234.56 or 1 234,56, as numbers that a machine reads."""

from collections.abc import Mapping
from typing import Any

from fedroute.errors import InputError

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_COMMA = r"^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$"  # 12,5
_POINTS = r"^[+-]?\d{1,3}(\.\d{3})+$"  # 1.234
_POINTS_COMMA = r"^[+-]?\d{1,3}(\.\d{3})+,\d+$"  # 1.234,5
_COMMAS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+$"  # 1,234
_COMMAS_POINT = r"^[+-]?\d{1,3}(,\d{3})+\.\d*$"  # 1,234.5
_SPACED = r"^[+-]?\d{1,3}([\x{20}\x{a0}\x{202f}'’]\d{3})+([.,]\d+)?$"  # 1 234,5
_SPACES = r"[\x{20}\x{a0}\x{202f}'’]"


def plain_numbers(columns: Mapping[str, Any], decimal: str | None, delimiter: str, where: str) -> dict[str, Any]:
    """Columns of text with their numbers written plainly, 1234.56; other cells stay. decimal: the sign before the
    fraction where it is known, "." or ","; otherwise each column shows it, and where a column has numbers such as
    1.234 alone the other columns of the file do. where: what to call the file.

    Raises InputError for a column such as "1,234", "2,500" of a file with commas between cells, which reads both
    ways."""
    found = {name: _unspaced(c) for name, c in columns.items()}
    comma = decimal == "," or (decimal is None and any(_shows_comma(c) for c in found.values()))
    return {name: _plain(c, decimal, comma, delimiter, f"{where}: column {name!r}") for name, c in found.items()}


def _any(column: Any, pattern: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def _mostly(column: Any, *patterns: str) -> bool:
    """Whether half of the known cells or more are of one of these forms."""
    import pyarrow.compute as pc

    known = len(column) - column.null_count
    hits = sum(pc.sum(pc.match_substring_regex(column, p)).as_py() or 0 for p in patterns)
    return bool(known and hits >= known / 2)


def _has(column: Any, sign: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring(column, sign)).as_py())


def _unspaced(column: Any) -> Any:
    import pyarrow.compute as pc

    if not any(_has(column, s) for s in " \u00a0\u202f'’") or not _any(column, _SPACED):
        return column
    if not _mostly(column, _SPACED, NUMBER, _COMMA):
        return column
    return _where(column, _SPACED, pc.replace_substring_regex(column, _SPACES, ""))


def _shows_comma(column: Any) -> bool:
    """Whether a comma stands before fractions: some are not of three digits, or points are between thousands."""
    if not _has(column, ",") or not _mostly(column, _COMMA, _POINTS_COMMA):
        return False
    return _any(column, _POINTS_COMMA) or _any(column, r"^[+-]?(\d*,(\d{0,2}|\d{4,})|0\d*,\d+|\d{4,},\d+)$")


def _plain(column: Any, decimal: str | None, comma: bool, delimiter: str, where: str) -> Any:
    import pyarrow.compute as pc

    if not _has(column, ","):
        if comma and _any(column, _POINTS) and _mostly(column, _POINTS, r"^[+-]?\d{1,3}$"):
            return _where(column, _POINTS, pc.replace_substring(column, ".", ""))
        return column
    if decimal != "." and _mostly(column, _COMMA, _POINTS_COMMA) and not _any(column, _COMMAS_POINT):
        if not comma and delimiter == "," and _any(column, _COMMAS):
            example = column.filter(pc.match_substring_regex(column, _COMMAS))[0].as_py()
            raise InputError(f"{where} holds {example!r}, which reads in two ways; say `decimal: \".\"` if the comma "
                             'is between thousands, `decimal: ","` if it is before the fraction')  # fmt: skip
        pointless = pc.replace_substring(column, ".", "")
        plain = _where(column, _POINTS_COMMA, pc.replace_substring(pointless, ",", "."))
        return _where(plain, _COMMA, pc.replace_substring(plain, ",", "."))
    if decimal != "," and _mostly(column, NUMBER, _COMMAS, _COMMAS_POINT):
        whole = pc.replace_substring(column, ",", "")
        return _where(_where(column, _COMMAS, whole), _COMMAS_POINT, whole)
    return column


def _where(column: Any, pattern: str, other: Any) -> Any:
    import pyarrow.compute as pc

    return pc.if_else(pc.fill_null(pc.match_substring_regex(column, pattern), False), other, column)
