"""engine: auto. The fastest engine for this model on this machine, found once by a short timed trial.

The trial runs a part of a round's work on the engines in turn and throws the answers away: it changes no state, and no
result beyond the rounding by which `stacked` differs from the others.
"""

import math
import time
from collections.abc import Callable, Mapping

from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.engines.base import Engine, Work
from fedroute.engines.sequential import Sequential
from fedroute.engines.stacked import Stacked
from fedroute.errors import InputError, RunFailed
from fedroute.tree import Tree

CLIENTS, STEPS = 32, 48  # of a trial, about
REPEATS = 3  # the fastest counts: what disturbs a measurement only adds to it
SLOW_STEP = 0.25  # seconds: here all time is arithmetic, and a stack saves none
LONG_ROUND = 1.0  # seconds: below it processes cost more than they bring
CLEARLY = 1.15  # how much faster workers must be, whose results are the same
FAR = 1.5  # and stacked, which differs by rounding: so much that the next trial decides alike


def choose(
    algorithm: Algorithm,
    federation: Federation,
    server: Tree,
    privates: Mapping[int, Tree],
    work: Work,
    log: Callable[[str], None],
    workers: int | None = None,
) -> Engine:
    """The engine to take for rounds such as `work`; says through `log` which and why. workers: how many processes to
    try, by default one a core."""
    sequential, stacked = Sequential(algorithm, federation), Stacked(algorithm, federation)
    trial = part(work, CLIENTS, STEPS)
    if not trial.clients:
        return _say(log, sequential, "there is nothing to try it on")

    def seconds(engine: Engine, work: Work) -> float:
        began = time.perf_counter()
        for _ in engine.run(server, privates, work):
            pass
        return time.perf_counter() - began

    one = part(work, 1, 1)
    step = min(seconds(sequential, one) for _ in range(2)) / _steps(one)
    best: Engine = sequential
    if stacked.declined:
        times, why = {sequential.name: step * _steps(trial)}, stacked.declined
    elif step > SLOW_STEP:
        times, why = {sequential.name: step * _steps(trial)}, f"a step takes {step:.1f} s"
    else:
        seconds(stacked, trial)  # what is slow the first time only
        if stacked.declined:
            times = {sequential.name: step * _steps(trial)}
            why = f"clients cannot be stacked: {stacked.declined.strip().splitlines()[-1]}"
        else:
            times = {e.name: min(seconds(e, trial) for _ in range(REPEATS)) for e in (sequential, stacked)}
            ratio = times[sequential.name] / times[stacked.name]
            best = stacked if ratio > FAR else sequential
            why = f"stacked is {ratio:.2f} times as fast as sequential in a trial of {_steps(trial)} steps"
    whole = times[best.name] * _steps(work) / _steps(trial)
    crew = _workers(algorithm, federation, workers) if whole > LONG_ROUND and len(work.clients) > 1 else None
    if crew is not None:
        seconds(crew, trial)
        ratio = times[best.name] / min(seconds(crew, trial) for _ in range(REPEATS - 1))
        why += f"; workers is {ratio:.2f} times as fast as {best.name}"
        if ratio > CLEARLY:
            return _say(log, crew, why)
        crew.close()
    return _say(log, best, why)


def part(work: Work, clients: int, steps: int) -> Work:
    """About so many steps of at most so many clients of a round: the same share of each client's, so that long and
    short clients are mixed as in the round."""
    busy = sorted((i for i in work.clients if work.batches[i]), key=lambda i: len(work.batches[i]))
    taken = sorted(busy[:: math.ceil(len(busy) / clients)]) if busy else []
    share = min(1.0, steps / max(1, sum(len(work.batches[i]) for i in taken)))
    return work._replace(
        clients=tuple(taken), batches={i: work.batches[i][: math.ceil(share * len(work.batches[i]))] for i in taken}
    )


def _steps(work: Work) -> int:
    return sum(len(work.batches[i]) for i in work.clients)


def _workers(algorithm: Algorithm, federation: Federation, workers: int | None) -> Engine | None:
    """Processes, where there is more than one core and they can be started here."""
    from fedroute.engines.workers import Workers, available_cores  # only where it may be wanted: it loads much

    if (workers or available_cores()) < 2:
        return None
    try:
        return Workers(algorithm, federation, workers)
    except (InputError, RunFailed):
        return None


def _say(log: Callable[[str], None], engine: Engine, why: str) -> Engine:
    log(f"engine: {engine.name} ({why})")
    return engine
