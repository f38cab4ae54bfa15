"""Calls that come while another one runs are made together, in one."""

import asyncio
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from concurrent.futures import Executor
from typing import Any

Call = Callable[[Any, list[Any]], Sequence[Any]]
Awaited = Callable[[Any, list[Any]], Coroutine[Any, Any, Sequence[Any]]]
Results = list[Sequence[Any] | BaseException]
BRIEF = 0.004  # seconds that everybody else may be kept waiting
Entry = tuple[list[Any], "asyncio.Future[Sequence[Any]]"]


class Batches:
    """`await batches(key, items)` gives `call(key, items)`, a result for each item, made in a thread of `pool`, or
    awaited where there is no pool. Whoever
    comes first is not kept waiting for others; who comes while `at_once` calls with this key run goes into the next,
    with all others of its key, up to `most` items. Where a call of many fails, each of them is made alone, so that
    nobody suffers for another's. told: hears how many items a call has.

    models: a lock, where calls use models, that one thread at a time may. A call that will take less than BRIEF is then
    made at once by the loop itself, without a thread being woken for it; what comes meanwhile waits in its sockets."""

    def __init__(
        self,
        call: Call | Awaited,
        pool: Executor | None = None,
        *,
        at_once: int = 1,
        most: int = 1024,
        told: Callable[[int], None] | None = None,
        models: "threading.Lock | None" = None,
    ):
        self.call: Any = call
        self.pool, self.at_once, self.most, self.told = pool, at_once, most, told
        self.models, self._took = models, (1, math.inf)  # items of the last call, and its seconds
        self._waiting: dict[Hashable, deque[Entry]] = {}
        self._running: dict[Hashable, int] = {}

    async def __call__(self, key: Hashable, items: list[Any]) -> Sequence[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Any]] = loop.create_future()
        waiting = self._waiting.setdefault(key, deque())
        waiting.append((items, future))
        if self._running.get(key, 0) < self.at_once:
            loop.call_soon(self._go, key)  # after all that this turn of the loop still brings
        return await future

    def _go(self, key: Hashable) -> None:
        waiting = self._waiting.get(key)
        if not waiting or self._running.get(key, 0) >= self.at_once:
            return
        taken, count = list[Entry](), 0
        while waiting and (not taken or count + len(waiting[0][0]) <= self.most):
            entry = waiting.popleft()
            if not entry[1].done():  # who asked may have gone
                taken.append(entry)
                count += len(entry[0])
        if not waiting:
            del self._waiting[key]
        if taken:
            self._start(key, taken, self._brief(count))
            if self.told:
                self.told(count)
            asyncio.get_running_loop().call_soon(self._go, key)

    def _brief(self, count: int) -> bool:
        """Whether so many items will take less than BRIEF, and no other thread uses the models; then they are ours."""
        items, seconds = self._took
        brief = seconds * max(1.0, count / max(1, items)) < BRIEF
        return self.models is not None and brief and self.models.acquire(blocking=False)

    def _start(self, key: Hashable, taken: list[Entry], brief: bool) -> None:
        futures, entries = [future for _, future in taken], [items for items, _ in taken]
        if brief:
            assert self.models is not None
            try:
                results = self._timed(key, entries)
            finally:
                self.models.release()
            _deliver(futures, results)
            return
        work: asyncio.Future[Results]
        if self.pool is None:
            work = asyncio.ensure_future(self._awaited(key, entries))
        else:
            try:
                work = asyncio.get_running_loop().run_in_executor(self.pool, self._in_thread, key, entries)
            except RuntimeError as e:  # the pool is closed
                _deliver(futures, [e] * len(futures))
                return
        self._running[key] = self._running.get(key, 0) + 1
        work.add_done_callback(lambda done: self._done(key, futures, done))

    async def _awaited(self, key: Hashable, entries: list[list[Any]]) -> Results:
        """As `_make`."""
        try:
            return _parts(await self.call(key, [item for items in entries for item in items]), entries)
        except Exception as e:
            if len(entries) == 1:
                return [e]
            alone = await asyncio.gather(*(self._awaited(key, [items]) for items in entries))
            return [found for (found,) in alone]

    def _in_thread(self, key: Hashable, entries: list[list[Any]]) -> Results:
        if self.models is None:
            return self._make(key, entries)
        with self.models:
            return self._timed(key, entries)

    def _timed(self, key: Hashable, entries: list[list[Any]]) -> Results:
        start = time.perf_counter()
        found = self._make(key, entries)
        self._took = sum(map(len, entries)), time.perf_counter() - start
        return found

    def _make(self, key: Hashable, entries: list[list[Any]]) -> Results:
        """Of each entry its results, or why there are none."""
        try:
            return _parts(self.call(key, [item for items in entries for item in items]), entries)
        except Exception as e:
            if len(entries) == 1:
                return [e]
            return [self._make(key, [items])[0] for items in entries]

    def _done(
        self,
        key: Hashable,
        futures: list[asyncio.Future[Sequence[Any]]],
        work: "asyncio.Future[Results]",
    ) -> None:
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
        broken = asyncio.CancelledError() if work.cancelled() else work.exception()
        _deliver(futures, [broken] * len(futures) if broken else work.result())
        self._go(key)


def _parts(found: Sequence[Any], entries: list[list[Any]]) -> Results:
    """Of each entry its results."""
    ends = [0]
    for items in entries:
        ends.append(ends[-1] + len(items))
    return [found[a:b] for a, b in itertools.pairwise(ends)]


def _deliver(futures: list["asyncio.Future[Sequence[Any]]"], results: Sequence[Sequence[Any] | BaseException]) -> None:
    for future, result in zip(futures, results, strict=True):
        if future.done():  # who asked has gone
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
