"""What hub and site share of NVFLARE's cells: the guard before every message, and how a call looks on the wire.

NVFLARE 2.9 is used for identity, connection and streaming alone. Its internal interfaces are imported in the files
`nvflare_*.py` and nowhere else. A guard lists what may pass and drops the rest, also what NVFLARE itself would take:
admin commands, jobs, shell, diagnostics of cells, messages from one site to another."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterable

import msgpack
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    Encoding,
    MessageHeaderKey,
    MessagePropKey,
    MessageType,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.drivers import aio_http_driver
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, StreamHeaderKey

from fedroute.federation.transport import MOST, Payload, Refused, check

CALLS = "fedroute"  # streamed, in pieces: what may be large or take long
WORDS_OF_SITES = "fedroute_here"  # one message
HERE = "here"  # its topic, by which a site says at the hub that it is up
HUB = "server"  # the name of NVFLARE's server cell, whatever its host is called
PROTOCOL = 2  # both sides must speak the same
STUCK = 15.0  # seconds that sent data may stay without an answer by TCP before a connection counts as broken
EVERY = 5.0  # seconds between two words of a site to the hub that it is there
WORDS = "!refused"  # key of a reply that is a refusal
FRAME = 1 << 16  # bytes that msgpack may add

Passing = frozenset[tuple[str, str]]
"""(channel, topic) of requests that pass, "*" for every topic."""

OURS = frozenset({WORDS_OF_SITES, STREAM_CHANNEL})
PLAIN = (None, Encoding.NONE, Encoding.BYTES)

ALWAYS: Passing = frozenset({(CellChannel.CELLNET, CellChannelTopic.Bye), (STREAM_CHANNEL, "*")})


class Untaken:
    """Says what was not taken and why: of each fault one line a minute of whoever is at the other end of a connection,
    by the name in its certificate, so that neither log nor memory is flooded whatever names it claims."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._said = say, dict[tuple[str, str], float]()

    def __call__(self, end: str, name: str, way: str, fault: str) -> None:
        """end: the connection's; name: the claimed sender."""
        key = end.partition(".")[0], fault  # a cell may call itself NAME.x where the certificate says NAME
        if time.monotonic() - self._said.get(key, -60.0) >= 60.0:
            self._said[key] = time.monotonic()
            self._say(f"a message of {name[:64]!r} was not taken ({way}): {fault}")


