"""What is said of single clients: whose rows are best left out of the shared training, and who needs a model of its
own."""

from fedroute.advise.advice import ForClient
from fedroute.advise.facts import ClientFacts, Facts

FEW = 1 / 3  # of all clients: so many at most are left out for what their labels mean
MEND = ("another unit", "columns in each other's place", "label names of its own", "doubtful labels")


def left_out(f: Facts) -> tuple[ForClient, ...]:
    """Clients whose rows would do the others harm: their data must be mended first, or their labels mean something
    else."""
    found = list[ForClient]()
    for finding in f.sick:
        if finding["kind"] in MEND and finding["severity"] == "severe" and finding["client"]:
            found.append(ForClient(client=finding["client"], do="mend", why=f"{finding['sentence']} {finding['mend']}"))
    strange = [c for c in f.clients if "other_meaning" in c.flags]
    if 0 < len(strange) <= FEW * len(f.clients):
        for c in strange:
            why = (
                "the same features go with other labels here than at the other clients "
                f"(concept skew {f.strength['concept']:.2f}, and this client is one of {len(strange)} that differ)"
            )
            found.append(ForClient(client=c.name, do="alone", why=why))
    named = set[str]()
    return tuple(c for c in found if not (c.client in named or named.add(c.client)))  # type: ignore[func-returns-value]


def personal(f: Facts) -> tuple[ForClient, ...]:
    """Clients with one class or hardly any rows, which one model for all does not fit."""
    return tuple(found for c in f.clients if (found := _own(c)) is not None)


def _own(c: ClientFacts) -> ForClient | None:
    if not c.rows:
        return ForClient(
            client=c.name, do="nothing", why="it has no rows: it takes no part, and can use the shared model"
        )
    rows = sum(c.labels.values())
    if c.one_class and c.labels and rows:
        label, most = max(c.labels.items(), key=lambda item: item[1])
        why = (
            f"{most} of its {rows} rows are {label!r}: alone it is right by always saying so, and in the mean it pulls"
        )
        return ForClient(client=c.name, do="personal or alone", why=why)
    if c.tiny:
        why = f"{c.rows} different rows: too few to learn from alone, or to judge by; a shared model, fitted a little"
        return ForClient(client=c.name, do="personal", why=why)
    return None
