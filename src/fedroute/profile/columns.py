"""Columns that mean something else at one client: another unit, or one column in the place of another.

Clients are compared by their quantiles. The clients that agree with most others (by rows) are the reference; who does
not agree with it is tried with the conversions between usual units that the column's name does not contradict. A
conversion is only named where it brings the client among the others, in place and width, and where the others agree:
sensors that all have a scale of their own are no unit error. Quantiles cannot tell a unit from a level of one's own (a
shop seven times as large), so that it is called severe only where the name says what is measured, or the factor is a
large power of ten, and where no honest level lies so far, by what rows vary within clients."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedroute.profile.column_summary import SHARES, TRIMMED, ColumnSummary, Scales
from fedroute.profile.finding import Finding
from fedroute.profile.own_rows import Floats
from fedroute.profile.units import IN_CHINESE, Unit, measured, units_of
from fedroute.said import say

FEW = 20  # rows below which quantiles say too little
APART = 0.75  # spreads, beyond which a client does not agree with the reference
FITS = 0.2  # spreads, within which a conversion fits
WIDTHS = 0.15  # of the spread, by which it may differ once converted, and twice its chance
FAR = 2.5  # spreads of (log-)values within clients, as far as which an honest level may lie
LEVEL = 2.0  # times the others' level, from which on it is worth a note
ROUND = (100, 1000, 1e6)  # factors that anything may be miswritten by
MEDIAN = int(np.searchsorted(SHARES, 0.5 - 1e-9))
LOW = 2  # 2.5 %
MIDDLE = slice(MEDIAN - 5, MEDIAN + 6)  # from 25 % to 75 %


@dataclass(frozen=True)
class Reference:
    """quantiles: (25,) of the clients that agree; spread: of their values; usual: how far they lie from it; members."""

    quantiles: Floats
    spread: float
    usual: float
    members: Floats


def units_found(summaries: Sequence[ColumnSummary], columns: Sequence[str]) -> list[Finding]:
    """A client's column that a usual conversion brings among the others'. Only where a conversion is found for all
    clients that do not agree with the others, and only where most of the client's columns are as the others' (or all
    differ by one factor): another population, or drift, is no unit. What is as the others' but for a factor that is no
    unit's is noted as another level."""
    found, odd = list[Finding](), dict[str, int]()
    told = 0
    for j in range(summaries[0].quantiles.shape[0]):
        usable = [s for s in summaries if s.known[j] >= 2 * FEW and s.distinct[j] > 5]
        if len(usable) < 2 or (reference := _reference(usable, j)) is None:
            continue
        told += 1
        apart = [s for s, member in zip(usable, reference.members, strict=True) if not member]
        units = [_unit(s.quantiles[j], reference, int(s.known[j]), columns[j]) for s in apart]
        for s, unit in zip(apart, units, strict=True):
            odd[s.client] = odd.get(s.client, 0) + 1
            if unit and all(units):
                found.append(_finding(s, columns[j], unit, s.quantiles[j], reference))
            elif factor := _level(s.quantiles[j], reference, int(s.known[j])):
                found.append(_another_level(s, columns[j], factor))
    return [f for f in found if odd[str(f.client)] <= max(2, told / 3) or _one_factor(found, f, odd[str(f.client)])]


def _one_factor(found: Sequence[Finding], f: Finding, odd: int) -> bool:
    same = [g for g in found if g.client == f.client and g.number == f.number]
    return len(same) >= max(3, 0.8 * odd)


def _reference(usable: Sequence[ColumnSummary], j: int) -> Reference | None:
    q = np.stack([s.quantiles[j] for s in usable])
    rows = np.array([s.known[j] for s in usable], dtype=np.float64)
    spread = np.array([_width(v) for v in q])
    if not (spread > 0).all():
        return None
    near = _apart(q[:, None], q[None], np.maximum(spread[:, None], spread[None])) <= APART / 2 + 2 / np.sqrt(
        np.minimum(rows[:, None], rows[None])
    )
    centre = int(np.argmax((near * rows).sum(1) + rows / rows.sum()))
    members = near[centre]
    if rows[members].sum() < 0.5 * rows.sum() or members.sum() < len(usable) / 2:
        return None
    mean = (q[members] * rows[members, None]).sum(0) / rows[members].sum()
    width = _width(mean)
    usual = float(np.median(_apart(q[members], mean, np.array(width))))
    return Reference(mean, width, usual, members | (_apart(q, mean, np.array(width)) <= APART + 3 / np.sqrt(rows)))


