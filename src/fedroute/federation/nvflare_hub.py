"""The hub's side of NVFLARE: a component in the long-lived server process, and the Transport over its cell.

No jobs, no scheduler: the sites' long-lived client processes answer calls (`nvflare_site`). What a site may ask of the
hub is to be registered, to say that it is there, and to answer."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.endpoint import Endpoint, EndpointMonitor, EndpointState
from nvflare.fuel.f3.message import Message
from nvflare.widgets.widget import Widget

from fedroute import __version__
from fedroute.federation import nvflare_cell as wire
from fedroute.federation.ending import on_terminate
from fedroute.federation.folders import HubFolder
from fedroute.federation.loading import load_name
from fedroute.federation.nvflare_quick import Asking
from fedroute.federation.ports import held, port_words, taken
from fedroute.federation.said import say_to
from fedroute.federation.state_file import read_state, write_state
from fedroute.federation.transport import QUICK, Away, Late, Payload, Refused, TransportError, failed, size, waited
from fedroute.federation.twins import TWINS, Twins, told_to

SILENT = 30.0  # seconds without a word after which a site counts as away though its connection looks whole
GRACE = 10.0  # seconds that a run has to save what it has when the hub is told to end
UNANSWERED = 30.0  # seconds after which a site that is connected and does not say that it is up is told of
REGISTERING = (
    CellChannelTopic.Challenge,
    CellChannelTopic.Register,
    CellChannelTopic.HEART_BEAT,
    CellChannelTopic.Quit,
)
ASKED: wire.Passing = frozenset(
    {*((CellChannel.SERVER_MAIN, t) for t in REGISTERING), (wire.WORDS_OF_SITES, wire.HERE)}
)
ONE_FRAME = 1 << 20  # bytes; a site's end of the connection takes no frame beyond 4 MiB
LONGEST = 600.0  # seconds of a call that goes in pieces and whose end nobody waits for
GONE = {ReturnCode.TARGET_UNREACHABLE, ReturnCode.COMM_ERROR, ReturnCode.INVALID_TARGET}


class Link(Signal):  # type: ignore[misc]
    """One stay of a site: triggered when it ends, and so ends the calls that wait on it."""

    def __init__(self, birth: str) -> None:
        super().__init__()
        self.birth, self.seen, self.came = birth, time.monotonic(), time.time()


class Until(Signal):  # type: ignore[misc]
    """Triggered when the link ends or the time is over: NVFLARE's own timeout starts anew with every piece sent."""

    def __init__(self, link: Link, timeout: float) -> None:
        super().__init__(parent=link)
        self.end = time.monotonic() + timeout

    @property
    def triggered(self) -> bool:
        return bool(self._parent.triggered) or time.monotonic() > self.end


