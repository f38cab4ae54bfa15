"""Rows that are there more than once, in words: within a client, across clients, between training and test parts."""

from collections.abc import Sequence

import numpy as np

from fedroute.profile.finding import Finding, listed, percent
from fedroute.profile.own_rows import Ints, OwnRows
from fedroute.profile.repeats import Repeats
from fedroute.profile.shared_rows import RowHashes, Shared
from fedroute.said import say
from fedroute.words import count

MANY = 0.05  # of a client's rows, or of a test part, from which on results are wrong
SOME = 5  # rows
FEW = 0.005  # of a client's rows or a test part, up to which copies elsewhere, like a single one, are only noted
FROZEN = 0.01  # of a client's rows


def within(own: OwnRows, found: Repeats) -> list[Finding]:
    """One client's copies, its frozen readings, and its test rows that it trains on. Computed at the client."""
    findings = list[Finding]()
    extra = found.rows - found.effective
    copies = found.exact + found.near
    again = _again(own.rows, found.group)
    if found.fault and extra:
        findings.append(_fault(own.client, found, extra, again))
    elif found.exact:
        findings.append(Finding(
            kind="equal rows, by chance", client=own.client, number=copies, severity="note", rows=again,
            sentence=say(
                f"{count(copies, 'row')} of {found.rows:,} at {own.client} "
                f"{'equals another' if copies == 1 else 'equal others'}, as chance alone may bring among rows of so "
                "few possible values.",
                f"{own.client} 有 {copies:,} 条数据（共 {found.rows:,} 条）与其他数据相同；"
                "取值种类这么少，可能只是偶然。",
            ),
            mend=say(
                "none, unless you know them for one record: weight by examples and not by effective rows",
                "无需处理，除非确知是同一条记录：请按数据条数（examples）加权，而不要按不同数据（effective）加权",
            ),
        ))  # fmt: skip
    if found.frozen >= max(SOME, FROZEN * found.rows):
        findings.append(Finding(
            kind="frozen readings", client=own.client, number=found.frozen, severity="warning",
            sentence=say(
                f"{count(found.frozen, 'row')} of {found.rows:,} at {own.client} repeat another one at another "
                "time: a sensor that hangs, or values that were carried forward.",
                f"{own.client} 有 {found.frozen:,} 条数据（共 {found.rows:,} 条）在不同时间重复了另一条："
                "传感器卡住了，或缺失值沿用了之前的值。",
            ),
            mend=say(
                "leave out readings that do not move, or split by time so that they do not leak into the test part",
                "去掉不变的读数，或按时间划分，以免它们泄漏到测试集",
            ),
        ))  # fmt: skip
    if found.fault:
        findings += _own_leak(own, found)
    return findings


def _again(rows: Ints, group: Ints) -> tuple[int, ...]:
    """The rows whose group has an earlier one."""
    first = np.unique(group, return_index=True)[1]
    later = np.ones(len(rows), dtype=bool)
    later[first] = False
    return tuple(rows[later].tolist())


def _fault(client: str, found: Repeats, extra: int, again: tuple[int, ...]) -> Finding:
    share = extra / found.rows
    severe = share >= MANY and extra >= SOME
    nearly = "" if not found.near else " or nearly so" if found.exact else " but for a jitter"
    nearly_zh = "完全相同" if not found.near else "相同或几乎相同" if found.exact else "除微小抖动外相同"
    if found.written >= 1.5:
        many = found.written >= 2.5
        times = f"about {found.written:.0f} times" if many else "about twice"
        times_zh = f"约 {found.written:.0f} 次" if many else "约两次"
        what = say(
            f"{found.rows:,} rows at {client} are {found.effective:,} different ones, each written {times} "
            f"(equal{nearly}): weighted by rows, {client} counts {found.written:.3g} times too much.",
            f"{client} 的 {found.rows:,} 条数据其实只有 {found.effective:,} 条不同的，每条写了{times_zh}"
            f"（{nearly_zh}）：按数据条数加权时，{client} 的分量是应有的 {found.written:.3g} 倍。",
        )
    else:
        copies = "is a copy of another" if extra == 1 else "are copies of others"
        what = say(
            f"{count(extra, 'row')} of {found.rows:,} at {client} {copies} (equal{nearly}), more than chance brings.",
            f"{client} 有 {extra:,} 条数据（共 {found.rows:,} 条）是其他数据的副本（{nearly_zh}），"
            "多于偶然所能产生的。",
        )
    drop = say(f"drop the copies at {client} before loading (keep one of each)",
               f"读取数据前，在 {client} 删除副本（每条保留一份）")  # fmt: skip
    if found.near <= found.exact:
        mend = say(f"{drop}, or say `weighting: {{by: effective}}`, which counts equal rows once",
                   f"{drop.zh}；或写 `weighting: {{by: effective}}`，相同的数据只计一次")  # fmt: skip
    else:
        mend = say(
            f"{drop}, or bound its say, `weighting: {{by: uniform}}` or a `cap`: `by: effective` only knows exact "
            "copies",
            f"{drop.zh}；或限制其分量：`weighting: {{by: uniform}}` 或 `cap`，"
            "因为 `by: effective` 只认得完全相同的副本",
        )
    return Finding(
        kind="copied rows", client=client, number=extra, rows=again,
        severity="severe" if severe else "warning" if extra > 1 else "note",
        sentence=what, mend=mend,
    )  # fmt: skip


