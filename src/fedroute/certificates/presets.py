"""What is known of a method that is FedAvg with parts of the model private, or FedAvg and then something."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Make
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Algorithm
from fedroute.engines.base import context
from fedroute.engines.sequential import Sequential
from fedroute.rounds import prepare, run_round, start, work_of_round
from fedroute.tree import flatten

Measure = Callable[[Make], tuple[float, float]]
LOCAL: dict[str, Any] = {"lr": 0.1, "batch_size": 8, "momentum": 0.9, "weight_decay": 0.01}


def equals(other: Algorithm, **options: Any) -> Measure:
    """The largest difference of any state, the server's or a client's, after three rounds of some clients."""

    def measure(make: Make) -> tuple[float, float]:
        f, task, training = classes([5, 40, 20, 12]), network(), Training(rounds=3, clients_per_round=0.7, **LOCAL)
        (_, a), (_, b) = (train(alg, f, task, training) for alg in (make(**options), other))
        gaps = [gap(flatten(a.privates[i]), flatten(b.privates[i])) for i in a.privates]
        return max(gap(flatten(a.server), flatten(b.server)), *gaps), 0.0

    return measure


def with_private(*roles: str) -> Measure:
    return equals(FedAvg(private=roles))


def same_rounds(other: Algorithm, **options: Any) -> Measure:
    """The server's state after three rounds, with adapted private states put back in between as if they were kept."""

    def measure(make: Make) -> tuple[float, float]:
        f, task, training = classes([5, 40, 20]), network(), Training(rounds=3, **LOCAL)
        alg = prepare(make(**options), task, training)
        engine, state = Sequential(alg, f), start(alg, f)
        for r in range(training.rounds):
            work = work_of_round(alg, f, training, 0, r)
            state = run_round(alg, engine, f, training, state, work)
            for i, private in list(state.privates.items()):
                batches = map(f.take, work.batches[i])
                state.privates[i] = alg.adapt(context(alg, state.server, private, i, work), batches)
        _, want = train(other, f, task, training)
        return gap(flatten(state.server), flatten(want.server)), 0.0

    return measure


def tuned_by_sgd(**options: Any) -> Measure:
    """A client's model after two rounds and `adapt`, against torch.optim.SGD from the global one on its batches."""

    def measure(make: Make) -> tuple[float, float]:
        f, task, training = classes([5, 40, 20]), network(), Training(rounds=2, **LOCAL)
        alg, state = train(make(adapt_epochs=3, **options), f, task, training)
        work = work_of_round(alg, f, training.model_copy(update={"local_epochs": 3}), 0, 2)
        module = copy.deepcopy(task.module)
        module.load_state_dict(alg.personal(state.server, state.privates[1]))
        sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        for rows in work.batches[1]:
            sgd.zero_grad()
            nn.functional.cross_entropy(module(f.x[rows]), f.y[rows]).backward()
            sgd.step()
        ctx = context(alg, state.server, state.privates[1], 1, work)
        private = alg.adapt(ctx, map(f.take, work.batches[1]))
        return gap(alg.personal(state.server, private), module.state_dict()), 0.0

    return measure