class NvflareTransport(EndpointMonitor):  # type: ignore[misc]  # NVFLARE has no types
    """Transport on the server's cell. A site is a node from its word that it is up until its connection breaks, or
    nothing was heard of it for SILENT seconds."""

    def __init__(self, cell: Cell, say: Callable[[str], None], stands: Callable[[], Mapping[str, Any]] = dict) -> None:
        """stands: how the hub stands, as state.json says it; a site is told the phase of the run."""
        self._cell, self._core, self._say, self._stands = cell, cell.core_cell, say, stands
        self._twins = Twins()
        self._links: dict[str, Link] = {}
        self._connected: dict[str, float] = {}
        self._lock = threading.RLock()
        self._tells: list[Callable[[str, bool], None]] = []
        self._changes: queue.SimpleQueue[tuple[str, bool] | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._started = False

    def start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        self._asking = Asking(self._core.communicator, self._say, self.heard)
        self._core.register_request_cb(wire.WORDS_OF_SITES, wire.HERE, self._here)
        self._core.communicator.register_monitor(self)
        for name in list(self._core.agents):
            self._connected.setdefault(name, time.monotonic())
        threading.Thread(target=self._tell, name="fedroute-changes", daemon=True).start()
        threading.Thread(target=self._watch, name="fedroute-watch", daemon=True).start()

    def nodes(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._links))

    def notes(self) -> dict[str, str]:
        """site -> what is odd about how it is connected."""
        return self._twins.notes()

    def on_change(self, tell: Callable[[str, bool], None]) -> None:
        with self._lock:
            self._tells.append(tell)

    def call(self, node: str, method: str, payload: Payload, timeout: float) -> Payload:
        if method in QUICK:
            return waited(self.begin(node, method, payload), node, method, timeout)
        return self._streamed(node, method, payload, timeout)

    def _streamed(self, node: str, method: str, payload: Payload, timeout: float) -> Payload:
        """A call in pieces."""
        message = wire.request(payload)
        with self._lock:
            link = self._links.get(node)
        if link is None:
            raise Away(f"{node} is not connected")
        started = time.monotonic()
        reply = self._cell.send_request(
            channel=wire.CALLS, topic=method, target=node, request=message, timeout=timeout, optional=True,
            abort_signal=Until(link, timeout),
        )  # fmt: skip
        code = reply.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)
        if code == ReturnCode.OK:
            return wire.read(reply)
        if link.triggered or code in GONE:
            raise Away(
                f"{node}: the connection broke {time.monotonic() - started:.1f} s after it was asked to {method}"
            )
        if code == ReturnCode.TIMEOUT:
            raise Late(f"{node} has not answered {method} within {timeout:g} s")
        raise Refused(f"{method}: {reply.get_header(MessageHeaderKey.ERROR) or code}")

    def begin(self, node: str, method: str, payload: Payload) -> "Future[Payload]":
        if size(payload) > ONE_FRAME:
            return in_thread(lambda: self._streamed(node, method, payload, LONGEST))
        with self._lock:
            link = self._links.get(node)
        if link is None:
            return failed(Away(f"{node} is not connected"))
        reply = self._asking.begin(node, method, payload)
        if link.triggered:  # it ended before it was known that somebody waits
            self._asking.end(node)
        return reply

    def close(self) -> None:
        self._over.set()
        self._changes.put(None)
        with self._lock:
            names = list(self._links)
        for name in names:
            self._end(name, "this hub ends")

    # what the cell tells

    def heard(self, name: str) -> None:
        """Anything that came from a site says that it is there."""
        if link := self._links.get(name):
            link.seen = time.monotonic()

    def state_change(self, endpoint: Endpoint) -> None:
        if "." in endpoint.name:  # a cell beside a site's own, under its certificate: no site
            return
        if endpoint.state == EndpointState.READY:
            self._connected[endpoint.name] = time.monotonic()
        else:
            self._connected.pop(endpoint.name, None)
            self._end(endpoint.name, "its connection broke")

    def _here(self, message: Message) -> Message:
        """A site says that it is up. Its name is that of its certificate: the guard and NVFLARE have seen to it."""
        name = str(message.get_header(MessageHeaderKey.ORIGIN))
        try:
            told = wire.read(message)
        except Refused as e:
            return wire.answer(wire.pack_refusal(str(e)))
        if told.get("protocol") != wire.PROTOCOL:
            version = str(told.get("version"))
            self._say(f"{name} runs fedroute {version}, which does not fit {__version__} of this hub")
            words = f"the hub runs fedroute {__version__}, and this site {version}: install that"
            return wire.answer(wire.pack_refusal(words))
        birth = str(told.get("birth"))
        with self._lock:
            old = self._links.get(name)
        if old and old.birth != birth:  # the process is another one, and the old connection has not been missed yet
            if self._twins.came(name, old.birth, birth):
                self._say(f"{name}: {TWINS}")
            self._end(name, "it was started anew")
        with self._lock:
            if (link := self._links.get(name)) is None:
                self._links[name] = Link(birth)
                self._changes.put((name, True))
            else:
                link.seen = time.monotonic()
            came = self._links[name].came
        self._one_connection(name)
        wire.break_when_stuck(self._core, name)
        stands = told_to(name, self._stands(), came, self.notes().get(name, ""))
        return wire.answer(wire.pack(stands | {"version": __version__}))

    def _one_connection(self, name: str) -> None:
        """A site that came again while its old connection still looked whole has two, and messages go by turns."""
        manager = self._core.communicator.conn_manager
        endpoint = manager.sfm_endpoints.get(name)
        if endpoint and len(endpoint.connections) > 1:
            *old, _ = sorted(endpoint.connections, key=lambda c: float(c.last_activity))
            for connection in old:
                connection.conn.close()

    def _end(self, name: str, why: str) -> None:
        with self._lock:
            link = self._links.pop(name, None)
        if link is None:
            return
        link.trigger(True)
        self._asking.end(name)
        self._say(f"{name} is away: {why}")
        self._changes.put((name, False))

    # threads

    def _tell(self) -> None:
        while change := self._changes.get():
            if change[1]:
                self._say(f"{change[0]} is here")
            for tell in list(self._tells):
                try:
                    tell(*change)
                except Exception as e:  # one listener's fault is not the next one's
                    self._say(f"a listener failed on {change}: {type(e).__name__}: {e}")

    def _watch(self) -> None:
        told = set[str]()
        while not self._over.wait(1.0):
            now = time.monotonic()
            for name, link in list(self._links.items()):
                if now - link.seen > SILENT:
                    self._connected[name] = now
                    self._end(name, f"nothing was heard of it for {SILENT:g} s")
            silent = {
                n for n, since in list(self._connected.items()) if n not in self._links and now - since > UNANSWERED
            }
            for name in silent - told:
                self._say(f"{name} is connected and does not say that it is up: what is wrong stands in its log.txt")
            told = silent


