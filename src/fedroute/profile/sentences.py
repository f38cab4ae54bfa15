"""What was found, in one sentence each that needs no statistics: English and Chinese."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from fedroute.profile.concept import Meaning
from fedroute.profile.feature import Telling
from fedroute.profile.label import LabelMix
from fedroute.profile.quantity import Sizes
from fedroute.profile.season import STAMPS
from fedroute.profile.time import Drift
from fedroute.profile.verdict import ALPHA, LIMITS, Level

Floats = NDArray[np.float64]
Said = dict[str, str]
HOW: dict[str, Said] = {
    "mild": {"en": "a little", "zh": "略有"},
    "clear": {"en": "clearly", "zh": "明显"},
    "strong": {"en": "strongly", "zh": "非常"},
}
DOUBT = 0.05  # a p below which clients are not said to be alike, though it may not be small enough to call them skewed
SEASONS = {"year": "年", "week": "周", "day": "日"}


APART: Said = {
    "en": "Clients have rows of different times, so this cannot be told from drift: see time.",
    "zh": "各客户端的数据来自不同时间，这一点与漂移无法区分：见“时间”。",
}


def of_label(
    v: Level, found: LabelMix, counts: NDArray[np.int64], labels: Sequence[str], clients: Sequence[str], apart: bool
) -> Said:
    if v == "unknown" and apart:
        return APART
    if v == "unknown":
        return {"en": "Label mixes cannot be compared: fewer than two clients have rows enough for their labels.",
                "zh": "无法比较标签构成：就标签种类而言，有足够数据的客户端不到两个。"}  # fmt: skip
    tv, chance = _percent(found.tv), _percent(found.random)
    if v == "none" and found.p is not None and found.p < DOUBT:
        little = found.p < ALPHA
        en = (
            "The mix of labels differs, and too little to matter"
            if little
            else (f"That the mix of labels differs is likely and not sure (p = {found.p:.2g}, sure below {ALPHA:g})")
        )
        zh = (
            "标签构成有差异，但小到无关紧要"
            if little
            else f"标签构成很可能有差异，但不能确定（p = {found.p:.2g}，低于 {ALPHA:g} 才算确定）"
        )
        return {"en": f"{en}: two clients disagree on {tv} of their labels on average (by chance {chance}).",
                "zh": f"{zh}：两个客户端的标签平均有 {tv} 不一致（纯属偶然时为 {chance}）。"}  # fmt: skip
    if v == "none":
        return {"en": "Labels are mixed alike at all clients, as far as their rows can tell.",
                "zh": "就现有数据看，各客户端的标签构成相同。"}  # fmt: skip
    big = np.flatnonzero(counts.sum(1) >= min(20, int(np.sort(counts.sum(1))[-2])))
    share = counts[big] / counts[big].sum(1, keepdims=True)
    k = int(np.argmax(share.max(0) - share.min(0)))
    high, low = int(share[:, k].argmax()), int(share[:, k].argmin())
    a, b = clients[big[high]], clients[big[low]]
    return {
        "en": f"The mix of labels differs {HOW[v]['en']}: {labels[k]!r} is {_percent(share[high, k])} of the rows "
              f"at {a} and {_percent(share[low, k])} at {b}; two clients disagree on {tv} of their labels on "
              f"average (by chance it would be {chance}).",
        "zh": f"标签构成{HOW[v]['zh']}不同：标签“{labels[k]}”在 {a} 占 {_percent(share[high, k])}，在 {b} 占 "
              f"{_percent(share[low, k])}；两个客户端的标签平均有 {tv} 不一致（纯属偶然时为 {chance}）。",
    }  # fmt: skip


def of_feature(v: Level, found: Telling, names: Sequence[str], clients: Sequence[str], apart: bool) -> Said:
    if v == "unknown" and apart:
        return APART
    if v == "unknown":
        return {"en": "Features cannot be compared: too few clients have rows of the same labels (and times).",
                "zh": "无法比较特征：拥有相同标签（和时间段）数据的客户端太少。"}  # fmt: skip
    if v == "none":
        return {"en": "Rows with the same label look alike at all clients: nothing in their features tells whose "
                      "they are.",
                "zh": "标签相同的数据在各客户端看起来一样：从特征看不出数据属于谁。"}  # fmt: skip
    hits = round(100 * found.auc)
    first = (
        [names[j] for j in np.argsort(-np.abs(found.shift).max(0))[:3]] if found.shift.shape[1] == len(names) else []
    )
    most = f", {', '.join(first)} above all" if first else ""
    most_zh = f"，主要体现在 {'、'.join(first)}" if first else ""
    who = clients[int(found.odd.argmax())]
    return {
        "en": f"The features differ {HOW[v]['en']} between clients at the same labels: of two rows, one from each "
              f"of two clients, a program tells which is whose {hits} times in 100 (50 is guessing){most}; {who} "
              "differs most.",
        "zh": f"标签相同时，各客户端的特征{HOW[v]['zh']}不同：从两个客户端各取一条数据，程序 100 次中有 {hits} 次能"
              f"认出归属（瞎猜为 50 次）{most_zh}；差别最大的是 {who}。",
    }  # fmt: skip


def of_quantity(v: Level, found: Sizes, clients: Sequence[str]) -> Said:
    n, equal = len(clients), f"{found.clients:.1f}"
    if v == "unknown":
        return {
            "en": "There is one client only, so sizes cannot be compared.",
            "zh": "只有一个客户端，无法比较数据量。",
        }
    share = _percent(found.largest)
    if v == "none":
        return {"en": f"Clients have similar numbers of rows: the largest, {clients[found.who]}, has {share}.",
                "zh": f"各客户端数据量相近：最大的 {clients[found.who]} 占 {share}。"}  # fmt: skip
    return {
        "en": f"Sizes differ {HOW[v]['en']}: {clients[found.who]} has {share} of the rows and weighs as much in an "
              f"average by rows; the {n} clients count as {equal} equal ones.",
        "zh": f"数据量{HOW[v]['zh']}不均：{clients[found.who]} 占全部数据的 {share}，按数据量平均时就有这么大的分"
              f"量；{n} 个客户端只相当于 {equal} 个同样大的客户端。",
    }  # fmt: skip


def of_time(
    v: Level, found: Drift | None, kinds: Sequence[str], labels: Sequence[str], dates: Sequence[str] = ()
) -> Said:
    """dates: columns that seem to be the time, where none is named."""
    if found is None and dates:
        return {
            "en": f"No time is known of the rows, so drift cannot be looked for; it seems to be in {dates[0]}: say "
            f"`time: {dates[0]}`.",
            "zh": f"数据没有指定时间，无法检查漂移；看来时间在 {dates[0]} 列：请写 `time: {dates[0]}`。",
        }
    if found is None:
        return {"en": "No time is known of the rows, so drift cannot be looked for; name the time column: `time: ...`.",
                "zh": "数据没有时间，无法检查漂移；请指定时间列：`time: ...`。"}  # fmt: skip
    season, season_zh = "", ""
    curve = found.shape
    if curve.period is not None:
        named = f"the {curve.name}" if curve.name else f"a period of {curve.period:.4g}"
        named_zh = f"{SEASONS[curve.name]}" if curve.name else f"周期 {curve.period:.4g} "
        season = f" They go round with {named}, which is not drift."
        season_zh = f"数据随{named_zh}循环变化，这不是漂移。"
    if v == "none":
        return {"en": "Data do not drift: late rows are like early ones." + season,
                "zh": "数据没有随时间漂移：后期数据与早期相同。" + season_zh}  # fmt: skip
    what = {"label": ("the mix of labels", "标签构成"), "feature": ("the features", "特征"),
            "concept": ("what features mean", "特征与标签的关系")}  # fmt: skip
    said, said_zh = " and ".join(what[k][0] for k in kinds), "和".join(what[k][1] for k in kinds)
    when, when_zh = "", ""
    if curve.jumps:
        at = [moment((found.at[j - 1] + found.at[j]) / 2) for j in curve.jumps]
        when, when_zh = f", with a jump at {', '.join(at)}", f"，在 {'、'.join(at)} 处突变"
    elif curve.gradual:
        when, when_zh = ", bit by bit", "，逐渐变化"
    gone = "".join(f" {labels[k]!r} is not seen from {moment(a)} until {moment(b)}." for k, a, b in found.vanished)
    gone_zh = "".join(f"标签“{labels[k]}”从 {moment(a)} 到 {moment(b)} 之间未出现。" for k, a, b in found.vanished)
    split, split_zh = "", ""
    if found.share > 0.5:
        split = " Clients have rows of different times, so what differs between them cannot be told from drift."
        split_zh = "各客户端的数据来自不同时间，因此客户端之间的差别与漂移无法区分。"
    verb = "changes" if len(kinds) == 1 and kinds[0] != "feature" else "change"
    return {
        "en": f"Over time {said} {verb} {HOW[v]['en']}{when}.{gone}{season}{split}".replace(". ,", ","),
        "zh": f"随着时间推移，{said_zh}{HOW[v]['zh']}改变{when_zh}。{gone_zh}{season_zh}{split_zh}",
    }


def of_concept(v: Level, found: Meaning, clients: Sequence[str], overlap: float, apart: bool, usage: bool) -> Said:
    if v == "unknown" and apart:
        return APART
    if v == "unknown":
        if found.p is None:
            return {"en": "Whether features mean the same everywhere cannot be told: no client has two "
                          "labels with rows enough, there and elsewhere.",
                    "zh": "无法判断特征的含义是否处处相同：没有客户端拥有两种在本地和别处都足够多的标签。"}  # fmt: skip
        return {"en": "Whether features mean the same everywhere cannot be told: clients' features are so different "
                      f"that hardly any are alike ({_percent(overlap)} overlap).",
                "zh": f"无法判断特征的含义是否处处相同：各客户端特征差别太大，几乎没有可比的数据（重叠 "
                      f"{_percent(overlap)}）。"}  # fmt: skip
    if v == "none" and found.interval[1] >= LIMITS["concept"][1]:
        high = _percent(found.interval[1])
        return {
            "en": "That features mean different labels at different clients is not shown, and not ruled out: of what a "
                  f"client's own rows tell, the others' may miss up to {high}; so few rows cannot say.",
            "zh": "没有迹象表明特征的含义在各客户端不同，但也不能排除：其他客户端的知识可能漏掉本地数据所能说明的多达 "
                  f"{high}，这么少的数据无法判断。",
        }  # fmt: skip
    if v == "none":
        return {
            "en": "As far as their rows can tell, the same features mean the same label at every client.",
            "zh": "就现有数据看，相同的特征在各客户端对应相同的标签。",
        }
    if usage:
        return {"en": f"Labels are given {HOW[v]['en']} differently at different clients: their rows look alike, "
                      f"and yet the rows that get the same label do not.",
                "zh": f"各客户端给标签的标准{HOW[v]['zh']}不同：数据看起来一样，但得到同一标签的数据却不一样。"
                      f""}  # fmt: skip
    who = clients[int(np.nanargmax(found.by_group))]
    lost = _percent(found.strength)
    return {
        "en": f"The same features mean {HOW[v]['en']} different labels at different clients, most at {who}: what "
              f"the others know misses {lost} of what a client's own rows tell of its labels.",
        "zh": f"相同的特征在不同客户端{HOW[v]['zh']}对应不同的标签，{who} 最甚：其他客户端的知识会漏掉本地数据所能说"
              f"明的 {lost}。",
    }  # fmt: skip


def of_all(top: str, parts: Sequence[str], unknown: Sequence[str] = (), instead: str | None = None) -> Said:
    """unknown: the kinds, beside time, of which nothing can be told. instead: what stands in the way of any diagnosis,
    in two languages (`comparable.headline`)."""
    names = {"label": ("label mix", "标签构成"), "feature": ("features", "特征"), "quantity": ("size", "数据量"),
             "time": ("time", "时间"), "concept": ("meaning of features", "特征含义")}  # fmt: skip
    if instead is not None:
        return {"en": str(instead), "zh": getattr(instead, "zh", str(instead))}
    if top == "iid" and unknown:
        which, which_zh = " and ".join(names[k][0] for k in unknown), "和".join(names[k][1] for k in unknown)
        return {"en": f"No difference between the clients was found, but of their {which} nothing can be told.",
                "zh": f"没有发现客户端之间的差别，但其{which_zh}无法判断。"}  # fmt: skip
    if top == "iid":
        return {"en": "The clients are alike, as far as their rows can tell: one model should serve all.",
                "zh": "就现有数据看，各客户端没有差别：一个模型即可满足所有客户端。"}  # fmt: skip
    rest = [p for p in parts if p != top]
    more, more_zh = "", ""
    if rest:
        more = ", and in " + " and ".join(names[p][0] for p in rest)
        more_zh = "，另外还有" + "、".join(names[p][1] for p in rest)
    if top == "time":
        return {"en": f"The data differ above all over time{more}.", "zh": f"数据的差别首先在于随时间变化{more_zh}。"}
    return {
        "en": f"The clients differ above all in {names[top][0]}{more}.",
        "zh": f"客户端的差别首先在于{names[top][1]}{more_zh}。",
    }


def moment(t: float) -> str:
    """A time for people: a date where it is a stamp, else the number."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d") if abs(t) > STAMPS else f"{t:.4g}"


def _percent(share: float) -> str:
    v = 100 * float(share)
    return f"{v:.0f} %" if v >= 9.95 or v == 0 else f"{v:.1f} %"
