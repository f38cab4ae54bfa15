"""Columns that hold dates and are not named as the time of a row."""

import re

from fedroute.data.federation import Federation
from fedroute.data.look import DATE, DATES
from fedroute.profile.finding import Finding
from fedroute.said import say

_DATE = re.compile(DATE)
_CALLED = re.compile(r"time|timestamp|date|datetime|month|week|year|日期|时间|年份|年月", re.I)
_LEFT_OUT = re.compile(r"column (.+) holds dates: not used")


def date_columns(federation: Federation) -> tuple[str, ...]:
    """Columns that seem to be the time of a row, the likeliest first: with dates that loading left out or took for
    names, then columns of numbers that are called so."""
    left_out = [m[1] for note in federation.notes if (m := _LEFT_OUT.match(note))]
    numeric = federation.table.numeric if federation.table else federation.columns
    called = [c for c in numeric if _CALLED.fullmatch(c)]
    return tuple(dict.fromkeys([*left_out, *_as_names(federation), *called]))


def date_findings(federation: Federation) -> list[Finding]:
    """Dates that loading took for names."""
    return [
        Finding(
            kind="dates read as names", client=None, column=column, number=1, unit="columns", severity="warning",
            sentence=say(
                f"{column} holds dates, and is read as names: of a later date a model knows nothing.",
                f"{column} 是日期，却被当作名称读取：模型对以后的日期一无所知。",
            ),
            mend=say(
                f"if it is the time of the row: `time: {column}`; else `drop: [{column}]`",
                f"如果它是数据的时间：`time: {column}`；否则 `drop: [{column}]`",
            ),
        )
        for column in _as_names(federation)
    ]  # fmt: skip


def _as_names(federation: Federation) -> list[str]:
    kinds = federation.table.categorical.items() if federation.table else ()
    return [c for c, names in kinds if names and sum(map(bool, map(_DATE.fullmatch, names))) >= DATES * len(names)]
