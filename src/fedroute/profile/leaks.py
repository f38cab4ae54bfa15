"""Columns that should not be there: they give the answer away, or name the row or the client.

Of each column every client counts its rows by label in up to 32 bins (quantiles over all clients, names as they are,
one bin for missing), in two random halves. Two tables summed over clients tell how much of the labels' entropy the
column explains alone: probabilities from one half, judged on the other, so that many bins explain nothing by chance.
What the others explain together these tables cannot tell: the most telling one among them is named."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedroute.profile.column_summary import ColumnSummary
from fedroute.profile.finding import Finding, listed, percent
from fedroute.profile.own_rows import Floats, Ints, OwnRows
from fedroute.randomness import seed_of
from fedroute.said import Said, say

BINS = 32  # the last for missing
STRONG, PLAIN = 0.75, 0.9  # share of the labels' entropy that one column explains
WEAK = 0.3  # what the others explain at most, in the middle
PRIORS = (0.25, 4, 32)  # rows that each bin is taken to have by the labels' shares: of few rows few bins can be told
ROWS = 50  # of a client, to look at it alone
_LATER = re.compile(
    r"outcome|died|death|dead\b|deceas|mortal|surviv|discharg|follow.?up|result|recurr|relaps|readmi|complication|"
    r"(^|[_\W])(post|final|after|target|label|diagnos\w*|status|end)([_\W]|\d|$)|"
    r"死|出院|随访|结局|转归|结果|诊断|复发|预后",
    re.IGNORECASE,
)
_ID = re.compile(
    r"(^|[_\s.-])(id|uuid|guid|index|idx|no|nr|number|row|mrn)$|^id[_\s.-]|编号|序号|病历号", re.IGNORECASE
)
_LEFT_OUT = re.compile(r"^column (.+) looks like an identifier: not used")


@dataclass(frozen=True)
class LabelCounts:
    """What one client sends: (2, F + C, 32, K) rows by half, column, bin and label."""

    client: str
    counts: NDArray[np.uint32]

    @property
    def sent(self) -> int:
        return self.counts.nbytes


def bin_edges(summaries: Sequence[ColumnSummary]) -> Floats:
    """(F, 30) limits of the bins: quantiles of all clients' quantiles, weighted by rows."""
    f = summaries[0].quantiles.shape[0]
    edges = np.zeros((f, BINS - 2))
    for j in range(f):
        q = np.concatenate([s.quantiles[j] for s in summaries if s.known[j]] or [np.zeros(1)])
        w = np.concatenate([np.full(len(s.quantiles[j]), s.known[j]) for s in summaries if s.known[j]] or [np.ones(1)])
        order = np.argsort(q)
        share = (w[order].cumsum() - w[order] / 2) / w.sum()
        edges[j] = np.interp(np.linspace(0, 1, BINS)[1:-1], share, q[order])
    return edges


def label_counts(own: OwnRows, y: Ints, labels: int, edges: Floats, seed: int) -> LabelCounts:
    """y: (n,) label codes 0..labels-1."""
    rng = np.random.default_rng(seed_of(seed, "profile", "halves", own.client))
    half = rng.permutation(len(own)) % 2
    f, c = own.values.shape[1], own.codes.shape[1]
    counts = np.zeros((2, f + c, BINS, labels), dtype=np.uint32)
    for j in range(f + c):
        if j < f:
            v = own.values[:, j]
            place = np.where(np.isnan(v), BINS - 1, np.searchsorted(edges[j], v, side="right"))
        else:
            code = own.codes[:, j - f]
            place = np.where(code < 0, BINS - 1, np.minimum(code, BINS - 2))
        flat = (half * BINS + place) * labels + y
        counts[:, j] = np.bincount(flat, minlength=2 * BINS * labels).reshape(2, BINS, labels)
    return LabelCounts(own.client, counts)


def explained(counts: NDArray[np.generic]) -> Floats:
    """(F,) the share of the labels' entropy that each column explains, from 0 to 1, by the prior with which it explains
    most; (2, F, 32, K) counts. Never what a column cannot tell, and less than it could where rows are few."""
    c = counts.astype(np.float64)
    plain, told = np.zeros(c.shape[1]), np.zeros((len(PRIORS), c.shape[1]))
    for fit, judge in ((c[0], c[1]), (c[1], c[0])):
        whole = fit.sum(1) + 0.5  # (F, K)
        share = whole / whole.sum(1, keepdims=True)
        for i, prior in enumerate(PRIORS):
            p = (fit + prior * share[:, None]) / (fit.sum(2, keepdims=True) + prior)
            told[i] -= (judge * np.log(p)).sum((1, 2))
        plain -= (judge.sum(1) * np.log(share)).sum(1)
    rows = max(1.0, float(c[:, :1].sum()))
    found: Floats = np.where(plain / rows > 0.05, 1 - told.min(0) / np.maximum(plain, 1e-12), 0.0).clip(0, 1)
    return found


