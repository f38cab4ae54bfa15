"""What weighting and sampling make of each client, before training: its say, and who should know of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from fedroute.errors import InputError
from fedroute.rounds import clients_of_round, drawn_by_rows, weighting_of
from fedroute.weighting import Weighting
from fedroute.words import count

if TYPE_CHECKING:
    from fedroute.config import Training
    from fedroute.core import Algorithm
    from fedroute.data.federation import Federation

SHOWN = 8  # clients that a line names all of


class Say(NamedTuple):
    """What is made of one client. rows, effective: its training rows, and how many of them differ, where that was
    counted. by_rows: the say that its rows alone would give it. rounds: in how many it takes part; None where that
    depends on losses. say: its part of the mean, 0..1, over all rounds (nothing in a round without it); None where the
    algorithm asks for none."""

    client: str
    rows: int
    effective: int | None
    by_rows: float
    rounds: int | None
    say: float | None


def planned(
    algorithm: "Algorithm",
    federation: "Federation",
    t: "Training",
    seed: int,
    most: int | None = None,
    copies: bool = False,
) -> list[Say]:
    """Each client's say over the rounds to come, or the first `most` of them, if all answer: as the run will draw them.
    copies: whether copies among its rows are counted.

    With weighting by validation, before anybody's quality is known: as if all had the same. With sampling by loss as
    if all took part."""
    rows, weighting = federation.training_sizes(), weighting_of(algorithm, federation, t)
    counted, rounds = weighting.counted(federation), min(t.rounds, most or t.rounds)
    turns, total = torch.zeros(len(rows), dtype=torch.int64), torch.zeros(len(rows), dtype=torch.float64)
    first = list(clients_of_round(federation, t, seed, 0))
    if len(first) == int((rows > 0).sum()) or t.sampling == "loss":
        turns, total = (rows > 0) * rounds, weighting.say(counted)
    else:
        for r in range(rounds):
            chosen = list(clients_of_round(federation, t, seed, r))
            turns[chosen] += 1
            total[chosen] += weighting.say(counted[chosen]) / rounds
    known = t.sampling != "loss" or len(first) == int((rows > 0).sum())
    effective = Weighting(by="effective").counted(federation).tolist() if copies else [None] * len(rows)
    turned = turns.tolist() if known else [None] * len(rows)
    say = total.tolist() if algorithm.weighting and algorithm.sends else [None] * len(rows)
    columns = rows.tolist(), effective, Weighting().say(rows).tolist(), turned, say
    return [Say(*each) for each in zip(federation.clients, *columns, strict=True)]


def announce(says: Sequence[Say], algorithm: "Algorithm", federation: "Federation", t: "Training") -> list[str]:
    """What a user should hear of it before training, the says in a line first. Raises InputError as `unjudged`."""
    weighting = weighting_of(algorithm, federation, t)
    said = [told(says, algorithm, federation, t)]
    if algorithm.sends:
        said += [unjudged(federation, weighting), doubled(federation, t)]
    if algorithm.reduce == "mean" and algorithm.sends and not t.robust:
        said += remarks(federation, weighting)
    return [text for text in said if text]


def told(says: Sequence[Say], algorithm: "Algorithm", federation: "Federation", t: "Training") -> str:
    """The says in a line: all of up to eight clients, else the three largest and the smallest."""
    name, weighting = algorithm.describe()["name"], weighting_of(algorithm, federation, t)
    if not algorithm.sends:
        return f"say: {name} sends nothing, so nobody has one"
    if not algorithm.weighting:
        return f"say: {name} settles itself what each client counts; its rows do not"
    own = [s for s in says if s.rows and s.say is not None]
    order = sorted(own, key=lambda s: -(s.say or 0.0))
    parts = [f"{s.client} {s.say or 0.0:.1%}" for s in (own if len(own) <= SHOWN else [*order[:3], order[-1]])]
    text = ", ".join(parts if len(own) <= SHOWN else [*parts[:3], f"... {parts[3]}"])
    of = "" if len(own) <= SHOWN else f" of {len(own)} clients"
    by = "one answer, one say" if t.robust and t.robust.rule != "clip" else f"by {weighting.by}"
    later = "; times its quality on validation rows, which each round tells" if weighting.by == "validation" else ""
    drawn = "" if not own or own[0].rounds is not None else "; who takes part depends on the losses"
    return f"say: {text}{of} ({by}{later}{drawn})"


def remarks(federation: "Federation", weighting: Weighting) -> list[str]:
    """What a user should know of it before training: a client with over half the say, copies that give it, a cap that
    takes from some. Nothing where there is nothing to say."""
    counted = weighting.counted(federation)
    free = weighting.model_copy(update={"cap": 1.0}).say(counted).tolist()
    say, said = weighting.say(counted).tolist(), list[str]()
    for i, name in enumerate(federation.clients):
        if say[i] > 0.5 and len(say) > 1:
            rest = max(s for j, s in enumerate(say) if j != i)
            text = f"weighting: {name} has {say[i]:.1%} of the say, each of the others at most {rest:.1%}"
            rows, different = int(counted[i]), int(federation.effective_sizes[i])
            if weighting.by in ("examples", "power", "validation") and different < rows / 2:
                text += f"; of its {rows} rows only {different} are different: see training.weighting.by: effective"
            said.append(f"{text}; training.weighting.cap bounds it")
        elif say[i] < free[i] - 1e-9:
            said.append(f"weighting: the cap leaves {name} {say[i]:.1%} of the say, of {free[i]:.1%}")
    return said


def doubled(federation: "Federation", t: "Training") -> str:
    """What is to be said where clients with more rows both take part more often and count more; "" elsewhere."""
    w = t.weighting
    if w is None or not drawn_by_rows(federation, t) or w.by == "uniform" or (w.by == "power" and not w.power):
        return ""
    return (
        f"weighting: sampling: {t.sampling} draws clients in proportion to their rows, and weighting by {w.by} counts "
        "these rows once more: leave training.weighting out, or take {by: uniform}"
    )


def unjudged(federation: "Federation", weighting: Weighting) -> str:
    """What is to be said of clients that no validation rows speak for; "" where there are none, or none are needed.

    Raises InputError where weighting by validation has nothing to go by: no classes, or no validation rows at all."""
    if weighting.by != "validation":
        return ""
    if not federation.label_counts.shape[1]:
        raise InputError(
            "training.weighting.by: validation needs targets that are classes, and these are numbers; take examples"
        )
    rows, held = federation.training_sizes(), federation.sizes("validation")
    without = [c for i, c in enumerate(federation.clients) if rows[i] and not held[i]]
    if len(without) == int((rows > 0).sum()):
        raise InputError(
            "training.weighting.by: validation needs validation rows, and no client has any; give for example "
            "federation.split: {validation: 0.15}"
        )
    if not without:
        return ""
    names = ", ".join(without[:3]) + (", ..." if len(without) > 3 else "")
    guess = 1 / len(federation.labels)
    return (
        f"weighting: {count(len(without), 'client has', 'clients have')} no validation rows ({names}): taken for the "
        f"quality of a guess, {guess:.2g}"
    )
