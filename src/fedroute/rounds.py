"""One round: who trains on what, whose answers count, and the state before and after."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from fedroute.config import Training
from fedroute.core import Algorithm, Task, run_client
from fedroute.data.batches import batches
from fedroute.data.federation import Federation
from fedroute.engines.base import QUALITY_BYTES, Answer, Engine, Work, context
from fedroute.errors import InputError
from fedroute.optim import Adam, Optimizer, Sgd, schedule, server_optimizer
from fedroute.quarantine import Quarantined, alike, fault, streak
from fedroute.randomness import generator
from fedroute.robust import RobustMean
from fedroute.sampling import BY_ROWS, choose, number
from fedroute.tree import Tree, nbytes
from fedroute.weighting import RunningMean, Stack, Weighting
from fedroute.words import count


@dataclass
class State:
    """All that a run is, between two rounds. A checkpoint holds exactly this."""

    round: int  # rounds done
    server: Tree
    privates: dict[int, Tree]
    history: list[dict[str, Any]] = field(default_factory=list)  # a line per evaluated round
    quarantined: list[Quarantined] = field(default_factory=list)
    void_rounds: list[int] = field(default_factory=list)
    up_bytes: int = 0  # over all rounds
    down_bytes: int = 0
    loss: float = math.nan  # mean training loss of the clients of the last round
    evaluate_every: int = 0  # rounds between evaluations; 0: not yet settled
    engine: str = ""  # which one computes the rounds; "": not yet settled
    losses: list[dict[str, float]] = field(default_factory=list)  # of each round, by client; for sampling: loss
    quality: dict[str, float] = field(default_factory=dict)  # of each client's last answer; for weighting by validation


def prepare(algorithm: Algorithm, task: Task, training: Training) -> Algorithm:
    """The algorithm bound to a task, with the optimisers that the training part of a config names.

    Raises InputError where algorithm, task and training do not fit."""
    t = training
    if t.batch_size == 1 and task.batch_norm:
        raise InputError("training.batch_size: 1 with batch norm, which needs two rows at least: take 2 or more")
    local: Optimizer = (
        Sgd(momentum=t.momentum, nesterov=t.nesterov, weight_decay=t.weight_decay)
        if t.optimizer == "sgd"
        else Adam(weight_decay=t.weight_decay, decoupled=t.optimizer == "adamw")
    )
    spec = {"name": t.server_optimizer} if isinstance(t.server_optimizer, str) else t.server_optimizer
    server = server_optimizer(**spec)
    if t.weighting:
        _heard(algorithm, t.weighting)
    if t.robust:
        _fits(algorithm, t)
    bound = replace(algorithm, optimizer=local, server_optimizer=server, server_lr=t.server_lr).bind(task)
    if bound.kept >= {*task.names} and "dw" in bound.sends:
        roles = ", ".join(sorted({*task.roles.values()}))
        raise InputError(
            f"algorithm.private: keeps every weight of this model ({roles}) with its client, and nothing would be "
            "shared; leave private out, or take algorithm alone"
        )
    return bound


def _heard(algorithm: Algorithm, weighting: Weighting) -> None:
    """Raises InputError where a weighting would not do what it says."""
    if not algorithm.weighting:
        raise InputError(
            f"training.weighting: {algorithm.describe()['name']} settles itself what each client counts, and would "
            "ignore it; leave weighting out, or take fedavg"
        )
    if algorithm.uncapped and weighting.cap < 1:
        raise InputError(f"training.weighting.cap: {algorithm.uncapped}; leave the cap out")
    if algorithm.uncapped and weighting.by == "validation":
        raise InputError(
            f"training.weighting.by: validation changes each client's say from round to round. {algorithm.uncapped}; "
            "take examples or uniform"
        )


def _fits(algorithm: Algorithm, t: Training) -> None:
    """Raises InputError where a robust rule would not do what it says."""
    assert t.robust
    name, rule = algorithm.describe()["name"], t.robust.rule
    if algorithm.reduce == "stack":
        raise InputError(f"training.robust: {name} looks at every update itself; leave robust out, or take fedavg")
    if algorithm.uncapped:
        raise InputError(f"training.robust: {algorithm.uncapped}; leave robust out, or take fedavg")
    if rule == "clip" and algorithm.sends.keys() - {"dw"}:
        extra = ", ".join(sorted(algorithm.sends.keys() - {"dw"}))
        raise InputError(f"training.robust: clip bounds changes of weights and {name} sends {extra} too; take median")
    if rule != "clip" and t.weighting:
        raise InputError(f"training.weighting: {rule} counts each client once; leave weighting out")


def start(algorithm: Algorithm, federation: Federation) -> State:
    """The state before the first round."""
    w = algorithm.task.init()
    private = algorithm.init_client(w)
    server = algorithm.init(w, federation.training_sizes())
    return State(0, server, dict.fromkeys(range(len(federation.clients)), private))


def work_of_round(
    algorithm: Algorithm,
    federation: Federation,
    t: Training,
    seed: int,
    round: int,
    losses: Sequence[Mapping[str, float]] = (),
) -> Work:
    """Who trains on which batches in this round (0-based): a function of seed, round and the clients' names alone; with
    sampling by loss also of the `losses` of the rounds before."""
    lr = t.lr * schedule(t.schedule).factor(round, t.rounds)
    clients = clients_of_round(federation, t, seed, round, losses)
    plan = {i: client_batches(algorithm, federation, t, seed, round, i) for i in clients}
    asked = tuple(i for i in clients if plan[i])
    return Work(round, seed, lr, asked, plan, judged(algorithm, federation, t))


def clients_of_round(
    federation: Federation, t: Training, seed: int, round: int, losses: Sequence[Mapping[str, float]] = ()
) -> tuple[int, ...]:
    """Who is asked in this round (0-based), as `work_of_round` says it."""
    last = {c: loss for past in losses[:round] for c, loss in past.items()} if t.sampling == "loss" else {}
    known = {i: last[c] for i, c in enumerate(federation.clients) if c in last}
    counts = federation.label_counts if t.sampling == "stratified" else None
    return choose(federation.training_sizes(), t.clients_per_round, t.sampling, seed, round, counts, known)


def weighting_of(algorithm: Algorithm, federation: Federation, t: Training) -> Weighting:
    """How answers are weighted: as the config says, else as the algorithm does; but uniformly where clients are drawn
    in proportion to their rows, for size would count twice, and under a robust rule that counts each client once."""
    if t.robust and t.robust.rule != "clip":
        return Weighting(by="uniform")
    plain = "uniform" if drawn_by_rows(federation, t) or not algorithm.weighting else algorithm.weighting
    return t.weighting or Weighting(by=plain)


def judged(algorithm: Algorithm, federation: Federation, t: Training) -> bool:
    """Whether each answer comes with its quality."""
    return weighting_of(algorithm, federation, t).by == "validation" and bool(algorithm.sends)


def drawn_by_rows(federation: Federation, t: Training) -> bool:
    """Whether a client with more rows takes part in more rounds."""
    sizes = federation.training_sizes()
    return t.sampling in BY_ROWS and number(sizes, t.clients_per_round) < int((sizes > 0).sum())


def client_batches(
    algorithm: Algorithm, federation: Federation, t: Training, seed: int, round: int, i: int
) -> list[Tensor]:
    return batches(
        federation.train[i],
        t.batch_size,
        epochs=None if t.local_steps else t.local_epochs or 1,
        steps=t.local_steps,
        generator=generator(seed, "batches", round, federation.clients[i]),
        whole=algorithm.task.batch_norm,
    )


def run_round(
    algorithm: Algorithm,
    engine: Engine,
    federation: Federation,
    t: Training,
    state: State,
    work: Work,
    log: Callable[[str], None] = print,
) -> State:
    """The state after this round. Broken answers are quarantined; below quorum the round is void and only counted."""
    weighting = weighting_of(algorithm, federation, t)
    pattern = update_pattern(algorithm, state)
    sizes = weighting.counted(federation)
    raw, needs = weighting.raw(sizes), _enough(t, pattern, work)
    mean: RunningMean | Stack | RobustMean = (Stack if algorithm.reduce == "stack" else RunningMean)(weighting)
    if t.robust and pattern:
        mean = RobustMean(t.robust, weighting, algorithm.task.trainable)
    privates, losses, up, found = dict[int, Tree](), dict[int, float](), 0, dict[str, float]()
    quarantined, told, number = list[Quarantined](), set[str](), work.round + 1  # for people rounds count from 1
    before = {q.client: q.reason for q in state.quarantined if q.round == number - 1}
    for a in engine.run(state.server, state.privates, work):
        planned = len(work.batches[a.client])
        broken = fault(a, pattern, t.update_bound, planned, work.judged)
        if reason := broken or algorithm.implausible(a.update, planned):
            quarantined.append(Quarantined(number, federation.clients[a.client], reason))
            trace = "" if reason in told else a.error  # where many fail alike the first one's traceback serves for all
            name = federation.clients[a.client]
            if not alike(before.get(name, ""), reason):  # said at the first, when it changes, and how often at the end
                log(f"round {number}: {name} left out: {reason}\n{trace}".rstrip())
            told.add(reason)
        else:
            if (name := federation.clients[a.client]) in before:
                missed = count(streak(state.quarantined, name, number - 1)[0], "round")
                log(f"round {number}: {name} is in again, after {missed} without it")
            counts = float(sizes[a.client])
            if work.judged:
                found[federation.clients[a.client]] = q = a.quality or 0.0
                counts, up = counts * q, up + QUALITY_BYTES
            if a.staleness:
                name, late = federation.clients[a.client], count(a.staleness, "round")
                log(f"round {number}: {name} came {late} late, and counts {discount(a):.2f} times")
            mean.add(a.update, a.client, counts, discount(a))
            privates[a.client], losses[a.client], up = a.private, a.loss, up + nbytes(a.update)
    sent = getattr(engine, "sent", len(work.clients))  # a real federation does not send to who is still at work
    seen = nbytes({k: state.server[k] for k in algorithm.broadcast})
    seen += nbytes({k: state.server[k] for k in algorithm.own}) // len(federation.clients)
    state = replace(
        state,
        round=number,
        quarantined=state.quarantined + quarantined,
        up_bytes=state.up_bytes + up,
        down_bytes=state.down_bytes + sent * seen,
    )
    if t.sampling == "loss":
        state = replace(state, losses=[*state.losses, {federation.clients[i]: v for i, v in losses.items()}])
    if found:
        state = replace(state, quality=state.quality | found)
    if len(privates) < needs:
        asked = count(len(work.clients), "client")
        log(f"round {number}: void, {len(privates)} of {asked} answered well; nothing changed")
        return replace(state, void_rounds=[*state.void_rounds, number])
    share = float(raw[list(privates)].sum() / raw.sum())
    server = algorithm.aggregate(state.server, mean.value(), share)
    loss = sum(losses.values()) / len(losses)
    return replace(state, server=server, privates=state.privates | privates, loss=loss)


def _enough(t: Training, pattern: Tree, work: Work) -> float:
    """How many must answer. Raises InputError where a robust rule needs more than are asked."""
    needs = t.robust.needs if t.robust and pattern else 1
    if t.robust and needs > len(work.clients):
        raise InputError(
            f"training.robust: {t.robust.rule} with f: {t.robust.broken} needs {needs} answers in a round, and "
            f"{count(len(work.clients), 'client is', 'clients are')} asked in round {work.round}: take a smaller f or "
            "more clients_per_round"
        )
    return max(needs, t.quorum * len(work.clients))


def update_pattern(algorithm: Algorithm, state: State) -> Tree:
    """An update of the form that a client of this algorithm sends: what it sends after no step at all."""
    idle, private = Work(state.round, 0, 1.0, (0,), {0: []}), algorithm.init_client(algorithm.task.init())
    return run_client(algorithm, context(algorithm, state.server, private, 0, idle), [])[0]


def discount(answer: Answer) -> float:
    """(1 + staleness)^-1/2, what a late answer counts (Xie et al. 2019, "Asynchronous Federated Optimization", section
    5.2, with the exponent of Nguyen et al. 2022)."""
    return float((1 + answer.staleness) ** -0.5)
