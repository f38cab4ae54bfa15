"""What goes with a method: the say of each client, who is asked in a round, how the learning rate falls, a router."""

from typing import Any

from fedroute.advise.facts import ClientFacts, Facts
from fedroute.advise.said import KIND, LEVEL, NOTHING, Said, joined

COPIES = 0.05  # of a client's rows, from which on copies must not count
HALF = 0.5  # of the say: a client with more decides alone
CAP = 0.4
MANY = 50  # clients, beyond which not all are asked in each round
ASKED = 20  # of them


def weighting(f: Facts) -> tuple[dict[str, Any], Said]:
    """By rows, which is what FedAvg is; copies do not count, and nobody decides alone. Copies that are not exact are
    not known when the weights are made: there all count the same, or nobody more than by different rows."""
    copied = [c for c in f.clients if c.rows + c.copies and c.copies > COPIES * (c.rows + c.copies)]
    by, why = "examples", NOTHING
    exact, nearly = ([c for c in copied if c.nearly is kind] for kind in (False, True))
    if exact:
        worst = max(exact, key=lambda c: c.copies / max(1, c.rows))
        by = "effective"
        times = f"{(worst.rows + worst.copies) / max(1, worst.rows):.1f}"
        why = Said(
            f"weighting by different rows: {worst.name} has {worst.rows} different rows written {times} times each",
            f"按不同数据加权：{worst.name} 有 {worst.rows} 条不同的数据，平均每条写了 {times} 遍",
        )
    total = sum(c.rows for c in f.clients) or 1
    largest = max(f.clients, key=lambda c: c.rows)
    found: dict[str, Any] = {"by": by}
    if nearly:
        return _bounded(f, max(nearly, key=lambda c: c.copies / max(1, c.rows)), by, largest.rows / total, why)
    if len(f.clients) > 2 and largest.rows > HALF * total:
        found["cap"] = CAP
        share = f"{largest.rows / total:.0%}"
        cap = Said(
            f"a cap of {CAP:.0%}: {largest.name} has {share} of the rows and would decide alone",
            f"权重上限 {CAP:.0%}：{largest.name} 有 {share} 的数据，否则由它一家说了算",
        )
        why = joined((why, cap))
    return found, why


def _bounded(f: Facts, copier: ClientFacts, by: str, share: float, why: Said) -> tuple[dict[str, Any], Said]:
    """copier: writes its rows several times, and not exactly; share: of the different rows, the largest client's."""
    times = f"{(copier.rows + copier.copies) / max(1, copier.rows):.1f}"
    what = Said(
        f"{copier.name} has {copier.rows} different rows written {times} times each, not exactly alike, which "
        "`by: effective` would miss",
        f"{copier.name} 有 {copier.rows} 条不同的数据，平均每条写了 {times} 遍，但并不完全相同，"
        "`by: effective` 认不出来",
    )
    if not f.present("quantity"):
        return {"by": "uniform"}, Said(f"the same weight for all: {what}", f"所有客户端权重相同：{what.zh}")
    cap = min(CAP, max(0.01, round(share, 2)))
    bound = Said(
        f"a cap of {cap:.0%}, the largest share of different rows that is allowed: {what}",
        f"权重上限 {cap:.0%}，即允许的不同数据的最大占比：{what.zh}",
    )
    return {"by": by, "cap": cap}, joined((why, bound))


def sampling(f: Facts) -> tuple[float, str, Said]:
    """(clients_per_round, sampling, why)."""
    n = sum(c.rows > 0 for c in f.clients)
    if n <= MANY:
        return 1.0, "uniform", NOTHING
    share = round(ASKED / n, 3)
    if f.present("label"):
        s = f"{f.strength['label']:.2f}"
        return share, "stratified", Said(
            f"{ASKED} of {n} clients a round, with a label mix near to that of all (label skew {s})",
            f"每轮从 {n} 个客户端中取 {ASKED} 个，其标签构成与全体相近（标签偏斜 {s}）",
        )  # fmt: skip
    return share, "uniform", Said(
        f"{ASKED} of {n} clients a round: a mean of so many is near to that of all",
        f"每轮从 {n} 个客户端中取 {ASKED} 个：这么多客户端的平均已接近全体的平均",
    )  # fmt: skip


def schedule(f: Facts) -> tuple[str, Said]:
    """Cosine where clients pull in different directions: at a constant rate several local steps end beside the optimum
    (Li et al. 2020, "On the Convergence of FedAvg on Non-IID Data", section 4)."""
    kind = max(("label", "feature", "concept"), key=lambda k: f.strength[k])
    if not f.strength[kind]:
        return "constant", NOTHING
    return "cosine", Said(
        f"a learning rate that falls: at a constant one clients that differ ({kind} skew {f.strength[kind]:.2f}) end "
        "beside the optimum",
        f"学习率逐渐下降：若保持不变，彼此不同的客户端（{KIND[kind]}偏斜 {f.strength[kind]:.2f}）会停在最优点旁边",
    )


def router(f: Facts) -> tuple[bool, Said]:
    """Whether a new case from outside should be sent to the client that fits it; where features tell nothing, none
    can."""
    feature, verdict = f"{f.strength['feature']:.2f}", f.verdict["feature"]
    if f.present("concept") and not f.present("feature"):
        return False, Said(
            f"no router: the same features mean different labels (concept skew {f.strength['concept']:.2f}), but "
            f"nothing in them tells whose a case is (feature skew {verdict}), so that no router can: whoever asks has "
            "to name the client",
            f"不需要路由器：相同的特征对应不同的标签（含义偏斜 {f.strength['concept']:.2f}），但从特征看不出数据属于谁"
            f"（特征偏斜：{LEVEL[verdict]}），任何路由器都无法判断：提问者须指明客户端",
        )
    if f.present("concept"):
        return True, Said(
            f"a router: the same features mean different labels (concept skew {f.strength['concept']:.2f}), so that a "
            "case from outside needs the model of the client it belongs to",
            f"需要路由器：相同的特征对应不同的标签（含义偏斜 {f.strength['concept']:.2f}），"
            "外来数据需要其所属客户端的模型",
        )
    if f.strength["feature"] >= HALF:
        return True, Said(
            f"a router: clients can be told apart by features (feature skew {f.strength['feature']:.2f}), so that a "
            "case from outside can be sent to the one whose model knows such rows",
            f"需要路由器：从特征可以区分客户端（特征偏斜 {f.strength['feature']:.2f}），"
            "外来数据可送往模型熟悉这类数据的客户端",
        )
    if f.present("feature"):
        return False, Said(
            f"no router: features differ (feature skew {feature}, {verdict}), and yet tell too seldom which client a "
            f"case from outside fits (a router is worth it from {HALF:.2f} on)",
            f"不需要路由器：特征不同（特征偏斜 {feature}，{LEVEL[verdict]}），但很少能看出外来数据适合哪个客户端"
            f"（达到 {HALF:.2f} 时路由器才值得）",
        )
    if verdict == "unknown":
        return False, Said(
            "no router: whether features tell which client a case from outside fits is unknown",
            "不需要路由器：无法判断从特征能否看出外来数据适合哪个客户端",
        )
    return False, Said(
        "no router: by its features a case from outside fits all clients about equally",
        "不需要路由器：从特征看，外来数据与各客户端的契合程度差不多",
    )
