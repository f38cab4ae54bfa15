"""An engine by its name."""

from collections.abc import Callable, Mapping
from typing import Any

from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.engines.allocator import keep_memory
from fedroute.engines.auto import choose
from fedroute.engines.base import Engine, Work
from fedroute.engines.sequential import Sequential
from fedroute.engines.stacked import Stacked
from fedroute.errors import InputError
from fedroute.tree import Tree

ENGINES = {
    "auto": "the fastest of those below on this machine and task, by a short timed trial",
    "sequential": "one client after the other: the definition",
    "stacked": "all clients of a round at once, stacked along a new dimension: for small models",
    "workers": "clients spread over processes: for several cores",
    "transport": "each client a site of its own, all that crosses as bytes: the rehearsal of a real federation",
}


def make_engine(
    spec: str | dict[str, Any],
    algorithm: Algorithm,
    federation: Federation,
    server: Tree,
    privates: Mapping[int, Tree],
    work: Work,
    log: Callable[[str], None],
) -> Engine:
    """The engine of a spec such as "auto" or {"name": "workers", "workers": 4}. `server`, `privates` and `work` are
    what "auto" tries; the trial changes none of them and no result.

    Raises InputError for an unknown name or key, or where the engine cannot run this algorithm or model."""
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", "auto")
    workers, timeout = options.pop("workers", None), options.pop("timeout", None)
    if not isinstance(workers, int | None) or isinstance(workers, bool):
        raise InputError(f"engine.workers: {workers!r} is no number of processes")
    if not isinstance(timeout, int | float | None) or isinstance(timeout, bool):
        raise InputError(f"engine.timeout: {timeout!r} is no number of seconds")
    if options:
        raise InputError(f"engine.{min(options)}: unknown key; the keys are name, workers and timeout")
    if timeout is not None and name != "workers":
        raise InputError(f"engine.timeout: belongs to workers; {name} cannot give up a client that hangs")
    if name not in ENGINES:
        raise InputError(f"engine.name: no engine {name!r}; take one of {', '.join(ENGINES)}")
    keep_memory()
    if name == "auto":
        return choose(algorithm, federation, server, privates, work, log, workers)
    if name == "workers":
        from fedroute.engines.workers import Workers

        return Workers(algorithm, federation, workers, timeout=timeout)
    if name == "transport":
        from fedroute.federation.simulated import Simulated

        return Simulated(algorithm, federation)
    if name == "sequential":
        return Sequential(algorithm, federation)
    stacked = Stacked(algorithm, federation)
    if stacked.declined:
        log(f"engine: stacked runs one client after the other: {stacked.declined}")
    return stacked
