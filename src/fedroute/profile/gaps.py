"""Values that are not there: a number written for "not known", and columns that a client does not record."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedroute.data.rows import canonical
from fedroute.profile.column_summary import ColumnSummary, Mark
from fedroute.profile.finding import Finding, listed, percent
from fedroute.said import say

APART = 1.25  # spreads between a mark and all other values, where it is frequent
ALONE = 4.0  # and where it is not
VALUES = 10  # different others there must be, for a mark to look like one
ABSENT = 0.9  # share of rows without a value


def marks_found(summaries: Sequence[ColumnSummary], columns: Sequence[str]) -> list[Finding]:
    """Numbers such as 0, -1 or 999 that lie far from all else, or are all a client has where the others vary."""
    found = list[Finding]()
    for j in range(len(summaries[0].marks)):
        varied = [s for s in summaries if s.distinct[j] > VALUES]
        for s in summaries:
            for mark in s.marks[j]:
                own = _odd(mark, int(s.known[j]))
                elsewhere = s.distinct[j] == 1 and s.known[j] >= VALUES and _never_elsewhere(mark.value, j, varied)
                if own or elsewhere:
                    found.append(_mark(s, columns[j], mark, int(s.known[j]), elsewhere))
    return found


def _odd(mark: Mark, known: int) -> bool:
    frequent = mark.count >= max(3, 0.01 * known) and mark.apart >= APART
    return mark.others >= VALUES and (frequent or mark.apart >= ALONE) and mark.count < known


def _never_elsewhere(value: float, j: int, varied: Sequence[ColumnSummary]) -> bool:
    """Whether clients that vary in this column never have the value, or have it far from all else."""

    def odd(s: ColumnSummary) -> bool:
        beyond = not s.quantiles[j, 0] <= value <= s.quantiles[j, -1]
        return beyond or any(m.value == value and _odd(m, int(s.known[j])) for m in s.marks[j])

    return bool(varied) and all(odd(s) for s in varied)


def _mark(s: ColumnSummary, column: str, mark: Mark, known: int, all_of_it: bool) -> Finding:
    value, share = canonical(mark.value), mark.count / max(1, known)
    times = (
        say(
            f"in all {known:,} rows that have a value, and never where other clients vary",
            f"在全部 {known:,} 条有值的数据中都是",
        ) if all_of_it
        else say(
            f"in {mark.count:,} of {known:,} rows ({percent(share)}), far from every other value",
            f"在 {mark.count:,} 条数据（共 {known:,} 条，占 {percent(share)}）中是",
        )
    )  # fmt: skip
    return Finding(
        kind="a number for a missing value", client=s.client, column=column, number=mark.count,
        severity="warning" if mark.count >= 3 else "note",
        sentence=say(
            f"At {s.client} {column} is {value} {times}: it seems to mean that nothing was measured.",
            f"{s.client} 的 {column} {times.zh} {value}，"
            f"{'而在该列有变化的其他客户端从不出现' if all_of_it else '与其他各值相距甚远'}：看来它表示没有测量。",
        ),
        mend=say(
            f"say `missing: {{{column}: [{value}]}}`, so that it is filled and flagged, or correct it at {s.client}",
            f"写 `missing: {{{column}: [{value}]}}`，使其被填补并标记，或在 {s.client} 更正",
        ),
    )  # fmt: skip


def absent_columns(
    summaries: Sequence[ColumnSummary], columns: Sequence[str], declared: Mapping[str, Sequence[str]]
) -> list[Finding]:
    """Columns that a client (almost) never records and others do. declared: column -> what means missing there."""
    rows = np.array([s.rows for s in summaries])
    gone = 1 - np.stack([s.known for s in summaries]) / np.maximum(1, rows)[:, None]
    found = list[Finding]()
    for j, column in enumerate(columns):
        have = [s.client for s, g in zip(summaries, gone[:, j], strict=True) if g < 0.5 and s.rows]
        for s, g in zip(summaries, gone[:, j].tolist(), strict=True):
            if have and s.rows and g >= ABSENT:
                meant = declared.get(column, ())
                marks = f"; {' and '.join(meant)} counts as missing" if meant else ""
                marks_zh = f"；{'、'.join(meant)} 视为缺失" if meant else ""
                found.append(Finding(
                    kind="a column that is not recorded", client=s.client, column=column, number=round(g, 4),
                    unit="share of rows", severity="warning", others=tuple(have),
                    sentence=say(
                        f"{column} is missing in {percent(g)} of the rows at {s.client} (recorded at "
                        f"{listed(have)}{marks}): what is filled in there is the others' value.",
                        f"{s.client} 有 {percent(g)} 的数据缺少 {column}（{listed(have).zh} 有记录{marks_zh}）："
                        "那里填补的是其他客户端的值。",
                    ),
                    mend=say(
                        f"`drop: [{column}]`, or keep it with its flag and let {s.client} have private layers",
                        f"`drop: [{column}]`，或连同缺失标记一起保留，并让 {s.client} 有私有层",
                    ),
                ))  # fmt: skip
    return found
