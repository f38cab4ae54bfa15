"""Clients spread over processes: whole clients, each computed exactly as `sequential` does, equal to it bit for bit.

A worker is a process that lives as long as the engine and computes one client at a time, on one thread. Where the
system can fork safely (Linux) it shares the parent's rows; elsewhere it gets a copy once, when it starts. What a round
needs goes through one socket per worker: the broadcast once a round, private trees with their client, there and back.
No files, no shared memory; a worker keeps nothing that its death could lose.
"""

import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, Self

import torch

from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.engines.allocator import keep_memory
from fedroute.engines.base import Answer, Work
from fedroute.engines.by_hand import by_hand
from fedroute.engines.frames import Packed, pack, receive, send
from fedroute.engines.sequential import answer
from fedroute.errors import InputError, RunFailed
from fedroute.tree import Tree, nbytes

HELD_BYTES = 64 * 2**20
"""How much finished answers may hold while they wait for an earlier client; two for each worker in any case."""

_ours: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()  # this process's ends of the sockets to its workers
_starting = threading.Lock()


class Workers:
    """`workers` processes, by default one for each core this process may use. A context manager.

    start: "fork" or "spawn"; by default fork on Linux, spawn elsewhere and once CUDA is in use. With spawn the
    algorithm, its model and loss must be picklable. Long clients are handed out first and an idle worker takes the
    next; answers come in the order of work.clients. A client whose worker dies is answered with the error
    "worker died (signal 9)"; a new worker takes over and the round goes on. timeout: seconds that a client may take;
    who takes longer is answered with an error likewise, and its process ended.

    Raises InputError for fewer than one worker, a timeout that is not above 0, or what cannot be pickled, RunFailed
    where a process does not start."""

    name = "workers"

    def __init__(
        self,
        algorithm: Algorithm,
        federation: Federation,
        workers: int | None = None,
        start: Literal["fork", "spawn"] | None = None,
        timeout: float | None = None,
    ):
        workers = available_cores() if workers is None else workers
        if workers < 1:
            raise InputError(f"engine.workers: {workers} is too few; give 1 or more, or leave it out")
        if timeout is not None and not timeout > 0:
            raise InputError(f"engine.timeout: {timeout} is no number of seconds above 0; leave it out to wait")
        self._timeout = timeout
        forks = sys.platform == "linux" and not torch.cuda.is_initialized()
        method = start or ("fork" if forks else "spawn")
        if method != "fork":
            _check_picklable(algorithm)
        self._broadcast = (*algorithm.broadcast, *algorithm.own)
        self._crew = [_Worker(algorithm, federation, method) for _ in range(workers)]
        self._running = False
        self._dismiss = weakref.finalize(self, _dismiss, os.getpid(), self._crew)
        try:
            for worker in self._crew:
                worker.start()
            for worker in self._crew:
                worker.greet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers. Calling it again does nothing."""
        self._dismiss()

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        """An answer for each of work.clients, in that order, each as soon as it and those before it are there.

        Raises RuntimeError on a closed engine and while another round of this engine is unfinished."""
        if self._running or not self._dismiss.alive:
            raise RuntimeError("this engine is " + ("in the middle of a round" if self._dismiss.alive else "closed"))
        self._running = True
        try:
            yield from self._round(server, privates, work)
        finally:
            self._running = False
            for worker in self._crew:
                if worker.client is not None:  # the round was abandoned: the socket may hold half an answer
                    worker.stop()

    def _round(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        broadcast = pack({k: server[k] for k in self._broadcast})
        for worker in self._crew:
            worker.informed = False
        size = len(broadcast.data) + max((nbytes(privates[c]) for c in work.clients), default=0)
        queue = Queue(work, len(self._crew), max(2 * len(self._crew) + 1, HELD_BYTES // max(1, size)))
        done: dict[int, Answer] = {}
        for client in work.clients:
            while True:
                for worker in self._crew:
                    if worker.client is None and (chosen := queue.next()) is not None:
                        worker.hand_out(chosen, broadcast, privates[chosen], work)
                busy = {w.socket: w for w in self._crew if w.client is not None}
                ready = wait(list(busy), timeout=0 if client in done else self._patience(busy.values()))
                late = [w for end, w in busy.items() if end not in ready and self._patience([w]) == 0]
                for a in [busy[end].take() for end in ready] + [w.give_up(self._timeout) for w in late]:  # type: ignore[index]
                    done[a.client] = a
                if client in done and not ready:  # nobody idles while the caller looks at the answer
                    break
            queue.out -= 1
            yield done.pop(client)

    def _patience(self, busy: Iterable["_Worker"]) -> float | None:
        """Seconds until the first of these has taken too long; None where that cannot be."""
        now, limit = time.monotonic(), self._timeout
        return None if limit is None else max(0.0, min((w.since + limit - now for w in busy), default=limit))


class Queue:
    """Who is handed out next. The longest client first, so that no long one is left for the end of the round; but the
    earliest first once `limit` answers are nearly reached, which are out or wait for an earlier one, and nobody beyond.

    The last `workers` places go to the earliest, so the one that the others wait for is always out or next."""

    def __init__(self, work: Work, workers: int, limit: int):
        rows = {c: sum(len(b) for b in work.batches[c]) for c in work.clients}
        self._left = dict.fromkeys(work.clients)
        self._longest = iter(sorted(work.clients, key=lambda c: -rows[c]) if workers > 1 else work.clients)
        self._free, self._limit = limit - workers, limit
        self.out = 0  # handed out and not yet given to the caller, who counts it down

    def next(self) -> int | None:
        """The next client, or None where there is none left or too many answers wait."""
        if self.out >= self._limit or not self._left:
            return None
        pool = self._longest if self.out < self._free else iter(self._left)
        client = next(c for c in pool if c in self._left)
        del self._left[client]
        self.out += 1
        return client


class _Worker:
    """One process and this process's end of the socket to it."""

    def __init__(self, algorithm: Algorithm, federation: Federation, method: str):
        self.job, self.method = (algorithm, federation), method
        self.process: BaseProcess | None = None
        self.socket: socket.socket
        self.client: int | None = None  # what it computes
        self.steps, self.since = 0, 0.0  # of that; since when
        self.informed = False  # has the broadcast of this round

    def start(self) -> None:
        self.socket, theirs = socket.socketpair()
        context: Any = multiprocessing.get_context(self.method)
        job = self.job if self.method == "fork" else None
        with _starting, _undisturbed():
            _ours.add(self.socket)
            self.process = context.Process(target=_serve, args=(theirs, os.getpid(), job), daemon=True)
            try:
                self.process.start()
            finally:
                theirs.close()
        self.client, self.informed = None, False

    def greet(self) -> None:
        """Waits until it is ready; a spawned one is given its job."""
        try:
            if self.method != "fork":
                send(self.socket, pickle.dumps(self.job))
            receive(self.socket)
        except (EOFError, OSError) as e:
            raise RunFailed(
                f"engine workers: a process ended while it started ({self.stop(5)}). Where processes are spawned, the"
                " script must start its run below: if __name__ == '__main__'"
            ) from e

    def hand_out(self, client: int, broadcast: Packed, private: Tree, work: Work) -> None:
        if self.process is None or not self.process.is_alive():  # killed while it was idle: nobody's work is lost
            self.stop()
            self.start()
            self.greet()
        batches = work.batches[client]
        self.client, self.steps, self.since = client, len(batches), time.monotonic()
        rows = {"rows": torch.cat(list(batches))} if batches else {}
        trees = [pack(private), pack(rows)] + ([] if self.informed else [broadcast])
        message = (*work[:3], work.judged, client, [len(b) for b in batches], torch.get_default_dtype())
        with suppress(OSError):  # it died just now: `take` will find out
            send(self.socket, message, *trees)
        self.informed = True

    def take(self) -> Answer:
        """What it answers, or that it died."""
        client, self.client = self.client, None
        assert client is not None
        try:
            (steps, loss, error, judged), (update, private) = receive(self.socket)
        except (EOFError, OSError):
            return Answer(client, self.steps, {}, {}, float("nan"), f"worker died ({self.stop(5)})")
        return Answer(client, steps, update, private, loss, error, judged)

    def give_up(self, after: float | None) -> Answer:
        """What is answered for one that takes too long, whose process ends."""
        client, steps = self.client, self.steps
        assert client is not None
        self.stop()
        return Answer(client, steps, {}, {}, float("nan"), f"no answer within {after:g} s (engine.timeout)")

    def stop(self, grace: float = 0.0) -> str:
        """Ends it, at once or when it has not ended by itself after `grace` seconds; how it ended."""
        self.client = None
        if self.process is None:
            return "never started"
        self.socket.close()
        if self.process.pid is not None:  # it was started
            self.process.join(grace)
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        self.process.close()
        self.process = None
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _dismiss(pid: int, crew: list[_Worker]) -> None:
    if os.getpid() == pid:  # and not a fork of it that inherited the engine
        for worker in crew:
            worker.stop()


