"""Labels in each other's place at a client: by what the others know, each of its rows of one label is of another."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedroute.profile.concept import Meaning, Taken
from fedroute.profile.finding import Finding, listed, percent
from fedroute.profile.verdict import ALPHA
from fedroute.said import say

KIND = "labels in each other's place"
FEW = 1 / 3  # of the clients judged: were it more, nobody could say who has them exchanged
MOST = 0.5  # of a label's rows that are taken for one and the same other label
SURE = 2.0  # deviations, at most, between the two shares of a label's rows
STRONG = 0.2  # of what a client's features tell, missed by the others


def exchanged(meaning: Meaning, clients: Sequence[str], labels: Sequence[str]) -> list[Finding]:
    """A client whose labels the others' means take for each other: most rows of each for the label whose name it seems
    to bear, fewer than chance for its own, while by the client's own means they are told well."""
    judged = [i for i, t in enumerate(meaning.taken) if t is not None]
    strange = [i for i in judged if meaning.by_group[i] > STRONG and meaning.p_by_group[i] < ALPHA]
    if len(judged) < 3 or len(strange) > FEW * len(judged):
        return []
    found = list[Finding]()
    for i in strange:
        told = meaning.taken[i]
        if told is not None and (pairs := _pairs(told)):
            found.append(_finding(clients[i], [(labels[a], labels[b]) for a, b in pairs], told))
    return found


def _pairs(t: Taken) -> list[tuple[int, int]]:
    """(label as it is called at the client, as the others call it) of those exchanged; none where it is not plain."""
    n = np.maximum(t.rows.sum(1), 1)
    share = t.rows / n[:, None]
    a, b = linear_sum_assignment(-share)
    moved = [(int(i), int(j)) for i, j in zip(a, b, strict=True) if i != j]
    chance = 1 / len(n)
    for i, j in moved:
        kept = float(share[i, i])
        if share[i, j] < MOST or kept > chance or share[i, j] - kept < SURE / np.sqrt(n[i]):
            return []
    if not moved or t.own - chance < (float(np.mean([share[i, j] for i, j in moved])) - chance) / 2:
        return []
    return [(int(t.labels[i]), int(t.labels[j])) for i, j in moved]


def _finding(client: str, pairs: Sequence[tuple[str, str]], t: Taken) -> Finding:
    are = listed([f"{a!r} is the others' {b!r}" for a, b in pairs], 6)
    are_zh = listed([f"“{a}”即其他客户端的“{b}”" for a, b in pairs], 6).zh
    back = listed([f"{a!r} to {b!r}" for a, b in pairs], 6)
    back_zh = listed([f"“{a}”改为“{b}”" for a, b in pairs], 6).zh
    own, others = percent(t.own), percent(t.others)
    return Finding(
        kind=KIND, client=client, number=len(pairs), unit="labels", severity="severe",
        sentence=say(
            f"At {client} labels seem to be in each other's place: {are}. By what the others know {others} of its rows "
            f"come out right, by what it knows itself {own}.",
            f"{client} 的标签似乎互换了：{are_zh}。按其他客户端的知识，它的数据只有 {others} 判断正确；"
            f"按它自己的知识为 {own}。",
        ),
        mend=say(
            f"look at how {client} writes its labels; if so, change there before loading {back}",
            f"检查 {client} 如何书写标签；如确实如此，读取数据前在那里把{back_zh}",
        ),
    )  # fmt: skip