def _unit(q: Floats, reference: Reference, rows: int, column: str) -> Unit | None:
    """The conversion that fits, of those that the column's name allows."""
    r = reference.quantiles
    amounts = _amounts(q, r)  # what lies on both sides of zero is scaled by many things
    units = [u for u in units_of(column) if amounts or u.offset or not 0.1 < u.factor < 10]
    named = measured(column)
    if not named:
        units = [u for u in units if u.offset or not 1 / LEVEL < u.factor < LEVEL]
    units = [u for u in units if u.of != "grey" or max(float(q[-1]), float(r[-1]) * u.factor) <= max(1.0, u.factor)]
    fitting = [(off, u) for u in units if (off := _fits((q - u.offset) / u.factor, q, reference, rows)) is not None]
    if not fitting:
        return None
    unit = min(fitting, key=lambda t: t[0])[1]
    # an offset that is small beside the values is no evidence: any scale fits as well
    return None if unit.offset and unit.of not in named and _level(q, reference, rows) else unit


def _fits(converted: Floats, q: Floats, reference: Reference, rows: int) -> float | None:
    """How far the converted quantiles are from the others', in spreads, where they fit: all of them, the middle ones
    closely, and the spread."""
    wide, r = np.array(reference.spread), reference.quantiles
    off, noise = float(_apart(converted, r, wide)), 0.7 / np.sqrt(rows)
    middle = max(float(r[MIDDLE][-1] - r[MIDDLE][0]), 1e-12)
    fits = off <= max(FITS + noise, 2 * reference.usual) and off <= float(_apart(q, r, wide)) / 4
    fits = fits and float(np.abs(converted - r)[MIDDLE].max()) / middle <= FITS + noise
    ratio = abs(float(np.log(max(_width(converted), 1e-300) / reference.spread)))
    return off if fits and ratio <= WIDTHS + 2 / np.sqrt(rows) else None


def _level(q: Floats, reference: Reference, rows: int) -> float | None:
    """How many times the others' level, where that is all that differs."""
    r = reference.quantiles
    if not _amounts(q, r) or min(float(q[MEDIAN]), float(r[MEDIAN])) <= 0:
        return None
    factor = float(q[MEDIAN] / r[MEDIAN])
    far = not 1 / LEVEL < factor < LEVEL
    return factor if far and _fits(q / factor, q, reference, rows) is not None else None


def _amounts(q: Floats, r: Floats) -> bool:
    return min(float(q[LOW]), float(r[LOW])) >= 0


def _beyond_honest(unit: Unit, reference: Reference) -> bool:
    """Whether the conversion moves a value farther than clients' honest levels differ."""
    r = reference.quantiles
    if unit.offset:
        return abs(unit.offset) / max(1.0, unit.factor) > FAR * reference.spread
    if float(r[LOW]) <= 0:  # of its upper half
        half = float(np.log(r[MEDIAN + 8] / r[MEDIAN])) / 1.28 if r[MEDIAN] > 0 else 1.0
        return abs(float(np.log(unit.factor))) > FAR * half
    return abs(float(np.log(unit.factor))) > FAR * float(np.log(r[MEDIAN + 8] / r[MEDIAN - 8])) / 2.56


def _apart(a: Floats, b: Floats, spread: Floats) -> Floats:
    """Root mean square difference of quantiles, in spreads."""
    d = (a - b)[..., TRIMMED]
    found: Floats = np.sqrt((d * d).mean(-1)) / spread
    return found


def _width(q: Floats) -> float:
    return float(q[MEDIAN + 8] - q[MEDIAN - 8]) / 2.56  # 10 % to 90 %, as a standard deviation


def _finding(s: ColumnSummary, column: str, unit: Unit, q: Floats, reference: Reference) -> Finding:
    here, there, times = float(q[MEDIAN]), float(reference.quantiles[MEDIAN]), unit.factor
    back = (
        f"subtract {unit.offset:.6g} and " if unit.offset > 0 else f"add {-unit.offset:.6g} and " if unit.offset else ""
    )
    back_zh = f"减去 {unit.offset:.6g}，" if unit.offset > 0 else f"加上 {-unit.offset:.6g}，" if unit.offset else ""
    here_zh, there_zh = (IN_CHINESE.get(u, u) for u in (unit.here, unit.elsewhere))
    sure = unit.of in measured(column) or unit.of == "grey" or bool(unit.offset)
    sure |= any(np.isclose(max(times, 1 / times), f) for f in ROUND) or (not unit.of and _measured(column))
    sure &= bool(unit.offset) or not 1 / LEVEL < times < LEVEL
    severe = sure and (bool(unit.offset and unit.of in measured(column)) or _beyond_honest(unit, reference))
    if severe:
        sentence = say(
            f"{column} at {s.client} (median {here:.4g}) is what the others have (median {there:.4g}) in another "
            f"unit: {unit.here} where they have {unit.elsewhere}, or another factor of {times:.4g}.",
            f"{s.client} 的 {column}（中位数 {here:.4g}）与其他客户端的（中位数 {there:.4g}）内容相同而单位不同："
            f"这里用{here_zh}，其他用{there_zh}；或另有相差 {times:.4g} 倍的原因。",
        )
    else:
        sentence = say(
            f"{column} at {s.client} (median {here:.4g}) is to the others' (median {there:.4g}) as {unit.here} to "
            f"{unit.elsewhere}, {times:.4g} times: another unit, or honestly another level?",
            f"{s.client} 的 {column}（中位数 {here:.4g}）与其他客户端的（中位数 {there:.4g}）之比，如同{here_zh}与"
            f"{there_zh}之比，即 {times:.4g} 倍：是单位不同，还是水平确实不同？",
        )
    return Finding(
        kind="another unit", client=s.client, column=column, number=times, unit="times",
        severity="severe" if severe else "warning", sentence=sentence,
        mend=say(
            f"look at {column} at {s.client}; if so, {back}divide by {unit.factor:.6g} there before loading",
            f"检查 {s.client} 的 {column}；如确实如此，读取数据前在那里{back_zh}再除以 {unit.factor:.6g}",
        ),
    )  # fmt: skip


