"""A network inside one process, for simulation and tests: sites are handlers, connections can be cut and slowed."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass

from fedroute.federation.transport import Away, Handler, Payload, Refused, TransportError, check, failed, size, waited


@dataclass
class _Cut:
    """A connection that breaks at the next call of a method, before the site hears of it or after it has answered."""

    method: str
    answered: bool
    back: float | None  # seconds after which the site is there again; None: once it is plugged


class InProcess:
    """A Transport whose sites are handlers of this process; each call has a thread of its own.

    delay: seconds that each call to a site takes more. up, down: bytes of the replies of each site, and of the calls to
    it, as payloads; calls: (site, method) -> how many were made."""

    def __init__(self, handlers: Mapping[str, Handler]):
        self._lock, self._closed = threading.RLock(), threading.Event()
        self._handlers, self._here = dict(handlers), set[str]()
        self._waiting: dict[str, set[Future[Payload]]] = {name: set() for name in handlers}
        self._cuts: dict[str, list[_Cut]] = {}
        self._tell: list[Callable[[str, bool], None]] = []
        self.delay: dict[str, float] = {}
        self.up, self.down = Counter[str](), Counter[str]()
        self.calls = Counter[tuple[str, str]]()

    # a Transport

    def start(self) -> None:
        for name in sorted(self._handlers):
            self.plug(name)

    def nodes(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._here))

    def call(self, node: str, method: str, payload: Payload, timeout: float) -> Payload:
        return waited(self.begin(node, method, payload), node, method, timeout)

    def begin(self, node: str, method: str, payload: Payload) -> "Future[Payload]":
        try:
            check(payload)
        except Refused as e:
            return failed(e)
        answer: Future[Payload] = Future()
        with self._lock:
            if node not in self._here:
                return failed(Away(f"{node} is not connected"))
            self._waiting[node].add(answer)
            self.calls[node, method] += 1
        answer.add_done_callback(lambda _: self._forget(node, answer))
        threading.Thread(target=self._serve, args=(node, method, payload, answer), daemon=True).start()
        return answer

    def _forget(self, node: str, answer: "Future[Payload]") -> None:
        with self._lock:
            self._waiting[node].discard(answer)

    def on_change(self, tell: Callable[[str, bool], None]) -> None:
        self._tell.append(tell)

    def notes(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        self._closed.set()
        for name in self.nodes():
            self.unplug(name)

    # for tests

    def plug(self, node: str, handler: Handler | None = None) -> None:
        """The site comes, or comes back; with another handler where it was restarted, or is new."""
        with self._lock:
            if handler is not None:
                self._handlers[node] = handler
            self._waiting.setdefault(node, set())
            new = node not in self._here
            self._here.add(node)
        for tell in self._tell if new else ():
            tell(node, True)

    def unplug(self, node: str) -> None:
        """The site is gone; every call to it that waits ends at once. What it was asked may go on there."""
        with self._lock:
            was, waiting = node in self._here, list(self._waiting.get(node, ()))
            self._here.discard(node)
        for answer in waiting:
            with suppress(InvalidStateError):
                answer.set_exception(Away(f"the connection to {node} broke"))
        for tell in self._tell if was else ():
            tell(node, False)

    def cut(self, node: str, method: str, *, answered: bool = False, back: float | None = 0.0) -> None:
        """The connection to a site breaks at its next call of `method`: before the site hears of it, or (`answered`)
        when it has done its work and answers. It is there again `back` seconds later; None: once it is plugged."""
        with self._lock:
            self._cuts.setdefault(node, []).append(_Cut(method, answered, back))

    def _serve(self, node: str, method: str, payload: Payload, answer: "Future[Payload]") -> None:
        cut = self._cut_of(node, method)
        if (wait := self.delay.get(node, 0.0)) and self._closed.wait(wait):
            return
        if cut and not cut.answered:
            self._break(node, cut)
            return
        try:
            with self._lock:
                self.down[node] += size(payload)
            reply = check(self._handlers[node](method, dict(payload)))
            with self._lock:
                self.up[node] += size(reply)
            if cut:
                self._break(node, cut)
            with suppress(InvalidStateError):
                answer.set_result(reply)
        except TransportError as e:
            self._fail(answer, e)
        except Exception as e:
            self._fail(answer, Refused(f"{type(e).__name__}: {e}"))

    def _fail(self, answer: "Future[Payload]", error: TransportError) -> None:
        with suppress(InvalidStateError):
            answer.set_exception(error)

    def _cut_of(self, node: str, method: str) -> _Cut | None:
        with self._lock:
            cuts = self._cuts.get(node, [])
            found = next((c for c in cuts if c.method == method), None)
            if found:
                cuts.remove(found)
            return found

    def _break(self, node: str, cut: _Cut) -> None:
        self.unplug(node)
        if cut.back is not None and not self._closed.wait(cut.back):
            self.plug(node)
