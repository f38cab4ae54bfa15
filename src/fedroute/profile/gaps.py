"""Values that are not there: a number written for "not known", and columns that a client does not record."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import binom

from fedroute.data.rows import canonical
from fedroute.profile.column_summary import ColumnSummary, Mark
from fedroute.profile.finding import Finding, listed, percent
from fedroute.said import say

APART = 1.25  # spreads between a mark and all other values, where it is frequent
ALONE = 4.0  # and where it is not
VALUES = 10  # different others there must be, for a mark to look like one
ABSENT = 0.9  # share of rows without a value
MORE = 0.25  # share of rows, by which a client lacks more values than half of the clients do
ROWS = 20  # of a client, for its gaps to say something
CHANCE = 1e-6  # of so many gaps, were they as frequent as at that half of the clients


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


def unequal_gaps(summaries: Sequence[ColumnSummary], columns: Sequence[str]) -> list[Finding]:
    """Columns that a client records of some rows only, while at least half of the clients have (nearly) all or far
    more of theirs. One finding for each column."""
    big = [s for s in summaries if s.rows >= ROWS]
    found = list[Finding]()
    for j, column in enumerate(columns if len(big) > 1 else ()):
        gone = [1 - int(s.known[j]) / s.rows for s in big]
        half = sorted(range(len(big)), key=lambda i: gone[i])[: (len(big) + 1) // 2]
        usual = max(gone[i] for i in half)
        rate = (sum(big[i].rows * gone[i] for i in half) + 1) / (sum(big[i].rows for i in half) + 2)
        high = {
            s.client: g
            for s, g in zip(big, gone, strict=True)
            if usual + MORE <= g < ABSENT and binom.sf(round(g * s.rows) - 1, s.rows, rate) < CHANCE
        }
        if not high:
            continue
        named = listed([f"{c} ({percent(g)})" for c, g in high.items()])
        who = listed(list(high))
        found.append(Finding(
            kind="a column with gaps at some clients", client=next(iter(high)) if len(high) == 1 else None,
            others=tuple(high) if len(high) > 1 else (), column=column, number=round(max(high.values()), 4),
            unit="share of rows", severity="warning",
            sentence=say(
                f"{column} is missing far more often at {named} than elsewhere (half of the clients: {percent(usual)} "
                "at most): what is filled in there is the training rows' usual value, and a gap may tell who has the "
                "row.",
                f"{column} 在 {named.zh} 缺失得比别处多得多（半数客户端最多 {percent(usual)}）："
                "那里填补的是训练数据的常见值，而缺失本身可能透露数据归属。",
            ),
            mend=say(
                f"ask at {who} of which rows it is measured; keep it with its flag only if that will be so later too, "
                f"else `drop: [{column}]`",
                f"请向 {who.zh} 询问哪些数据才测量该列；只有以后也如此时才连同缺失标记一起保留，"
                f"否则 `drop: [{column}]`",
            ),
        ))  # fmt: skip
    return found
