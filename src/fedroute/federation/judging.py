"""The ledger and the learning curve where every site judges on its own rows, and the baseline that a site trains alone.

The hub gets numbers: one client's line of the ledger, or its values of a point. A site that tells its line tells the
accuracy on its test rows, and so on; with few rows such a number says something of each of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fedroute.algorithms.alone import Alone
from fedroute.config import Training
from fedroute.core import Algorithm, Task
from fedroute.data.federation import Federation
from fedroute.engines.base import Work
from fedroute.engines.sequential import Sequential
from fedroute.errors import InputError
from fedroute.evaluate.aggregate import KINDS
from fedroute.evaluate.curve import curve_of as point_of
from fedroute.evaluate.curve import values_of
from fedroute.evaluate.entry import Entry, Score, entry_of
from fedroute.evaluate.ledger import Ledger
from fedroute.evaluate.ledger import ledger_of as ledger_of_entries
from fedroute.evaluate.predict import predict_rows, same_weights
from fedroute.federation.agreement import Agreement, Told
from fedroute.optim import schedule
from fedroute.rounds import client_batches, clients_of_round, run_round, start
from fedroute.training import adapt_epochs, adapted, besides, newcomers_turn
from fedroute.tree import Weights

PARTS = ("train", "validation", "test")


def judge_here(
    federation: Federation,
    agreement: Agreement,
    i: int,
    task: Task,
    *,
    personal: Weights,
    global_w: Weights | None,
    alone: Weights | None,
    part: str = "test",
    seed: int,
    notes: Iterable[str] = (),
) -> Told:
    """At a site: client i's line of the ledger, as JSON, from its own rows of `part` by the yardstick of all; what a
    line is, and the other options, as `make_ledger` has them. About 1 kB. Where the global model is not the personal
    one it may differ from a simulation's in the last bits, since that predicts the rows of all clients at once.

    Raises InputError for a part that is not train, validation or test."""
    if part not in PARTS:
        raise InputError(f"ledger: no part {part!r}; take train, validation or test")
    rows, outs = getattr(federation, part)[i], dict.fromkeys(KINDS)
    if len(rows):
        models = {"personal": personal, "global": global_w, "alone": alone if len(federation.train[i]) else None}
        outs = _outs(task, federation, rows, models)
    return asdict(entry_of(federation, task, agreement.measured_by, i, outs, part, seed, notes))


def curve_here(
    federation: Federation,
    agreement: Agreement,
    i: int,
    task: Task,
    *,
    personal: Weights,
    global_w: Weights | None,
    part: str = "validation",
) -> Told:
    """At a site: client i's values of a point of the curve, as JSON; {} where it has no rows in the part, or is a
    newcomer. Raises InputError for part "test", which is for the ledger."""
    if part not in ("train", "validation"):
        raise InputError(f"curve: not of part {part!r}; take validation or train")
    rows = getattr(federation, part)[i]
    if not len(rows) or i in federation.newcomers:
        return {}
    outs = _outs(task, federation, rows, {"personal": personal, "global": global_w})
    own = outs["personal"]
    assert own is not None
    return values_of(federation, task, agreement.measured_by, rows, own, outs["global"])


def _outs(task: Task, federation: Federation, rows: Any, models: Mapping[str, Weights | None]) -> dict[str, Any]:
    """What each model says of these rows; two of the very same weights are one."""
    found: dict[str, Any] = dict.fromkeys(KINDS)
    for kind, w in models.items():
        if w is not None:
            twin = next((k for k in found if found[k] is not None and same_weights(w, models[k] or {})), None)
            found[kind] = found[twin] if twin else predict_rows(task, w, federation, rows)
    return found


def ledger_of(
    agreement: Agreement,
    entries: Mapping[str, Told],
    part: str = "test",
    *,
    no_global: str | None = None,
    no_alone: str | None = None,
) -> Ledger:
    """At the hub: the ledger of the lines that sites told, sorted by client. A site that told none has no line.
    no_global, no_alone: why there is no such model, where there is none.

    Raises InputError for a line that is none, naming the site."""
    lines = [_entry(c, entries[c]) for c in agreement.clients if c in entries]
    return ledger_of_entries(lines, agreement.measured_by, part, agreement.labels, no_global, no_alone)


def _entry(client: str, told: Told) -> Entry:
    try:
        scores = {k: None if (s := told["scores"][k]) is None else Score(
            {str(m): None if v is None else float(v) for m, v in s["metrics"].items()}, _pair(s["interval"])
        ) for k in KINDS}  # fmt: skip
        sizes = (int(told["train"]), int(told["validation"]), int(told["test"]))
        majority, difference = (None if told[k] is None else float(told[k]) for k in ("majority", "difference"))
        better, notes = told["better_off"], tuple(map(str, told["notes"]))
        if better not in ("yes", "no", "unclear", "n/a") or told["name"] != client:
            raise ValueError(better)
        interval, newcomer = _pair(told["interval"]), bool(told["newcomer"])
        return Entry(client, *sizes, scores, majority, difference, interval, better, notes, newcomer)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise InputError(f"{client}: its line of the ledger is none ({e}); is it of the same version?") from None


def _pair(told: Any) -> tuple[float, float] | None:
    if told is None:
        return None
    low, high = told
    return float(low), float(high)


def curve_of(agreement: Agreement, values: Mapping[str, Told], part: str = "validation") -> dict[str, Any]:
    """At the hub: a point of the curve, as `curve_point` says it, from what sites told."""
    told = {c: values[c] for c in agreement.clients if values.get(c)}
    return point_of(told, agreement.measured_by.headline, part)


# alone


def alone_rounds(
    algorithm: Algorithm,
    federation: Federation,
    t: Training,
    seed: int,
    losses: Sequence[Mapping[str, float]] = (),
) -> dict[int, list[int]]:
    """At the hub: client -> the rounds (from 0) in which it trains alone, as a simulation does it: those in which it is
    asked, and of a newcomer as many as the others have on average. losses: of the rounds, for sampling by loss."""
    found: dict[int, list[int]] = {i: [] for i in range(len(federation.clients))}
    for r in range(t.rounds):
        asked = clients_of_round(federation, t, seed, r, losses)
        late = federation.newcomers if newcomers_turn(federation, len(asked), r) else ()
        for i in (*asked, *late):
            found[i].append(r)
    return found


def train_alone(
    algorithm: Algorithm,
    federation: Federation,
    t: Training,
    seed: int,
    i: int,
    rounds: Sequence[int],
    log: Callable[[str], None] = print,
    stopped: Callable[[], bool] = lambda: False,
) -> Weights:
    """At a site: the weights of client i trained alone, on the batches and at the learning rates of these rounds, and
    as long at the end as `algorithm` adapts: the very weights of the same client in a simulation. stopped: asked
    before each round; True ends it with RuntimeError.

    algorithm: the one of the federation, bound and prepared; its optimiser and its model are used."""
    alg = replace(Alone(), optimizer=algorithm.optimizer).bind(algorithm.task)
    state, engine = start(alg, federation), Sequential(alg, federation)
    for r in rounds:
        if stopped():
            raise RuntimeError("stopped")
        plan = {i: client_batches(algorithm, federation, t, seed, r, i)}
        if plan[i]:
            lr = t.lr * schedule(t.schedule).factor(r, t.rounds)
            state = run_round(alg, engine, federation, t, state, Work(r, seed, lr, (i,), plan), log)
    state = replace(state, round=t.rounds)
    final = adapted(alg, federation, t, seed, state, {i: adapt_epochs(algorithm)})
    return alg.personal(state.server, final(i)) | besides(algorithm)