def leaking_columns(sent: Sequence[LabelCounts], columns: Sequence[str], bands: int = 0) -> list[Finding]:
    """Columns that explain nearly all alone while the others do not; that do so at some clients only; and those whose
    name says that they come after the outcome and that explain more than the others. The others are the columns, and
    the clients, that are not suspects themselves: a second leak does not excuse the first. bands: that a number to
    predict was cut into."""
    found = list[Finding]()
    if not sent or len(columns) < 2:
        return found
    total = np.sum([s.counts.astype(np.int64) for s in sent], axis=0)
    whole = explained(total)
    named, strong = set[int](), suspect_columns(whole)
    for j in np.argsort(-whole, kind="stable").tolist():
        rest = np.flatnonzero((np.arange(len(whole)) != j) & ~np.isin(np.arange(len(whole)), strong))
        middle = float(np.median(whole[rest])) if len(rest) else 1.0
        later = bool(_LATER.search(columns[j])) and whole[j] >= max(0.1, 2 * middle)
        if j in strong or later:
            named.add(j)
            found.append(_leak(columns[j], None, float(whole[j]), _others(columns, whole, j, strong), later, bands))
    own = [explained(s.counts) if s.counts[:, 0].sum() >= ROWS else np.zeros(len(columns)) for s in sent]
    leaks = np.zeros((len(sent), len(columns)), dtype=bool)
    free = np.array([j for j in range(len(columns)) if j not in named], dtype=np.int64)
    for i, v in enumerate(own):
        odd = free[suspect_columns(v[free])]
        leaks[i, odd[v[odd] >= PLAIN]] = True
    for j in np.flatnonzero(leaks.any(0)).tolist():
        elsewhere = [s.counts.astype(np.int64) for s, there in zip(sent, leaks[:, j], strict=True) if not there]
        share = float(explained(np.sum(elsewhere, axis=0))[j]) if elsewhere else 1.0
        if share <= 0.5:
            against = say(f"at the other clients {percent(share)}", f"在其他客户端为 {percent(share)}")
            for i in np.flatnonzero(leaks[:, j]).tolist():
                found.append(_leak(columns[j], sent[i].client, float(own[i][j]), against, False, bands))
    return found


def suspect_columns(whole: Floats) -> Ints:
    """The columns, of (F,) shares, that explain so much that it is odd: the others explain little in the middle, and
    the suspects are a quarter of the columns at most; or half of them where one explains nearly all and none of the
    others half as much as the least of them. Many good columns are no leaks."""
    top = np.flatnonzero(whole >= STRONG)
    rest = np.delete(whole, top)
    if not len(top) or not len(rest) or np.median(rest) > WEAK:
        return top[:0]
    few = len(top) <= max(1, len(whole) / 4)
    apart = len(top) <= len(whole) / 2 and whole.max() >= PLAIN and rest.max() <= whole[top].min() / 2
    return top if few or apart else top[:0]


def _others(columns: Sequence[str], whole: Floats, column: int, strong: Ints) -> Said:
    """What the other suspects explain, and the best of the columns that are none."""
    also = [j for j in strong[np.argsort(-whole[strong], kind="stable")].tolist() if j != column]
    told = [f"{columns[j]} ({percent(float(whole[j]))})" for j in also]
    so = say(f"so does {told[0]}; ", f"{told[0]} 也是如此；") if len(told) == 1 else say("", "")
    if len(told) > 1:
        names = listed(told)
        so = say(f"so do {names}; ", f"{names.zh} 也是如此；")
    rest = np.delete(np.arange(len(whole)), [column, *also])
    best = int(rest[whole[rest].argmax()]) if len(rest) else column
    share = float(whole[best])
    if not len(rest) or share < 0.01:
        return say(f"{so}no other column alone explains even 1 %", f"{so.zh}其他任何一列单独解释的都不到 1 %")
    return say(f"{so}of the others {columns[best]} alone explains most, {percent(share)}",
               f"{so.zh}其他各列中单独解释最多的是 {columns[best]}，为 {percent(share)}")  # fmt: skip