class Guard:
    """An incoming filter of one cell: only from `origins`, only to this cell, only the listed requests and streams."""

    def __init__(
        self,
        cell: CoreCell,
        origin: Callable[[str], bool],
        requests: Passing,
        streams: Iterable[str],
        say: Callable[[str], None],
        seen: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.me, self.origin, self.untaken, self.seen = cell.get_fqcn(), origin, Untaken(say), seen
        self.requests, self.streams = ALWAYS | requests, frozenset(streams)

    def __call__(self, message: Message) -> Message | None:
        """None lets a message pass; with anything else NVFLARE drops it, without a word to its sender."""
        name = str(message.get_header(MessageHeaderKey.ORIGIN) or "")
        if fault := self._fault(message, name):
            channel, topic = self._way(message)
            end = message.get_prop(MessagePropKey.ENDPOINT)
            self.untaken(end.name if end else "", name, f"{channel[:64]}/{topic[:64]}", fault)
            return make_reply(ReturnCode.UNAUTHENTICATED, error=fault)
        self.seen(name)
        return None

    def _fault(self, message: Message, name: str) -> str:
        if message.get_header(MessageHeaderKey.DESTINATION) != self.me:
            return "nothing is forwarded here"
        if not self.origin(name):
            return "nobody but the hub may call a site"
        end = message.get_prop(MessagePropKey.ENDPOINT)  # whose certificate made the connection
        if end is None or end.name != name:
            return "that is not who is at the other end"
        channel, topic = self._way(message)
        coded = StreamHeaderKey.PAYLOAD_ENCODING if channel == STREAM_CHANNEL else MessageHeaderKey.PAYLOAD_ENCODING
        if channel in OURS and message.get_header(coded) not in PLAIN:
            return "only plain bytes are taken"  # NVFLARE's own encoding makes objects of classes
        if message.get_header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
            return ""  # an answer to what was asked from here
        if (channel, topic) not in self.requests and (channel, "*") not in self.requests:
            return "there is no such thing to ask for here"
        inside = message.get_header(StreamHeaderKey.CHANNEL)
        if channel == STREAM_CHANNEL and inside is not None and inside not in self.streams:
            return "there is no such stream here"
        return ""

    @staticmethod
    def _way(message: Message) -> tuple[str, str]:
        return tuple(str(message.get_header(k) or "") for k in (MessageHeaderKey.CHANNEL, MessageHeaderKey.TOPIC))  # type: ignore[return-value]


def guard_from_the_first_moment(make: Callable[[CoreCell], Guard]) -> None:
    """Every cell of this process gets its guard before it listens or connects.

    A component is told of the system's start only after its cell is up and registered; components are built before the
    cell is, so what is set here leaves no gap."""
    start = CoreCell.start

    def guarded(cell: CoreCell) -> None:
        guard = make(cell)

        def stand(message: Message) -> Message | None:  # NVFLARE wants a function with a name
            return guard(message)

        cell.add_incoming_filter("*", "*", stand)
        cell.create_internal_listener = False  # for the processes of jobs: a port without TLS, and there are no jobs
        start(cell)

    CoreCell.start = guarded


def take_no_larger_frames() -> None:
    """This process takes no frame that is larger than a message of ours may be; NVFLARE takes 2 GiB into memory before
    anybody looks at it. What is larger travels in pieces, and a connection that brings more is closed."""
    aio_http_driver.MAX_FRAME_SIZE = MOST + 2 * FRAME


def break_when_stuck(cell: CoreCell, name: str) -> None:
    """The kernel gives up the connections with that cell when nothing that was sent has arrived for STUCK seconds.

    Otherwise a cut network is waited for with pauses that double, up to a quarter of an hour; so the connection is made
    anew soon after the network is back. A slow connection, on which something does arrive, is left alone."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # RFC 5482; Linux has it
    endpoint = cell.communicator.conn_manager.sfm_endpoints.get(name)
    for connection in endpoint.connections if endpoint and option else ():
        websocket = getattr(connection.conn, "websocket", None)
        if websocket is not None and (end := websocket.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):  # it has broken already
                end.setsockopt(socket.IPPROTO_TCP, option, int(1000 * STUCK))


def pack(payload: Payload) -> bytes:
    """As it travels. Raises Refused for what is no payload."""
    try:
        packed: bytes = msgpack.packb(check(payload))
    except (OverflowError, ValueError) as e:  # a number beyond 64 bits, or a text that is none
        raise Refused(f"a message that cannot be sent: {e}") from None
    return packed


def pack_refusal(words: str) -> bytes:
    """A refusal travels as an answer: NVFLARE's own error codes mean that something broke."""
    packed: bytes = msgpack.packb({WORDS: words[:4000]})
    return packed


def request(payload: Payload) -> Message:
    return Message({}, pack(payload))


def answer(packed: bytes) -> Message:
    return make_reply(ReturnCode.OK, body=packed)


def read(message: Message) -> Payload:
    """What `unpack` makes of a request or an answer."""
    return unpack(message.payload)


def unpack(data: object) -> Payload:
    """The payload in what arrived. Raises Refused where there is none, or a refusal."""
    if not isinstance(data, bytes | bytearray | memoryview) or len(data) > MOST + FRAME:
        raise Refused("a message that holds no payload, or too much of it")
    try:
        payload = check(msgpack.unpackb(data))
    except (ValueError, msgpack.UnpackException) as e:
        raise Refused(f"a message that cannot be read: {e}") from None
    if WORDS in payload:
        raise Refused(str(payload[WORDS]))
    return payload
