"""fit(): the round loop."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedroute.config import Training
from fedroute.core import Algorithm, Task
from fedroute.data.batches import batches
from fedroute.data.federation import Federation
from fedroute.engines.base import Answer, Engine, Work
from fedroute.optim import Adam, Optimizer, Schedule, Sgd, server_optimizer
from fedroute.quarantine import Quarantined, fault
from fedroute.randomness import generator
from fedroute.sampling import choose
from fedroute.tree import Tree, nbytes, tree_map
from fedroute.weighting import Weighting


@dataclass
class State:
    """All that a run is, between two rounds. A checkpoint holds exactly this."""

    round: int  # rounds done
    server: Tree
    privates: dict[int, Tree]
    history: list[dict[str, object]] = field(default_factory=list)  # a line per evaluated round
    quarantined: list[Quarantined] = field(default_factory=list)
    void_rounds: list[int] = field(default_factory=list)
    up_bytes: int = 0  # over all rounds
    down_bytes: int = 0


def prepare(algorithm: Algorithm, task: Task, training: Training) -> Algorithm:
    """The algorithm bound to a task, with the optimisers that the training part of a config names."""
    t = training
    local: Optimizer = (
        Sgd(momentum=t.momentum, nesterov=t.nesterov, weight_decay=t.weight_decay)
        if t.optimizer == "sgd"
        else Adam(weight_decay=t.weight_decay, decoupled=t.optimizer == "adamw")
    )
    spec = {"name": t.server_optimizer} if isinstance(t.server_optimizer, str) else t.server_optimizer
    name, options = str(spec["name"]), {k: float(v) for k, v in spec.items() if k != "name"}
    server = server_optimizer(name, **options)
    return replace(algorithm, optimizer=local, server_optimizer=server, server_lr=t.server_lr).bind(task)


def start(algorithm: Algorithm, federation: Federation) -> State:
    """The state before the first round."""
    w = algorithm.task.init()
    private = algorithm.init_client(w)
    return State(0, algorithm.init(w, federation.sizes()), dict.fromkeys(range(len(federation.clients)), private))


def work_of_round(algorithm: Algorithm, federation: Federation, t: Training, seed: int, round: int) -> Work:
    """Who trains on which batches in this round (0-based): a function of seed, round and the clients' names alone."""
    spec = {"name": t.schedule} if isinstance(t.schedule, str) else t.schedule
    lr = t.lr * Schedule(**spec).factor(round, t.rounds)  # type: ignore[arg-type]
    clients = choose(federation.sizes(), t.clients_per_round, t.sampling, seed, round)
    plan = {i: client_batches(algorithm, federation, t, seed, round, i) for i in clients}
    return Work(round, seed, lr, tuple(i for i in clients if plan[i]), plan)


def client_batches(
    algorithm: Algorithm, federation: Federation, t: Training, seed: int, round: int, i: int
) -> list[Tensor]:
    return batches(
        federation.train[i],
        t.batch_size,
        epochs=None if t.local_steps else t.local_epochs or 1,
        steps=t.local_steps,
        generator=generator(seed, "batches", round, federation.clients[i]),
        whole=bool(algorithm.task.variances),
    )


def run_round(
    algorithm: Algorithm, engine: Engine, federation: Federation, t: Training, state: State, work: Work, pattern: Tree
) -> State:
    """The state after this round. Broken answers are quarantined; below quorum the round is void and only counted."""
    weighting = t.weighting or Weighting(by=algorithm.weighting)  # type: ignore[arg-type]
    sizes, quarantined = federation.sizes(), list(state.quarantined)
    good: list[Answer] = []
    for a in engine.run(state.server, state.privates, work):
        if reason := fault(a, pattern):
            quarantined.append(Quarantined(work.round, federation.clients[a.client], reason))
        else:
            good.append(a)
    state = replace(state, round=work.round + 1, quarantined=quarantined)
    if not good or len(good) < t.quorum * len(work.clients):
        return replace(state, void_rounds=[*state.void_rounds, work.round])
    ids = [a.client for a in good]
    mean = weighted_mean(good, weighting.say(sizes[ids]))
    share = float(weighting.raw(sizes[ids]).sum() / weighting.raw(sizes).sum())
    return replace(
        state,
        server=algorithm.aggregate(state.server, mean, share),
        privates=state.privates | {a.client: a.private for a in good},
        up_bytes=state.up_bytes + sum(nbytes(a.update) for a in good),
        down_bytes=state.down_bytes + len(work.clients) * nbytes({k: state.server[k] for k in algorithm.broadcast}),
    )


def weighted_mean(answers: list[Answer], say: Tensor) -> Tree:
    """The mean of the updates, summed in the order of the clients, so that it is the same bit for bit everywhere."""
    total: Tree = {}
    for a, p in zip(answers, say.tolist(), strict=True):
        part = tree_map(lambda x, p=p: x * p, a.update)  # type: ignore[misc]
        total = tree_map(torch.add, total, part) if total else part
    return total