def _leak(column: str, client: str | None, strength: float, against: Said, later: bool, bands: int) -> Finding:
    where = f" at {client}" if client else ""
    name = " Its name says that it is known only afterwards." if later else ""
    where_zh = f"在 {client}，" if client else ""
    name_zh = "从名称看，它要到事后才知道。" if later else ""
    cut = f", a number cut into {bands} bands" if bands else ""
    cut_zh = f"，数值标签分为 {bands} 段" if bands else ""
    return Finding(
        kind="a column that gives the answer away", client=client, column=column, number=round(strength, 4),
        unit=f"share of the labels' entropy{cut}", severity="severe" if strength >= PLAIN else "warning",
        sentence=say(
            f"{column} alone explains {percent(strength)} of the label{where}; {against} (shares of the label's "
            f"entropy{cut}: how much less there is left to guess).{name} "
            "Is it known when the answer is needed, or made from it?",
            f"{where_zh}仅 {column} 一列就能解释标签的 {percent(strength)}；{against.zh}（占标签熵的比例{cut_zh}："
            f"即需要猜测的不确定性减少多少）。{name_zh}"
            "需要答案时它已经知道了吗，还是由答案得出的？",
        ),
        mend=say(
            f"if it is made after the outcome: `drop: [{column}]`", f"如果它是在结果之后产生的：`drop: [{column}]`"
        ),
    )  # fmt: skip


def naming_columns(summaries: Sequence[ColumnSummary], columns: Sequence[str], notes: Sequence[str]) -> list[Finding]:
    """Columns that name the row (a number of its own for each) or the client (one value there, another elsewhere)."""
    found = [
        Finding(
            kind="an identifier", client=None, column=m[1], number=1, unit="columns", severity="note",
            sentence=say(
                f"{m[1]} tells rows apart and nothing else: it was left out when the data were read.",
                f"{m[1]} 只能区分各条数据，别无他用：读取数据时已略去。",
            ),
            mend=say(
                f"none; to use it all the same, name it in `features`, or `drop: [{m[1]}]` to say so",
                f"无需处理；若仍要使用，请写入 `features`，或用 `drop: [{m[1]}]` 明确略去",
            ),
        )
        for note in notes if (m := _LEFT_OUT.match(note))
    ]  # fmt: skip
    big = [s for s in summaries if s.rows >= 20]
    f = summaries[0].quantiles.shape[0]
    for j, column in enumerate(columns):
        if big and sum(_names_rows(s, j, f, column) for s in big) > len(big) / 2:
            found.append(Finding(
                kind="an identifier", client=None, column=column, number=1, unit="columns", severity="warning",
                sentence=say(
                    f"{column} has another value in (nearly) every row: a model learns the rows by heart with it.",
                    f"{column} 在（几乎）每条数据中的值都不同：模型会借它把数据背下来。",
                ),
                mend=say(f"`drop: [{column}]`", f"略去该列：`drop: [{column}]`"),
            ))  # fmt: skip
        elif len(big) > 1 and all(s.known[j] and s.distinct[j] == 1 for s in big):
            only = {s.single[j] for s in big}
            if len(only) > 1:
                found.append(Finding(
                    kind="a column that names the client", client=None, column=column, number=len(only), unit="values",
                    severity="warning",
                    sentence=say(
                        f"{column} has one value at each client and {len(only)} over all: it says whose a row is, "
                        "and nothing about the row.",
                        f"{column} 在每个客户端只有一个值，全体共 {len(only)} 个：它只说明数据属于谁，与数据本身无关。",
                    ),
                    mend=say(
                        f"`drop: [{column}]`, unless it is a fact about the place that a new client has too",
                        f"`drop: [{column}]`，除非它是关于所在地的事实，新客户端也会有",
                    ),
                ))  # fmt: skip
    return found


def _names_rows(s: ColumnSummary, j: int, numeric: int, column: str) -> bool:
    distinct, known = int(s.distinct[j]), int(s.known[j])
    if j >= numeric:
        return known >= 20 and distinct > 0.9 * known
    if not s.whole[j] or known < 20 or distinct < 0.95 * known:
        return False
    span = max(1.0, float(s.quantiles[j, -1] - s.quantiles[j, 0]))
    repeats = known * (known - 1) / 2 / span  # that so many whole numbers in that span would have
    return bool(s.rising[j] or (distinct == known and repeats > 8) or _ID.search(column))
