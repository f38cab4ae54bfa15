"""Labels that are sick: clients of one class, and clients that call the classes by names of their own."""

import unicodedata
from collections.abc import Mapping, Sequence

from fedroute.data.federation import Federation
from fedroute.profile.finding import Finding, listed, percent
from fedroute.said import say
from fedroute.words import noun

NEARLY = 0.9  # share of one class, from which on a client has next to nothing else
USUAL = 0.8  # share of a class over all clients, from which on that is no wonder
CHANCE = 0.05  # of a client's few rows being of one class, from which on that says nothing
MANY = 8  # clients
TINY = 20  # training rows below which a client can hardly learn or be judged


def class_findings(federation: Federation) -> list[Finding]:
    """From the counts of each client and label, (N, K), which each client sends."""
    found = list[Finding]()
    labels = federation.labels
    training = federation.sizes().tolist()
    tiny = {c: n for c, n in zip(federation.clients, training, strict=True) if 0 < n < TINY}
    empty = [c for c, n in zip(federation.clients, training, strict=True) if n == 0]
    mend = say(
        "let them take part with personalisation or serve them with the others' model; do not judge by them",
        "让它们以个性化的方式参与，或使用其他客户端的模型；不要以它们来评判",
    )
    if tiny:
        named = listed([f"{c} ({n})" for c, n in tiny.items()])
        found.append(Finding(
            kind="few rows", client=None, others=tuple(tiny), number=len(tiny), unit="clients", severity="warning",
            sentence=say(
                f"{named} {noun(len(tiny), 'has', 'have')} fewer than {TINY} training rows: too few to learn from or "
                "to be judged by.",
                f"{named.zh} 的训练数据不到 {TINY} 条：太少，既难以从中学习，也难以据此评判。",
            ),
            mend=mend,
        ))  # fmt: skip
    if empty:
        found.append(Finding(
            kind="no rows", client=None, others=tuple(empty), number=len(empty), unit="clients", severity="warning",
            sentence=say(
                f"{listed(empty)} {noun(len(empty), 'has', 'have')} no training row.",
                f"{listed(empty).zh} 没有训练数据。",
            ),
            mend=mend,
        ))  # fmt: skip
    if not labels or federation.y.ndim != 1 or federation.y.is_floating_point():
        return found
    counts = sum_of_parts(federation)
    whole = [sum(c) for c in zip(*counts, strict=True)]
    usual = max(whole) / max(1, sum(whole))
    nearly = dict[str, tuple[str, int, int]]()
    for client, own in zip(federation.clients, counts, strict=True):
        n, most = sum(own), max(own)
        chance = (whole[own.index(most)] / max(1, sum(whole))) ** n  # that rows dealt at random are all of it
        if usual == 1 or (n < TINY and chance > CHANCE):
            continue
        if n and (most == n or (most >= NEARLY * n and usual < USUAL)):
            nearly[client] = (labels[own.index(most)], most, n)
    return found + _one_class(nearly) + _own_names(federation.clients, labels, counts)


def _one_class(nearly: Mapping[str, tuple[str, int, int]]) -> list[Finding]:
    """One finding for each client, or one for all where there are many."""
    why = say(
        "a model that always says so is hard to beat there, and its updates pull the others that way",
        "在那里，总是给出该答案的模型难以超越，而其更新会把其他客户端也拉向那边",
    )
    if len(nearly) > MANY:
        return [Finding(
            kind="one class", client=None, others=tuple(nearly), number=len(nearly), unit="clients", severity="warning",
            sentence=say(
                f"{listed(list(nearly))} have (nearly) only one class: {why}.",
                f"{listed(list(nearly)).zh}（几乎）只有一种标签：{why.zh}。",
            ),
            mend=say(
                "personalise (private head) or train them alone; judge by recall of the rare class, over clients",
                "采用个性化（私有输出层）或让它们单独训练；跨客户端以稀有标签的召回率来评判",
            ),
        )]  # fmt: skip
    return [
        Finding(
            kind="one class", client=client, number=round(most / n, 4), unit="share of rows", severity="warning",
            sentence=say(
                f"{client} has {'only' if most == n else 'nearly only'} {name!r} ({most:,} of {n:,} rows, "
                f"{percent(most / n)}): {why}.",
                f"{client} {'只有' if most == n else '几乎只有'}“{name}”（{most:,} 条，共 {n:,} 条，"
                f"占 {percent(most / n)}）：{why.zh}。",
            ),
            mend=say(
                f"personalise (private head) or train {client} alone; judge it by recall of the rare class",
                f"采用个性化（私有输出层）或让 {client} 单独训练；以稀有标签的召回率来评判它",
            ),
        )
        for client, (name, most, n) in nearly.items()
    ]  # fmt: skip


def sum_of_parts(federation: Federation) -> list[list[int]]:
    """(N, K) rows of each client and label, all parts."""
    import torch

    k = len(federation.labels)
    parts = zip(federation.train, federation.validation, federation.test, strict=True)
    return [torch.bincount(federation.y[torch.cat(p)], minlength=k).tolist() for p in parts]


def _own_names(clients: Sequence[str], labels: Sequence[str], counts: Sequence[Sequence[int]]) -> list[Finding]:
    """Clients that share no label with the others, where the others agree or write theirs in another way."""
    sets = [{labels[k] for k, n in enumerate(own) if n} for own in counts]
    found = list[Finding]()
    for i, (client, own) in enumerate(zip(clients, sets, strict=True)):
        others = [s for j, s in enumerate(sets) if j != i and s]
        if not own or not others or any(own & s for s in others):
            continue
        rest = set.union(*others)
        alike = all(s == others[0] for s in others) and len(others) >= 2 and len(own) == len(rest)
        written = {_writing(k) for k in own}.isdisjoint({_writing(k) for k in rest})
        if not (written or alike):
            continue
        mine, theirs = listed(sorted(own)), listed(sorted(rest))
        names = ", ".join(f"{a}: {b}" for a, b in zip(sorted(own), sorted(rest), strict=False))
        found.append(Finding(
            kind="label names of its own", client=client, number=len(own), unit="labels",
            severity="severe" if written else "warning",
            sentence=say(
                f"{client} calls its classes {mine} and the others {theirs}: no label in common, so nothing learnt "
                "there helps elsewhere.",
                f"{client} 的标签叫 {mine.zh}，其他客户端的叫 {theirs.zh}："
                f"没有共同的标签，在那里学到的对别处没有帮助。",
            ),
            mend=say(
                f"if they are the same classes, call them alike: `label_names: {{{names}}}` (check the order)",
                f"如果其实是同样的标签，请统一名称：`label_names: {{{names}}}`（请核对顺序）",
            ),
        ))  # fmt: skip
    return found


def _writing(label: str) -> str:
    """In which way a label is written: as a number, or in which script."""
    if label.lstrip("+-").replace(".", "", 1).isdigit():
        return "number"
    letters = [c for c in label if c.isalpha()]
    return unicodedata.name(letters[0], "?").split()[0] if letters else "sign"