def _own_leak(own: OwnRows, found: Repeats) -> list[Finding]:
    trained = np.isin(found.group, found.group[own.part == 0])
    held = own.part > 0
    leak = trained & held
    n, all_held = int(leak.sum()), int(held.sum())
    if not n:
        return []
    return [Finding(
        kind="test rows that are trained on", client=own.client, number=n, rows=tuple(own.rows[leak].tolist()),
        severity="severe" if n >= max(SOME, MANY * all_held) else "warning" if n > max(1, FEW * all_held) else "note",
        sentence=say(
            f"{n:,} of {all_held:,} validation and test rows at {own.client} are copies of its own training rows: "
            "its scores are too good.",
            f"{own.client} 有 {n:,} 条验证和测试数据（共 {all_held:,} 条）是它自己训练数据的副本：其得分虚高。",
        ),
        mend=say(f"drop the copies at {own.client} before the split", f"划分前，在 {own.client} 删除副本"),
    )]  # fmt: skip


def across(sent: Sequence[RowHashes], found: Sequence[Shared]) -> list[Finding]:
    """What the server says of rows that two clients have."""
    findings = list[Finding]()
    for s in found:
        a, b = sent[s.a], sent[s.b]
        n = s.exact + s.near
        findings += _between(a, b, s.pairs) + _between(b, a, s.pairs[:, ::-1])
        findings.append(Finding(
            kind="rows at two clients", client=a.client, others=(b.client,), number=n,
            severity="warning" if n > max(1, FEW * min(a.size, b.size)) else "note",
            rows=tuple(np.unique(a.rows[s.pairs[:, 0]]).tolist()),
            sentence=say(
                f"{a.client} and {b.client} both have {count(n, 'row')} ({s.exact:,} equal, {s.near:,} nearly "
                "so): counted twice in training.",
                f"{a.client} 和 {b.client} 都有同样的 {n:,} 条数据（{s.exact:,} 条相同，{s.near:,} 条几乎相同）："
                "训练时被计了两次。",
            ),
            mend=say("agree on who keeps them, and drop them at the other", "商定由谁保留，另一方删除"),
        ))  # fmt: skip
    return findings


def _between(trains: RowHashes, tests: RowHashes, pairs: Ints) -> list[Finding]:
    """The rows of one client's training part that are in the other's validation or test part."""
    leak = (trains.parts[pairs[:, 0]] & 1 > 0) & (tests.parts[pairs[:, 1]] & 6 > 0)
    at = np.unique(pairs[leak, 1])
    n, held = len(at), int((tests.parts & 6 > 0).sum())
    if n == 0:
        return []
    return [Finding(
        kind="test rows that another client trains on", client=tests.client, others=(trains.client,), number=n,
        severity="severe" if n >= max(SOME, MANY * held) else "warning" if n > max(1, FEW * held) else "note",
        rows=tuple(tests.rows[at].tolist()),
        sentence=say(
            f"{n:,} of {held:,} different validation and test rows at {tests.client} ({percent(n / held)}) are "
            f"training rows at {trains.client}: the shared model has seen the answers.",
            f"{tests.client} 有 {n:,} 条不同的验证和测试数据（共 {held:,} 条，占 {percent(n / held)}）是 "
            f"{trains.client} 的训练数据：共享模型已经见过答案。",
        ),
        mend=say(
            f"drop them at {listed([trains.client, tests.client])} but for one, before the split",
            f"划分前，在 {trains.client} 和 {tests.client} 中只保留一处，其余删除",
        ),
    )]  # fmt: skip
