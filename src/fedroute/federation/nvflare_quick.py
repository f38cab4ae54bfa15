"""Quick calls from hub to site: one small message each way on NVFLARE's connection, and none of its cells' layers.

They are an application of their own beside the cells' (`AppIds`), so that neither training nor a transfer holds them
up, nothing is forwarded, and no object is ever made of what arrives. Who is at the other end says its certificate."""

import os
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.communicator import Communicator
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message, MessageReceiver
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

from fedroute.federation.nvflare_cell import Untaken, pack, unpack
from fedroute.federation.transport import Away, Payload, Refused, TransportError

APP = 61  # NVFLARE's own end at 3
NUMBER, METHOD = "number", "method"
SHORT = 1 << 16  # bytes of a reply that is read at once


class Asking(MessageReceiver):  # type: ignore[misc]  # NVFLARE has no types
    """The hub's end. heard: called with the name of a site from which something came."""

    def __init__(self, communicator: Communicator, say: Callable[[str], None], heard: Callable[[str], None]) -> None:
        self._communicator, self._untaken, self._heard = communicator, Untaken(say), heard
        self._waiting: dict[bytes, tuple[str, Future[Payload]]] = {}
        communicator.register_message_receiver(APP, self)
        read_at_once(communicator.conn_manager)

    def begin(self, site: str, method: str, payload: Payload) -> "Future[Payload]":
        """The reply, once it is there; Away or Refused where there will be none. Who cancels it waits no more."""
        number, reply = os.urandom(8), Future[Payload]()  # no answer to what a hub before this one asked fits
        try:
            message = Message({NUMBER: number, METHOD: method}, pack(payload))
            if (there := self._communicator.find_endpoint(site)) is None:
                raise Away(f"{site} is not connected")
            self._waiting[number] = site, reply
            reply.add_done_callback(lambda _: self._waiting.pop(number, None))
            self._communicator.send(there, APP, message)
        except (CommError, RuntimeError) as e:  # RuntimeError: NVFLARE is ending
            _set(reply, Away(f"{site}: the connection broke as it was asked to {method} ({e})"))
        except TransportError as e:
            _set(reply, e)
        return reply

    def end(self, site: str) -> None:
        """The site is away: nothing that it was asked will be answered."""
        for name, reply in list(self._waiting.values()):
            if name == site:
                _set(reply, Away(f"{site}: the connection broke after it was asked"))

    def process_message(self, endpoint: Endpoint, connection: Connection, app_id: int, message: Message) -> None:
        name, number = endpoint.name, message.get_header(NUMBER)
        site, reply = self._waiting.get(number, ("", None)) if isinstance(number, bytes) else ("", None)
        if reply is None:  # nobody waits for it any more; or it was never asked
            return
        if site != name:
            self._untaken(name, name, "quick", f"it answers what {site} was asked")
            return
        self._heard(name)
        try:
            _set(reply, unpack(message.payload))
        except Refused as e:
            _set(reply, e)


class Answering(MessageReceiver):  # type: ignore[misc]
    """The site's end: `answer` what the hub asks, and nobody else."""

    def __init__(self, communicator: Communicator, hub: str, answer: Callable[[str, object], bytes],
                 say: Callable[[str], None]) -> None:  # fmt: skip
        """answer: (method, packed payload) -> packed reply; raises nothing."""
        self._communicator, self._hub, self._answer, self._untaken = communicator, hub, answer, Untaken(say)
        communicator.register_message_receiver(APP, self)

    def process_message(self, endpoint: Endpoint, connection: Connection, app_id: int, message: Message) -> None:
        number, method = message.get_header(NUMBER), message.get_header(METHOD)
        if endpoint.name != self._hub:
            self._untaken(endpoint.name, endpoint.name, "quick", "nobody but the hub may call a site")
            return
        if not isinstance(number, bytes) or not isinstance(method, str):
            self._untaken(endpoint.name, endpoint.name, "quick", "it is no call")
            return
        reply = Message({NUMBER: number}, self._answer(method, message.payload))
        with suppress(CommError):  # the hub has gone, and misses this site
            self._communicator.send(endpoint, APP, reply)


def read_at_once(manager: ConnManager) -> None:
    """Replies are read by the thread in which they arrive; NVFLARE would wake another one for each of them."""
    usual = manager.process_frame

    def process(connection: SfmConnection, frame: bytes) -> None:
        quick = False
        if PREFIX_LEN <= len(frame) <= SHORT:
            prefix = Prefix.from_bytes(frame)
            quick = (prefix.type, prefix.app_id) == (Types.DATA, APP)
        (manager.process_frame_task if quick else usual)(connection, frame)

    manager.process_frame = process


def _set(reply: "Future[Payload]", value: Payload | TransportError) -> None:
    with suppress(InvalidStateError):  # who asked has gone, or knows already
        if isinstance(value, TransportError):
            reply.set_exception(value)
        else:
            reply.set_result(value)
