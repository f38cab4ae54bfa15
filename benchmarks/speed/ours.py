"""Contender: fedroute, its round loop on the planned clients; with --evaluate, a whole `fit` of as many rounds."""

import argparse
import atexit
import sys
import time
from collections.abc import Callable, Mapping

import torch
from torch import nn

from benchmarks.speed.turns import Job, Train, serve
from benchmarks.speed.workloads import CLASSES, CLIENTS, LR, SAMPLED, SEED, Plan
from fedroute.algorithms.fedavg import FedAvg
from fedroute.config import Training
from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.data.split import Split
from fedroute.engines.base import Work
from fedroute.engines.make import make_engine
from fedroute.rounds import client_batches, prepare, run_round, start

NAMES = tuple(f"client {i:03}" for i in range(CLIENTS))  # sorted, so that a client's number is its place in the plan
LABELS = tuple(str(c) for c in range(CLASSES))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", default="auto", help="the engine (default: %(default)s)")
    parser.add_argument("--workers", type=int, help="how many processes, for the engine workers")
    parser.add_argument("--evaluate", action="store_true", help="evaluate at the default spacing, and say what it took")


def log(text: str) -> None:
    print(text, file=sys.stderr)


def build(job: Job) -> tuple[Train, Callable[[], nn.Module]]:
    return _fit(job) if job.options.evaluate else _rounds(job)


def _rounds(job: Job) -> tuple[Train, Callable[[], nn.Module]]:
    plan, options, federation = job.plan, job.options, _federation(job.plan, Split(validation=0, test=0))
    training = Training(rounds=len(plan.rounds), batch_size=job.workload.batch, lr=LR, alone=False)
    algorithm = prepare(FedAvg(), Task(job.model), training)
    state = start(algorithm, federation)

    def work(round: int) -> Work:
        clients = tuple(sorted(plan.rounds[round]))
        batches = {i: client_batches(algorithm, federation, training, SEED, round, i) for i in clients}
        return Work(round, SEED, LR, clients, batches)

    engine = make_engine(_engine(options), algorithm, federation, state.server, state.privates, work(0), log)
    atexit.register(engine.close)
    log(f"engine: {engine.name}")

    def train(rounds: range) -> Mapping[str, float | None] | None:
        nonlocal state
        for r in rounds:
            state = run_round(algorithm, engine, federation, training, state, work(r), log)
        return {"cpu_seconds": None} if options.workers else None  # other processes' time is not in this one's

    def model() -> nn.Module:
        job.model.load_state_dict(state.server["w"])
        return job.model

    return train, model


def _fit(job: Job) -> tuple[Train, Callable[[], nn.Module]]:
    """What evaluation adds to a run. The clients are fedroute's own draw here: compare within this contender only."""
    from fedroute.training import fit

    federation = _federation(job.plan, Split())  # the default: curves are drawn on the validation rows

    def train(rounds: range) -> Mapping[str, float | None]:
        wall, cpu = time.perf_counter(), time.process_time()
        run = fit(
            federation, job.model, FedAvg(), seed=SEED, engine=_engine(job.options), log=log,
            rounds=len(rounds), batch_size=job.workload.batch, lr=LR, clients_per_round=SAMPLED / CLIENTS, alone=False,
        )  # fmt: skip
        job.model.load_state_dict(run.state.server["w"])
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        evaluate = run.seconds["evaluate_s"]
        seconds = run.seconds["train_s"] + evaluate
        return {"seconds": seconds, "cpu_seconds": seconds * share, "samples": run.samples, "evaluate_s": evaluate}

    return train, lambda: job.model


def _federation(plan: Plan, split: Split) -> Federation:
    """The plan's rows under fedroute's names, in their order: training rows first, then validation, then test."""
    parts = []
    for first, last in zip(plan.starts, plan.starts[1:], strict=False):
        held = [round((last - first) * share) for share in (split.validation, split.test)]
        parts.append(torch.arange(first, last).split([last - first - sum(held), *held]))
    train, validation, test = zip(*parts, strict=True)
    return Federation(
        name="speed", x=plan.x, y=plan.y, clients=NAMES, labels=LABELS, train=train, validation=validation, test=test
    )


def _engine(options: argparse.Namespace) -> dict[str, object]:
    return {"name": options.engine} | ({"workers": options.workers} if options.workers else {})


if __name__ == "__main__":
    serve("fedroute", ["torch"], build, options)
