"""Federations of which nothing can be told: one client, one label, a label for nearly every row, too few rows, and
columns that say nothing."""

from collections.abc import Sequence

import numpy as np
import torch

from fedroute.data.federation import Federation
from fedroute.profile.column_summary import ColumnSummary
from fedroute.profile.finding import Finding, listed
from fedroute.said import Said, say
from fedroute.words import noun

ONE_CLIENT, ONE_LABEL, MANY_LABELS = "one client", "one label", "nearly as many labels as rows"
FEW_ROWS, NOTHING_VARIES = "too few rows to compare", "no column varies"
UNTOLD = (ONE_LABEL, MANY_LABELS, NOTHING_VARIES, ONE_CLIENT, FEW_ROWS)
"""Of which the profile's headline speaks, the first that is there; the last only where no skew was found."""
LABELS = 20  # from which on they may be too many
OFTEN = 2  # times that a label occurs on average, at fewer it names rows
SHOWN = 20  # columns in a mend
ROWS = 10  # training and validation rows of two clients at least, to be compared


def hindrances(federation: Federation) -> list[Finding]:
    """What stands in the way of learning or of comparing clients, from numbers of rows of each client and label."""
    used = (federation.sizes("train") + federation.sizes("validation")).tolist()
    there = [c for c, n in zip(federation.clients, used, strict=True) if n]
    if not there:
        return []
    found = _of_labels(federation)
    if len(there) == 1:
        found.append(Finding(
            kind=ONE_CLIENT, client=there[0], number=1, unit="clients", severity="warning",
            sentence=say(
                f"Only one client, {there[0]}, has rows: there is nothing to compare, and nobody to learn with.",
                f"只有一个客户端 {there[0]} 有数据：无从比较，也没有人可以一起学习。",
            ),
            mend=say(
                "name the column that says whose a row is, `client: ...`, or deal the rows, `partition: ...`",
                "请指定说明数据归属的列：`client: ...`，或分配数据：`partition: ...`",
            ),
        ))  # fmt: skip
    elif sum(n >= ROWS for n in used) < 2:
        found.append(Finding(
            kind=FEW_ROWS, client=None, number=max(used), severity="warning",
            sentence=say(
                f"No two clients have {ROWS} rows beside their test rows: too few to tell whether they differ.",
                f"没有两个客户端在测试数据之外各有 {ROWS} 条数据：太少，无法判断它们是否不同。",
            ),
            mend=say(
                "collect more rows, or make one client of several that belong together, by another `client: ...`",
                "请收集更多数据，或换用另一列 `client: ...`，把同类的客户端合并",
            ),
        ))  # fmt: skip
    return found


def _of_labels(federation: Federation) -> list[Finding]:
    y = federation.y[torch.cat([*federation.train, *federation.validation, *federation.test])]
    if y.ndim != 1 or not len(y):
        return []
    values, times = y.unique(return_counts=True)
    if len(values) == 1:
        number = y.is_floating_point() or not federation.labels
        name = f"{float(values[0]):g}" if number else f"{federation.labels[int(values[0])]!r}"
        return [_severe(
            ONE_LABEL, len(y), "rows",
            say(
                f"All {len(y):,} rows have the one label {name}: there is nothing to learn.",
                f"全部 {len(y):,} 条数据的标签都是 {name}：没有可学的东西。",
            ),
            say(
                "name the column that varies, `label: ...` (see also `positive: ...`), or add rows of another label",
                "请指定有变化的列：`label: ...`（另见 `positive: ...`），或加入其他标签的数据",
            ),
        )]  # fmt: skip
    if y.is_floating_point() or len(values) < LABELS or len(y) >= OFTEN * len(values):
        return []
    once = int((times == 1).sum())
    numbers = all(_number(name) for name in federation.labels)
    mend = say(
        "if it is a number to predict: `label_as: number`, or cut it with `bands: [...]`; if it names rows: another "
        "`label: ...`",
        "如果它是要预测的数：`label_as: number`，或用 `bands: [...]` 分段；如果它是编号：换用另一个 `label: ...`",
    ) if numbers else say(
        "it seems to name rows: name another column, `label: ...`, or call alike what is alike with `label_names: ...`",
        "看来它是数据的名称：换用另一列 `label: ...`，或用 `label_names: ...` 统一名称",
    )  # fmt: skip
    return [_severe(
        MANY_LABELS, len(values), "labels",
        say(
            f"{len(y):,} rows have {len(values):,} different labels, {once:,} of them once: an identifier or a number, "
            "no classes that could be learned.",
            f"{len(y):,} 条数据有 {len(values):,} 种标签，其中 {once:,} 种只出现一次：这是编号或数值，"
            "不是可以学习的类别。",
        ),
        mend,
    )]  # fmt: skip


def bare_columns(summaries: Sequence[ColumnSummary], columns: Sequence[str]) -> list[Finding]:
    """Columns without any value, and columns with the same value in all rows of all clients."""
    rows, found = sum(s.rows for s in summaries), list[Finding]()
    empty, constant = list[str](), list[str]()
    for j, column in enumerate(columns):
        known = sum(int(s.known[j]) for s in summaries)
        values = {s.single[j] for s in summaries if s.known[j]}
        if not known:
            empty.append(column)
        elif known == rows > 1 and len(values) == 1 and not np.isnan(values.pop()):  # NaN: of several values
            constant.append(column)
    for kind, those, what in (
        ("an empty column", empty, say("no value in any row", "在所有数据中都没有值")),
        ("a constant column", constant, say("the same value in every row", "在所有数据中都是同一个值")),
    ):
        if those:
            named, drop = listed(those), ", ".join(those[:SHOWN]) + (", ..." if len(those) > SHOWN else "")
            found.append(Finding(
                kind=kind, client=None, column=", ".join(those), number=len(those), unit="columns",
                severity="warning" if those is empty else "note",
                sentence=say(
                    f"{named} {noun(len(those), 'has', 'have')} {what}: nothing can be learned from that.",
                    f"{named.zh} {what.zh}：从中学不到任何东西。",
                ),
                mend=say(
                    f"`drop: [{drop}]`, or mend the files if values should be there",
                    f"`drop: [{drop}]`，或在文件中补上应有的值",
                ),
            ))  # fmt: skip
    if columns and len(empty) + len(constant) == len(columns):
        found.append(_severe(
            NOTHING_VARIES, len(columns), "columns",
            say("No column varies: there is nothing to tell rows or clients apart by.",
                "没有任何一列有变化：无从区分数据或客户端。"),
            say("use columns that vary: `features: ...`", "请使用有变化的列：`features: ...`"),
        ))  # fmt: skip
    return found


def headline(findings: Sequence[Finding], alike: bool) -> Said | None:
    """The sentence that stands in the place of the diagnosis, where there is one. alike: no skew was found."""
    there = {f.kind: f.sentence for f in reversed(findings)}
    return next((there[k] for k in UNTOLD if k in there and (alike or k != FEW_ROWS)), None)


def _severe(kind: str, number: float, unit: str, sentence: Said, mend: Said) -> Finding:
    return Finding(
        kind=kind, client=None, number=number, unit=unit, severity="severe", sentence=sentence, mend=mend
    )  # fmt: skip


def _number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