def in_thread(call: Callable[[], Payload]) -> "Future[Payload]":
    """What the call returns or raises, made in a thread of its own."""
    reply = Future[Payload]()

    def work() -> None:
        try:
            found = call()
            with suppress(InvalidStateError):  # who asked has gone
                reply.set_result(found)
        except Exception as e:
            with suppress(InvalidStateError):
                reply.set_exception(e)

    threading.Thread(target=work, name="fedroute-long-call", daemon=True).start()
    return reply


class HubComponent(Widget):  # type: ignore[misc]
    """Named in the hub's resources.json. folder: the hub's; runs: "module:function" of what runs over the transport,
    called as f(folder, transport, stop, say) in a thread of its own."""

    def __init__(self, folder: str, runs: str = "fedroute.federation.hub_process:run") -> None:
        super().__init__()
        self.folder, self.runs = Path(folder), runs
        self.say = say_to(self.folder / "log.txt")
        self.stop = threading.Event()
        self.runner: threading.Thread | None = None
        self.transport: NvflareTransport | None = None
        wire.take_no_larger_frames()
        wire.guard_from_the_first_moment(self.guard)
        self.register_event_handler(EventType.SYSTEM_START, self._up)
        on_terminate(self._close)

    def guard(self, cell: CoreCell) -> wire.Guard:
        return wire.Guard(cell, bool, ASKED, {CellChannel.RETURN_ONLY}, self.say, self._heard)

    def _heard(self, name: str) -> None:
        if self.transport:
            self.transport.heard(name)

    def _up(self, event: str, context: FLContext) -> None:
        engine: Any = context.get_engine()
        cell = engine.get_cell() or engine.server.cell
        self.transport = NvflareTransport(cell, self.say, lambda: read_state(self.folder))
        self.transport.start()
        self.runner = threading.Thread(target=self._run, name="fedroute-hub", daemon=True)
        self.runner.start()

    def _run(self) -> None:
        self._listening()
        try:
            load_name(self.runs)(self.folder, self.transport, self.stop, self.say)
        except Exception as e:  # NVFLARE would lose it with the thread; the server goes on answering
            self.say(f"the run has ended with {type(e).__name__}: {e}")
            self.logger.exception("fedroute")

    def _listening(self) -> None:
        """Waits until the port is ours: NVFLARE tries on where it is another program's, and says nothing of it."""
        settings, said = HubFolder(self.folder).settings_file, False
        port, since = int(HubFolder(self.folder).settings()["port"]), time.monotonic()
        while not held(port) and not self.stop.wait(0.1):
            if not said and time.monotonic() - since > 2.0:
                words, said = port_words(taken(port), settings), True
                self.say(words)
                write_state(self.folder, up=False, words=words)
        if not self.stop.is_set():
            write_state(self.folder, up=True)
            self.say("the hub is up")

    def _close(self) -> None:
        """The run ends after its last whole round; then the sites are let go."""
        self.stop.set()
        if self.runner:
            self.runner.join(GRACE)
        if self.transport:
            self.transport.close()


__all__ = ["HubComponent", "NvflareTransport", "TransportError"]
