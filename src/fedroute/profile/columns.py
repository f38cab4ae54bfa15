"""Columns that mean something else at one client: another unit, or one column in the place of another.

Clients are compared by their quantiles. The clients that agree with most others (by rows) are the reference; who does
not agree with it is tried with the conversions between usual units. A conversion is only named where it brings the
client among the others, and where the others agree: sensors that all have a scale of their own are no unit error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedroute.profile.column_summary import SHARES, TRIMMED, ColumnSummary, Scales
from fedroute.profile.finding import Finding
from fedroute.profile.own_rows import Floats
from fedroute.said import say

FEW = 20  # rows below which quantiles say too little
APART = 0.75  # spreads, beyond which a client does not agree with the reference
FITS = 0.2  # spreads, within which a conversion fits
MEDIAN = int(np.searchsorted(SHARES, 0.5 - 1e-9))
LOW = 2  # 2.5 %
MIDDLE = slice(MEDIAN - 5, MEDIAN + 6)  # from 25 % to 75 %


class Unit(NamedTuple):
    """value here = factor x value elsewhere + offset."""

    here: str
    elsewhere: str
    factor: float
    offset: float = 0.0

    @property
    def inverse(self) -> "Unit":
        return Unit(self.elsewhere, self.here, 1 / self.factor, -self.offset / self.factor)


_KNOWN = [
    Unit("pounds", "kilograms", 2.20462), Unit("centimetres", "inches", 2.54), Unit("feet", "metres", 3.28084),
    Unit("kilometres", "miles", 1.60934), Unit("grams", "ounces", 28.3495), Unit("mm Hg", "kPa", 7.50062),
    Unit("kilojoules", "kilocalories", 4.184), Unit("km/h", "m/s", 3.6),
    Unit("mg/dl", "mmol/l (cholesterol)", 38.67), Unit("mg/dl", "mmol/l (glucose)", 18.016),
    Unit("micromol/l", "mg/dl (creatinine)", 88.42), Unit("months", "years", 12), Unit("days", "years", 365.25),
    Unit("days", "weeks", 7), Unit("hours", "days", 24), Unit("minutes", "hours", 60), Unit("seconds", "hours", 3600),
    Unit("0 to 255", "0 to 1", 255), Unit("tenths", "wholes", 10), Unit("hundredths (per cent)", "wholes", 100),
    Unit("thousandths", "wholes", 1000), Unit("millionths", "wholes", 1e6),
    Unit("degrees Fahrenheit", "degrees Celsius", 1.8, 32), Unit("kelvins", "degrees Celsius", 1, 273.15),
]  # fmt: skip
UNITS = [*_KNOWN, *(u.inverse for u in _KNOWN)]
IN_CHINESE = {  # the units that are not signs
    "pounds": "磅", "kilograms": "千克", "centimetres": "厘米", "inches": "英寸", "feet": "英尺", "metres": "米",
    "kilometres": "公里", "miles": "英里", "grams": "克", "ounces": "盎司", "mm Hg": "毫米汞柱", "kPa": "千帕",
    "kilojoules": "千焦", "kilocalories": "千卡", "mmol/l (cholesterol)": "mmol/l（胆固醇）",
    "mmol/l (glucose)": "mmol/l（葡萄糖）", "micromol/l": "微摩尔/升", "mg/dl (creatinine)": "mg/dl（肌酐）",
    "months": "月", "years": "年", "days": "天", "weeks": "周", "hours": "小时", "minutes": "分钟", "seconds": "秒",
    "0 to 255": "0 到 255", "0 to 1": "0 到 1", "tenths": "十分之一", "wholes": "整数单位",
    "hundredths (per cent)": "百分之一", "thousandths": "千分之一", "millionths": "百万分之一",
    "degrees Fahrenheit": "华氏度", "degrees Celsius": "摄氏度", "kelvins": "开尔文",
}  # fmt: skip


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
    differ by one factor): another population, or drift, is no unit."""
    found, odd = list[Finding](), dict[str, int]()
    told = 0
    for j in range(summaries[0].quantiles.shape[0]):
        usable = [s for s in summaries if s.known[j] >= 2 * FEW and s.distinct[j] > 5]
        if len(usable) < 2 or (reference := _reference(usable, j)) is None:
            continue
        told += 1
        apart = [s for s, member in zip(usable, reference.members, strict=True) if not member]
        units = [_unit(s.quantiles[j], reference, int(s.known[j])) for s in apart]
        for s in apart:
            odd[s.client] = odd.get(s.client, 0) + 1
        if all(units):
            found += [
                _finding(s, columns[j], unit, float(s.quantiles[j][MEDIAN]), float(reference.quantiles[MEDIAN]))
                for s, unit in zip(apart, units, strict=True) if unit
            ]  # fmt: skip
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


