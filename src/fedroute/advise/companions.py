"""What goes with a method: the say of each client, who is asked in a round, how the learning rate falls, a router."""

from typing import Any

from fedroute.advise.facts import Facts
from fedroute.advise.said import KIND, NOTHING, Said, joined

COPIES = 0.05  # of a client's rows, from which on copies must not count
HALF = 0.5  # of the say: a client with more decides alone
CAP = 0.4
MANY = 50  # clients, beyond which not all are asked in each round
ASKED = 20  # of them


def weighting(f: Facts) -> tuple[dict[str, Any], Said]:
    """By rows, which is what FedAvg is; copies do not count, and nobody decides alone."""
    copied = [c for c in f.clients if c.rows + c.copies and c.copies > COPIES * (c.rows + c.copies)]
    by, why = "examples", NOTHING
    if copied:
        worst = max(copied, key=lambda c: c.copies / max(1, c.rows))
        by = "effective"
        times = f"{(worst.rows + worst.copies) / max(1, worst.rows):.1f}"
        why = Said(
            f"weighting by different rows: {worst.name} has {worst.rows} different rows written {times} times each",
            f"按不同数据加权：{worst.name} 有 {worst.rows} 条不同的数据，平均每条写了 {times} 遍",
        )
    total = sum(c.rows for c in f.clients) or 1
    largest = max(f.clients, key=lambda c: c.rows)
    found: dict[str, Any] = {"by": by}
    if len(f.clients) > 2 and largest.rows > HALF * total:
        found["cap"] = CAP
        share = f"{largest.rows / total:.0%}"
        cap = Said(
            f"a cap of {CAP:.0%}: {largest.name} has {share} of the rows and would decide alone",
            f"权重上限 {CAP:.0%}：{largest.name} 有 {share} 的数据，否则由它一家说了算",
        )
        why = joined((why, cap))
    return found, why


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
    """Whether a new case from outside should be sent to the client that fits it."""
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
    return False, Said(
        "no router: by its features a case from outside fits all clients about equally",
        "不需要路由器：从特征看，外来数据与各客户端的契合程度差不多",
    )
