"""What is said of single clients: whose rows are best left out of the shared training, and who needs a model of its
own."""

from fedroute.advise.advice import ForClient
from fedroute.advise.facts import ClientFacts, Facts
from fedroute.advise.said import Said

FEW = 1 / 3  # of all clients: so many at most are left out for what their labels mean
MEND = {
    "another unit": "单位不同",
    "columns in each other's place": "列的位置互换",
    "label names of its own": "标签名称自成一套",
    "doubtful labels": "标签可疑",
}


def left_out(f: Facts) -> tuple[ForClient, ...]:
    """Clients whose rows would do the others harm: their data must be mended first, or their labels mean something
    else."""
    found = list[ForClient]()
    for finding in f.sick:
        if finding["kind"] in MEND and finding["severity"] == "severe" and finding["client"]:
            why = f"{finding['sentence']} {finding['mend']}"
            # a profile's findings are in English alone: quoted
            said = Said(why, f"{MEND[finding['kind']]}，须先修正（“{why}”）")
            found.append(ForClient(client=finding["client"], do="mend", why=said))
    strange = [c for c in f.clients if "other_meaning" in c.flags]
    if 0 < len(strange) <= FEW * len(f.clients):
        for c in strange:
            said = Said(
                "the same features go with other labels here than at the other clients "
                f"(concept skew {f.strength['concept']:.2f}, and this client is one of {len(strange)} that differ)",
                f"相同的特征在这里对应的标签与其他客户端不同（含义偏斜 {f.strength['concept']:.2f}，"
                f"这样的客户端有 {len(strange)} 个）",
            )
            found.append(ForClient(client=c.name, do="alone", why=said))
    named = set[str]()
    return tuple(c for c in found if not (c.client in named or named.add(c.client)))  # type: ignore[func-returns-value]


def personal(f: Facts) -> tuple[ForClient, ...]:
    """Clients with one class or hardly any rows, which one model for all does not fit."""
    return tuple(found for c in f.clients if (found := _own(c)) is not None)


def _own(c: ClientFacts) -> ForClient | None:
    if not c.rows:
        why = Said(
            "it has no rows: it takes no part, and can use the shared model",
            "没有数据：不参加训练，可以使用共享模型",
        )
        return ForClient(client=c.name, do="nothing", why=why)
    rows = sum(c.labels.values())
    if c.one_class and c.labels and rows:
        label, most = max(c.labels.items(), key=lambda item: item[1])
        why = Said(
            f"{most} of its {rows} rows are {label!r}: alone it is right by always saying so, and in the mean it pulls",
            f"{rows} 条数据中有 {most} 条是 {label!r}：单独训练时只要总这样回答就对，参与平均则会把模型拉偏",
        )
        return ForClient(client=c.name, do="personal or alone", why=why)
    if c.tiny:
        why = Said(
            f"{c.rows} different rows: too few to learn from alone, or to judge by; a shared model, fitted a little",
            f"只有 {c.rows} 条不同的数据：单独学习或据以评判都不够；用共享模型，稍作适配",
        )
        return ForClient(client=c.name, do="personal", why=why)
    return None