def _unit(q: Floats, reference: Reference, rows: int) -> Unit | None:
    """The conversion that fits over all quantiles, and the middle ones closely."""
    wide, r = np.array(reference.spread), reference.quantiles
    middle = max(float(r[MIDDLE][-1] - r[MIDDLE][0]), 1e-12)
    plain, noise = float(_apart(q, r, wide)), 0.7 / np.sqrt(rows)
    amounts = min(float(q[LOW]), float(r[LOW])) >= 0  # what lies on both sides of zero is scaled by many things
    units = [u for u in UNITS if amounts or u.offset or not 0.1 < u.factor < 10]
    tried = [(float(_apart((q - u.offset) / u.factor, r, wide)), u) for u in units]
    best, unit = min(tried, key=lambda t: t[0])
    off = np.abs((q - unit.offset) / unit.factor - r)[MIDDLE] / middle
    fits = best <= max(FITS + noise, 2 * reference.usual) and best <= plain / 4
    return unit if fits and off.max() <= FITS + noise else None


def _apart(a: Floats, b: Floats, spread: Floats) -> Floats:
    """Root mean square difference of quantiles, in spreads."""
    d = (a - b)[..., TRIMMED]
    found: Floats = np.sqrt((d * d).mean(-1)) / spread
    return found


def _width(q: Floats) -> float:
    return float(q[MEDIAN + 8] - q[MEDIAN - 8]) / 2.56  # 10 % to 90 %, as a standard deviation


def _finding(s: ColumnSummary, column: str, unit: Unit, here: float, there: float) -> Finding:
    back = (
        f"subtract {unit.offset:.6g} and " if unit.offset > 0 else f"add {-unit.offset:.6g} and " if unit.offset else ""
    )
    back_zh = f"减去 {unit.offset:.6g}，" if unit.offset > 0 else f"加上 {-unit.offset:.6g}，" if unit.offset else ""
    here_zh, there_zh = (IN_CHINESE.get(u, u) for u in (unit.here, unit.elsewhere))
    return Finding(
        kind="another unit", client=s.client, column=column, number=unit.factor, unit="times",
        severity="severe" if unit.offset or not 0.5 < unit.factor < 2 else "warning",  # or else another population
        sentence=say(
            f"{column} at {s.client} (median {here:.4g}) is what the others have (median {there:.4g}) in another "
            f"unit: {unit.here} where they have {unit.elsewhere}, or another factor of {unit.factor:.4g}.",
            f"{s.client} 的 {column}（中位数 {here:.4g}）与其他客户端的（中位数 {there:.4g}）内容相同而单位不同："
            f"这里用{here_zh}，其他用{there_zh}；或另有相差 {unit.factor:.4g} 倍的原因。",
        ),
        mend=say(
            f"look at {column} at {s.client}; if so, {back}divide by {unit.factor:.6g} there before loading",
            f"检查 {s.client} 的 {column}；如确实如此，读取数据前在那里{back_zh}再除以 {unit.factor:.6g}",
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
