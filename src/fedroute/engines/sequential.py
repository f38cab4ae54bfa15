"""One client after the other: the definition that every other engine must equal."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from fedroute.core import Algorithm, Context, run_client
from fedroute.data.federation import Federation
from fedroute.engines.base import Answer, Work, context
from fedroute.engines.by_hand import by_hand
from fedroute.engines.quality import quality, watched
from fedroute.randomness import seed_of
from fedroute.tree import Tree


@dataclass(frozen=True)
class Sequential:
    algorithm: Algorithm
    federation: Federation
    name: ClassVar[str] = "sequential"

    @cached_property
    def _quick(self) -> Algorithm:
        return by_hand(self.algorithm)

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        for client in work.clients:
            yield answer(self._quick, self.federation, server, privates[client], client, work)

    def close(self) -> None:
        pass


def answer(
    alg: Algorithm,
    federation: Federation,
    server: Tree,
    private: Tree,
    client: int,
    work: Work,
    ctx: Context | None = None,
) -> Answer:
    """One client's round. ctx: what it may read, where that was put together elsewhere: at a real client, which is sent
    nothing else."""
    steps = work.batches[client]
    try:
        with at_client(work, federation.clients[client]):
            ctx, judged = ctx or context(alg, server, private, client, work, federation), list[float]()
            if work.judged:
                alg = watched(alg, lambda w: judged.append(quality(alg.task, w, federation, client)))
            update, kept, loss = run_client(alg, ctx, (federation.take(rows) for rows in steps))
        return Answer(client, len(steps), update, kept, float(loss), quality=judged[0] if judged else None)
    except Exception:  # a client's fault, whatever it is, must not end the others' round
        return Answer(client, len(steps), {}, {}, float("nan"), traceback.format_exc())


@contextmanager
def at_client(work: Work, name: str) -> Iterator[None]:
    """One thread, so that results do not depend on the cores at hand, and the global random state, which dropout draws
    from, set by (seed, round, client) and restored."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(work.seed, "client", work.round, name))
            yield
    finally:
        torch.set_num_threads(threads)
