"""What goes with a method: the say of each client, who is asked in a round, how the learning rate falls, a router."""

from typing import Any

from fedroute.advise.facts import Facts

COPIES = 0.05  # of a client's rows, from which on copies must not count
HALF = 0.5  # of the say: a client with more decides alone
CAP = 0.4
MANY = 50  # clients, beyond which not all are asked in each round
ASKED = 20  # of them


def weighting(f: Facts) -> tuple[dict[str, Any], str]:
    """By rows, which is what FedAvg is; copies do not count, and nobody decides alone."""
    copied = [c for c in f.clients if c.rows + c.copies and c.copies > COPIES * (c.rows + c.copies)]
    by, why = "examples", ""
    if copied:
        worst = max(copied, key=lambda c: c.copies / max(1, c.rows))
        by = "effective"
        why = (
            f"weighting by different rows: {worst.name} has {worst.rows} different rows written "
            f"{(worst.rows + worst.copies) / max(1, worst.rows):.1f} times each"
        )
    total = sum(c.rows for c in f.clients) or 1
    largest = max(f.clients, key=lambda c: c.rows)
    found: dict[str, Any] = {"by": by}
    if len(f.clients) > 2 and largest.rows > HALF * total:
        found["cap"] = CAP
        cap = f"a cap of {CAP:.0%}: {largest.name} has {largest.rows / total:.0%} of the rows and would decide alone"
        why = f"{why}; {cap}" if why else cap
    return found, why


def sampling(f: Facts) -> tuple[float, str, str]:
    """(clients_per_round, sampling, why)."""
    n = sum(c.rows > 0 for c in f.clients)
    if n <= MANY:
        return 1.0, "uniform", ""
    share = round(ASKED / n, 3)
    if f.present("label"):
        skew = f"label skew {f.strength['label']:.2f}"
        return share, "stratified", f"{ASKED} of {n} clients a round, with a label mix near to that of all ({skew})"
    return share, "uniform", f"{ASKED} of {n} clients a round: a mean of so many is near to that of all"


def schedule(f: Facts) -> tuple[str, str]:
    """Cosine where clients pull in different directions: at a constant rate several local steps end beside the optimum
    (Li et al. 2020, "On the Convergence of FedAvg on Non-IID Data", section 4)."""
    kind = max(("label", "feature", "concept"), key=lambda k: f.strength[k])
    if not f.strength[kind]:
        return "constant", ""
    return (
        "cosine",
        f"a learning rate that falls: at a constant one clients that differ ({kind} skew {f.strength[kind]:.2f}) end "
        "beside the optimum",
    )


def router(f: Facts) -> tuple[bool, str]:
    """Whether a new case from outside should be sent to the client that fits it."""
    if f.present("concept"):
        return True, (
            f"a router: the same features mean different labels (concept skew {f.strength['concept']:.2f}), so that a "
            "case from outside needs the model of the client it belongs to"
        )
    if f.strength["feature"] >= HALF:
        return True, (
            f"a router: clients can be told apart by features (feature skew {f.strength['feature']:.2f}), so that a "
            "case from outside can be sent to the one whose model knows such rows"
        )
    return False, "no router: by its features a case from outside fits all clients about equally"
