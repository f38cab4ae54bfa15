"""The site's side of NVFLARE: a component in the long-lived client process that answers the hub's calls.

Only the hub may call, only by the two channels of fedroute; whatever else NVFLARE offers on a client, such as admin
commands, jobs and shell, is closed by the guard before the connection is made."""

import threading
import time
import uuid
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.endpoint import Endpoint, EndpointMonitor, EndpointState
from nvflare.fuel.f3.message import Message
from nvflare.widgets.widget import Widget

from fedroute import __version__
from fedroute.errors import InputError
from fedroute.federation import nvflare_cell as wire
from fedroute.federation.ending import on_terminate
from fedroute.federation.loading import load_name
from fedroute.federation.nvflare_quick import Answering
from fedroute.federation.said import say_to
from fedroute.federation.site_standing import SiteStanding
from fedroute.federation.state_file import write_state
from fedroute.federation.transport import QUICK, Handler, Payload, Refused

ADMISSION = 20.0  # seconds; NVFLARE itself says nothing where a certificate is wrong
FIRST = 4.0  # seconds between the first looks at what may be wrong
LOST = 60.0  # seconds without an answer of the hub after which a connection that looks whole is made anew
ASKED: wire.Passing = frozenset()  # but streams


class SiteComponent(Widget, EndpointMonitor):  # type: ignore[misc]
    """Named in the site's resources.json. folder: the site's; opens: "module:function" that makes the handler, called
    as f(folder, say); admission: seconds after which a site that is not admitted says what it may be."""

    def __init__(
        self, folder: str, opens: str = "fedroute.federation.site_process:open_site", admission: float = ADMISSION
    ) -> None:
        super().__init__()
        self.folder, self.opens, self.admission = Path(folder), opens, admission
        self.say = say_to(self.folder / "log.txt")
        self.birth = uuid.uuid4().hex
        self.handler: Handler | None = None
        self.standing = SiteStanding(lambda **state: write_state(self.folder, **state))
        self.cell: Cell | None = None
        self.heard = time.monotonic()  # when the hub answered last
        wire.guard_from_the_first_moment(self.guard)
        self.register_event_handler(EventType.SYSTEM_START, self._up)
        write_state(self.folder, admitted=False, hub=False)
        on_terminate(self._close)
        threading.Thread(target=self._admission, name="fedroute-admission", daemon=True).start()

    def guard(self, cell: CoreCell) -> wire.Guard:
        return wire.Guard(cell, lambda name: name == wire.HUB, ASKED, {wire.CALLS}, self.say)

    def _up(self, event: str, context: FLContext) -> None:
        engine: Any = context.get_engine()
        self.handler = self._opened()
        cell: Cell = engine.get_cell()
        cell.register_request_cb(channel=wire.CALLS, topic="*", cb=self._call)
        Answering(cell.core_cell.communicator, wire.HUB, self._quick, self.say)
        cell.core_cell.communicator.register_monitor(self)
        self.cell = cell
        wire.break_when_stuck(cell.core_cell, wire.HUB)
        self.standing.is_in()
        self.say("admitted by the hub")
        if callable(look := getattr(self.handler, "look", None)):
            threading.Thread(target=self.standing.keep_looking, args=(look,), name="fedroute-look", daemon=True).start()
        threading.Thread(target=self._tell, name="fedroute-here", daemon=True).start()

    def _opened(self) -> Handler:
        """NVFLARE would swallow an error here, and the site would look well without an answer to give."""
        try:
            handler: Handler = load_name(self.opens)(self.folder, self.say)
            return handler
        except Exception as e:
            words = str(e) if isinstance(e, InputError) else f"{type(e).__name__}: {e}"
            words += "; once that is mended, start this site anew: `fedroute site stop`, `fedroute site start`"
            self.standing.has(words)
            self.say(f"this site cannot answer: {words}")
            return self._refuse

    def _refuse(self, method: str, payload: Payload) -> Payload:
        raise Refused("this site cannot answer; its own log says why")

    def _call(self, message: Message) -> Message:
        if message.get_header(MessageHeaderKey.ORIGIN) != wire.HUB:  # the guard has dropped it already
            return wire.answer(wire.pack_refusal("only the hub may call a site"))
        packed = self._packed(str(message.get_header(MessageHeaderKey.TOPIC)), message.payload)
        if self.handler != self._refuse:
            self.standing.called(*(str(getattr(self.handler, of, "")) for of in ("fault", "odd")))
        return wire.answer(packed)

    def _quick(self, method: str, data: object) -> bytes:
        if method not in QUICK:  # it would hold up those that are
            return wire.pack_refusal(f"{method} is no quick call")
        return self._packed(method, data)

    def _packed(self, method: str, data: object) -> bytes:
        """The handler's answer as it travels, or why there is none."""
        try:
            assert self.handler
            return wire.pack(self.handler(method, wire.unpack(data)))
        except Refused as e:
            return wire.pack_refusal(str(e))
        except Exception as e:
            self.logger.exception("fedroute: %s", method)
            self.say(f"{method} failed with {type(e).__name__}: {e}")
            return wire.pack_refusal(f"{method} failed at the site with {type(e).__name__}; its log says more")

    # the hub, from here

    def state_change(self, endpoint: Endpoint) -> None:
        if endpoint.name != wire.HUB:
            return
        here = endpoint.state == EndpointState.READY
        self.say("connected with the hub" if here else "the connection with the hub broke; it is being made again")
        self.standing.connected(here, "" if here else "the connection with the hub broke")
        if here and self.cell:
            wire.break_when_stuck(self.cell.core_cell, wire.HUB)
            self.heard = time.monotonic()
            # the thread that tells may still wait for an answer on the connection that broke
            threading.Thread(target=self._here, name="fedroute-again", daemon=True).start()

    def _tell(self) -> None:
        """Says at the hub every few seconds that this site is up."""
        said = ""
        while True:
            fault = self._here()
            if fault and fault != said and not fault.startswith("("):
                self.say(f"the hub does not take this site: {fault}")
            said = fault
            if not self.standing.hub:
                self._why_away()
            if time.monotonic() - self.heard > LOST:
                self._connect_anew()
            time.sleep(1.0 if fault else wire.EVERY)

    def _here(self) -> str:
        assert self.cell
        asked = time.monotonic()
        told = wire.request({"version": __version__, "protocol": wire.PROTOCOL, "birth": self.birth})
        reply = self.cell.core_cell.send_request(
            wire.WORDS_OF_SITES, wire.HERE, wire.HUB, told, timeout=2 * wire.EVERY, optional=True
        )
        if (code := reply.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)) != ReturnCode.OK:
            return f"({code})"
        self.heard = time.monotonic()
        try:
            told = wire.read(reply)
        except Refused as e:
            return str(e)
        self.standing.heard(told, asked)
        return ""

    def _why_away(self) -> None:
        """What keeps it from the hub now, for its owner."""
        from fedroute.federation.reaching import why_not

        words = why_not(self.folder)
        if not self.standing.hub:  # it may have come back meanwhile
            self.standing.connected(False, words)

    def _connect_anew(self) -> None:
        assert self.cell
        endpoint = self.cell.core_cell.communicator.conn_manager.sfm_endpoints.get(wire.HUB)
        if endpoint and endpoint.connections:
            self.say(f"the hub has not answered for {LOST:g} s: the connection is made anew")
            for connection in list(endpoint.connections):
                connection.conn.close()
        self.heard = time.monotonic()

    def _close(self) -> None:
        if callable(close := getattr(self.handler, "close", None)):
            close()
        write_state(self.folder, admitted=False, hub=False)

    def _admission(self) -> None:
        from fedroute.federation.reaching import fault_of, why_not

        said, begun = "", time.monotonic()
        while self.cell is None:
            passed = time.monotonic() - begun
            time.sleep(min(self.admission, FIRST if passed < self.admission else self.admission))
            # at first only what is certain: a hub that is busy takes some seconds
            look = why_not if time.monotonic() - begun >= self.admission else fault_of
            if self.cell is None and (words := look(self.folder)) and words != said:
                self.say(f"not admitted by the hub: {words}")
                write_state(self.folder, admitted=False, hub=False, words=words)
                said = words
