"""Rows that are there more than once, in words: within a client, across clients, between training and test parts."""

from collections.abc import Sequence

import numpy as np

from fedroute.profile.finding import Finding, listed, percent
from fedroute.profile.own_rows import Ints, OwnRows
from fedroute.profile.repeats import Repeats
from fedroute.profile.shared_rows import RowHashes, Shared
from fedroute.words import count

MANY = 0.05  # of a client's rows, or of a test part, from which on results are wrong
SOME = 5  # rows
FEW = 0.005  # of a client's rows or a test part, up to which rows that are nearly equal elsewhere are left at that
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
            sentence=f"{count(copies, 'row')} of {found.rows:,} at {own.client} "
            f"{'equals another' if copies == 1 else 'equal others'}, no more than rows of so few possible values do.",
            mend="none: they are rows in their own right, so weight by examples and not by effective rows",
        ))  # fmt: skip
    if found.frozen >= max(SOME, FROZEN * found.rows):
        findings.append(Finding(
            kind="frozen readings", client=own.client, number=found.frozen, severity="warning",
            sentence=f"{count(found.frozen, 'row')} of {found.rows:,} at {own.client} repeat another one at another "
            "time: a sensor that hangs, or values that were carried forward.",
            mend="leave out readings that do not move, or split by time so that they do not leak into the test part",
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
    if found.written >= 1.5:
        times = f"about {found.written:.0f} times" if found.written >= 2.5 else "about twice"
        what = (f"{found.rows:,} rows at {client} are {found.effective:,} different ones, each written {times} "
                f"(equal{nearly}): weighted by rows, {client} counts {found.written:.3g} times too much.")  # fmt: skip
    else:
        copies = "is a copy" if extra == 1 else "are copies"
        what = (f"{count(extra, 'row')} of {found.rows:,} at {client} {copies} of others (equal{nearly}), more than "
                "chance brings.")  # fmt: skip
    mend = f"drop the copies at {client} before loading (keep one of each)"
    if found.near <= found.exact:
        mend += ", or say `weighting: {by: effective}`, which counts equal rows once"
    else:
        mend += ", or bound its say, `weighting: {by: uniform}` or a `cap`: `by: effective` only knows exact copies"
    return Finding(
        kind="copied rows", client=client, number=extra, severity="severe" if severe else "warning", rows=again,
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
        severity="severe" if n >= max(SOME, MANY * all_held) else "warning" if n > FEW * all_held else "note",
        sentence=f"{n:,} of {all_held:,} validation and test rows at {own.client} are copies of its own training rows: "
        "its scores are too good.",
        mend=f"drop the copies at {own.client} before the split",
    )]  # fmt: skip


def across(sent: Sequence[RowHashes], found: Sequence[Shared]) -> list[Finding]:
    """What the server says of rows that two clients have."""
    findings, chance, alike = list[Finding](), 0, 0
    for s in found:
        a, b = sent[s.a], sent[s.b]
        n = s.exact + s.near
        if not s.beyond_chance or (not s.exact and n <= max(2, FEW * min(len(a.exact), len(b.exact)))):
            chance, alike = chance + s.exact, alike + s.near
            continue
        findings += _between(a, b, s.pairs) + _between(b, a, s.pairs[:, ::-1])
        findings.append(Finding(
            kind="rows at two clients", client=a.client, others=(b.client,), number=n,
            severity="warning" if n > FEW * min(a.size, b.size) else "note",
            rows=tuple(np.unique(a.rows[s.pairs[:, 0]]).tolist()),
            sentence=f"{a.client} and {b.client} both have {count(n, 'row')} ({s.exact:,} equal, {s.near:,} nearly "
            "so): counted twice in training.",
            mend="agree on who keeps them, and drop them at the other",
        ))  # fmt: skip
    if chance or alike:
        findings.append(Finding(
            kind="equal rows at two clients, by chance", client=None, number=chance + alike, severity="note",
            sentence=f"{count(chance, 'row is', 'rows are')} equal and {alike:,} nearly so at two clients, no more "
            "than rows of so few possible values are, or too few to matter.", mend="none",
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
        severity="severe" if n >= max(SOME, MANY * held) else "warning" if n > FEW * held else "note",
        rows=tuple(tests.rows[at].tolist()),
        sentence=f"{n:,} of {held:,} different validation and test rows at {tests.client} ({percent(n / held)}) are "
        f"training rows at {trains.client}: the shared model has seen the answers.",
        mend=f"drop them at {listed([trains.client, tests.client])} but for one, before the split",
    )]  # fmt: skip
