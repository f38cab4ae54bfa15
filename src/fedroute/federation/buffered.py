"""Buffered asynchronous aggregation: no site waits for another."""

import queue
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedroute.engines.base import Answer, Work
from fedroute.engines.transport import LOOK, Asked, Blob, Transported
from fedroute.errors import InputError
from fedroute.federation.patience import Patience
from fedroute.federation.spec import Asynchronous
from fedroute.quarantine import fault
from fedroute.tree import Tree, tree_map
from fedroute.words import count

DIFFERENCES = ("dw", "dc")  # parts of an update that are changes; others are values, which no staleness makes smaller


@dataclass
class Buffer:
    """What has come since the last version of the server's weights (Nguyen et al. 2022, algorithm 1): pure bookkeeping.

    size: K. exponent: of (1 + staleness). version: of the server's weights, counted from 0."""

    size: int
    exponent: float = 0.5
    version: int = 0
    begun: dict[int, int] = field(default_factory=dict)  # client -> version that it trains from
    held: list[tuple[int, int]] = field(default_factory=list)  # (client, staleness) of those that came

    def begin(self, client: int) -> None:
        """The client gets the weights of now."""
        self.begun[client] = self.version

    def staleness(self, client: int) -> int:
        """Versions that the server has gone on since."""
        return self.version - self.begun[client]

    def factor(self, staleness: int) -> float:
        """s(tau) = (1 + tau)^-exponent: the paper's polynomial, with 1/2."""
        return float((1 + staleness) ** -self.exponent)

    def add(self, client: int) -> float:
        """The client's update has come; what it is multiplied with."""
        tau = self.staleness(client)
        self.held.append((client, tau))
        return self.factor(tau)

    @property
    def full(self) -> bool:
        return len(self.held) >= self.size

    def empty(self) -> list[tuple[int, int]]:
        """The server goes on to the next version; what that was made of."""
        held, self.held, self.version = self.held, [], self.version + 1
        return held


def scaled(update: Tree, factor: float) -> Tree:
    """The update with its changes multiplied. Of a variance, told as change plus squared change of the mean, that gives
    the variance of the mixture: (1 - s) of the old, s of the new."""
    if factor == 1:
        return update
    return {k: tree_map(lambda v: v * factor, v) if k in DIFFERENCES else v for k, v in update.items()}


class Buffered(Transported):
    """An engine whose rounds are versions of the server's weights: each `run` yields what comes, until the buffer is
    full, or `deadline` has passed. Sites train on from one to the next; the n-th training of a site has its n-th
    batches. The order of coming decides the sums, so that a run is not reproducible to the bit.

    As Transported; bound: as training.update_bound. Raises InputError for an algorithm that looks at each update."""

    def __init__(self, *args: Any, asynchronous: Asynchronous, bound: float, **options: Any):
        super().__init__(*args, late="use", **options)
        if self.algorithm.reduce != "mean":
            name = self.algorithm.describe()["name"]
            raise InputError(
                f"hub.asynchronous: {name} looks at all updates of a round together, and here there are no rounds: "
                "leave asynchronous out, or take fedavg"
            )
        self.buffer, self.bound = Buffer(asynchronous.buffer, asynchronous.exponent), bound
        self.working = dict[int, Asked]()  # client -> what it works on
        self.live = dict[int, Tree]()  # client -> receipt of the newest private tree that counts
        self.came = queue.SimpleQueue[Asked]()
        self.counted = list[dict[str, int]]()  # of each version: how often each site is in it

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        """The answers of one version, as they come; those that must not count besides, with why."""
        self._tidy()
        self.sent = 0
        self.buffer.version = work.round
        common, end = self.packed({k: server[k] for k in self.algorithm.broadcast}), Patience(self.deadline)
        for i in work.clients:
            self.live.setdefault(i, privates[i])
        while not self.buffer.full and end.left():
            self._give_up()
            self._set_to_work(server, work, common)
            try:
                asked = self.came.get(timeout=max(0.001, min(LOOK, end.left())))
            except queue.Empty:
                continue
            i, a = asked.client, asked.answer
            if self.working.get(i) is not asked or a is None or i not in work.batches:
                continue  # it was given up before
            del self.working[i]
            planned = len(work.batches[i])
            if fault(a, self.form, self.bound, planned, work.judged) or self.algorithm.implausible(a.update, planned):
                yield a
                continue
            self.live[i] = a.private
            tau = self.buffer.staleness(i)
            if tau:
                self.log(f"{self.clients[i]}: its update is {count(tau, 'version')} old")
            yield a._replace(update=scaled(a.update, self.buffer.add(i)))
        held = self.buffer.empty()
        self.counted.append({self.clients[i]: sum(c == i for c, _ in held) for i in sorted({c for c, _ in held})})

    def close(self) -> None:
        for asked in self.working.values():
            self._stop(asked)
        self.working.clear()
        super().close()

    def _set_to_work(self, server: Tree, work: Work, common: Blob) -> None:
        """Every site that is here and idle begins its next training with the weights of now."""
        here = self.transport.nodes()
        for i in work.clients:
            if i not in self.working and self.clients[i] in here and not self.has_left(i):
                self.buffer.begin(i)
                own = work._replace(round=int(self.live[i]["round"]))
                self.working[i] = self.ask(i, server, self.live[i], own, common, self.came.put)

    def _give_up(self) -> None:
        """Those who have taken longer than the deadline, or whose connection is long gone, begin anew when they can."""
        for i, asked in list(self.working.items()):
            if self.has_left(i):
                self._stop(self.working.pop(i))
            elif asked.gone() > self.away or (self.deadline is not None and asked.age() > self.deadline):
                self.log(f"{self.clients[i]}: gave no answer in time; it is asked anew")
                self._stop(self.working.pop(i))

    def _in_use(self) -> list[Asked]:
        return [*super()._in_use(), *self.working.values()]
