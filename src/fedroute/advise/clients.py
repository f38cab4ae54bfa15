"""What is said of single clients: whose data must be mended before they train with others, and who needs a model of
its own."""

from fedroute.advise.advice import ForClient
from fedroute.advise.facts import ClientFacts, Facts
from fedroute.advise.said import Said

FEW = 1 / 3  # of all clients: so many at most are named for what their labels mean
EXCHANGED = "labels in each other's place"
MEND = {
    "another unit": "单位不同",
    "columns in each other's place": "列的位置互换",
    "label names of its own": "标签名称自成一套",
    EXCHANGED: "标签互换",
    "doubtful labels": "标签可疑",
}


def left_out(f: Facts) -> tuple[ForClient, ...]:
    """Clients whose rows would do the others harm: their data must be mended first."""
    found = list[ForClient]()
    for finding in f.sick:
        if finding["kind"] in MEND and finding["severity"] == "severe" and finding["client"]:
            why = f"{finding['sentence']} {finding['mend']}"
            said = Said(why, f"{MEND[finding['kind']]}，须先修正（“{why}”）")  # of an older profile, in English alone
            if "sentences" in finding:
                said = Said(why, f"{finding['sentences']['zh']}{finding['mends']['zh']}")
            found.append(ForClient(client=finding["client"], do="mend", why=said))
    named = set[str]()
    return tuple(c for c in found if not (c.client in named or named.add(c.client)))  # type: ignore[func-returns-value]


def only_exchanged(f: Facts) -> bool:
    """Whether features mean other labels only at clients whose labels are in each other's place."""
    there = {c["client"] for c in f.sick if c["kind"] == EXCHANGED and c["severity"] == "severe"}
    strange = {c.name for c in f.clients if "other_meaning" in c.flags}
    return f.present("concept") and bool(strange) and strange <= there


def personal(f: Facts) -> tuple[ForClient, ...]:
    """Clients with one class or hardly any rows, which one model for all does not fit, and those few whose labels mean
    something else: these the advised method keeps in, with a head of their own."""
    strange = [c.name for c in f.clients if "other_meaning" in c.flags]
    few = set(strange if len(strange) <= FEW * len(f.clients) else ()) - {c.client for c in left_out(f)}
    found = [_own(c) or (_other(f, c, len(strange)) if c.name in few else None) for c in f.clients]
    return tuple(c for c in found if c is not None)


def _other(f: Facts, c: ClientFacts, many: int) -> ForClient:
    said = Said(
        "the same features go with other labels here than at the other clients "
        f"(concept skew {f.strength['concept']:.2f}, and this client is one of {many} that differ)",
        f"相同的特征在这里对应的标签与其他客户端不同（含义偏斜 {f.strength['concept']:.2f}，这样的客户端有 {many} 个）",
    )
    return ForClient(client=c.name, do="personal", why=said)


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