def _check_picklable(algorithm: Algorithm) -> None:
    try:
        pickle.dumps(algorithm)
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        raise InputError(
            f"engine.name: workers cannot send the algorithm and its model to new processes ({e}). Define the model,"
            " its loss and the algorithm by name at the top level of a module, or take the engine sequential"
        ) from e


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C is for the parent alone: the child inherits that SIGINT is blocked. Python 3.12+ warns that a fork while
    other threads run may deadlock: a worker takes no lock that they could hold, and computes on one thread only."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if hasattr(signal, "pthread_sigmask") else None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*use of fork\(\) may lead to deadlocks", DeprecationWarning)
            yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _serve(source: socket.socket, parent: int, job: tuple[Algorithm, Federation] | None) -> None:
    """The life of a worker: until its parent closes the socket or is gone."""
    for other in list(_ours):  # else a sister that outlives the parent would keep its end open
        other.close()
    _reset_signals(parent)
    torch.set_num_threads(1)
    keep_memory()
    with suppress(EOFError, OSError):
        algorithm, federation = job or pickle.loads(receive(source)[0])
        algorithm = by_hand(algorithm)
        send(source, "ready")
        server: Tree = {}
        while True:
            (round, seed, lr, judged, client, lengths, dtype), trees = receive(source)
            private, rows, server = (*trees, server)[:3]
            torch.set_default_dtype(dtype)
            steps = list(rows["rows"].split(lengths)) if lengths else []
            work = Work(round, seed, lr, (client,), {client: steps}, judged)
            a = answer(algorithm, federation, server, private, client, work)
            try:
                packs = pack(a.update), pack(a.private)
            except Exception:  # an answer that is no tree of tensors is the client's fault like any other
                a = a._replace(loss=float("nan"), error=traceback.format_exc())
                packs = pack({}), pack({})
            send(source, (a.steps, a.loss, a.error, a.quality), *packs)


def _reset_signals(parent: int) -> None:
    """What the parent does on a signal is not for its workers; one that has lost its parent ends within a second."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: None if os.getppid() == parent else os._exit(1))
        signal.setitimer(signal.ITIMER_REAL, 1, 1)