def _measured(column: str) -> bool:
    """Whether the name says that an instrument measures it, so that it has a unit that may be ten times another."""
    return bool(measured(column) - {"money", "count"})


def _another_level(s: ColumnSummary, column: str, factor: float) -> Finding:
    return Finding(
        kind="another level", client=s.client, column=column, number=factor, unit="times", severity="note",
        sentence=say(
            f"{column} at {s.client} is {factor:.3g} times the others' level, and else like theirs: another unit, or "
            "honestly another level?",
            f"{s.client} 的 {column} 是其他客户端水平的 {factor:.3g} 倍，其余相同：是单位不同，还是水平确实不同？",
        ),
        mend=say(
            f"look at {column} at {s.client}; an honest level needs no mend",
            f"检查 {s.client} 的 {column}；若水平确实如此，则无须修正",
        ),
    )  # fmt: skip


def swaps_found(summaries: Sequence[ColumnSummary], columns: Sequence[str], scale: Scales) -> list[Finding]:
    """Columns of one client that fit the others' columns of other names, and not those of their own."""
    from scipy.optimize import linear_sum_assignment

    found = list[Finding]()
    f = summaries[0].quantiles.shape[0]
    if f < 2 or len(summaries) < 2:
        return found
    for s in summaries:
        rest = [r for r in summaries if r is not s and r.rows >= FEW]
        use = [j for j in range(f) if s.known[j] >= FEW and s.distinct[j] > 1 and any(r.known[j] >= FEW for r in rest)]
        if len(use) < 2 or not rest:
            continue
        others = np.stack([_pooled(rest, j) for j in use])
        width = np.array(
            [
                max(_width(q), 1e-9 * max(1.0, abs(q[MEDIAN])), 0.1 * scale.spread[j])
                for q, j in zip(others, use, strict=True)
            ]
        )
        own = s.quantiles[use]
        cost = _apart(own[:, None], others[None], width[None])  # own column a as the others' column b
        cost = np.minimum(cost, 10)
        a, b = linear_sum_assignment(cost)
        moved = [
            (i, int(k))
            for i, k in zip(a, b, strict=True)
            if i != k and cost[i, i] > 2 * APART and cost[i, k] < APART / 2
        ]
        inside = {i for i, _ in moved}
        if (
            len(moved) >= 2
            and {k for _, k in moved} == inside
            and len(moved) >= 0.5 * (np.diag(cost) > 2 * APART).sum()
        ):
            names = [columns[use[i]] for i, _ in moved]
            pairs = [(columns[use[i]], columns[use[k]]) for i, k in moved[:6]]
            fit, fit_zh = (sep.join(f"{a} {holds} {b}" for a, b in pairs)
                           for sep, holds in ((", ", "holds"), ("，", "中是")))  # fmt: skip
            found.append(Finding(
                kind="columns in each other's place", client=s.client, column=", ".join(names), number=len(moved),
                unit="columns", severity="severe",
                sentence=say(
                    f"At {s.client} {len(moved)} columns look like others' columns of another name: {fit}.",
                    f"{s.client} 有 {len(moved)} 列看起来像其他客户端另一名称的列：{fit_zh}。",
                ),
                mend=say(
                    f"look at the header of {s.client}'s file and put the names over the right columns",
                    f"检查 {s.client} 文件的表头，使名称与列对应",
                ),
            ))  # fmt: skip
    return found


def _pooled(rest: Sequence[ColumnSummary], j: int) -> Floats:
    """(25,) the median of the others' quantiles."""
    found: Floats = np.median(np.stack([r.quantiles[j] for r in rest if r.known[j] >= FEW]), 0)
    return found
