"""What connects a hub with its sites: a few methods, so that simulation, tests and a real network are one code."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

Scalar = bool | int | float | str | None
Payload = dict[str, Scalar | bytes]
"""Flat. What has structure travels as JSON text, tensors as safetensors bytes; nothing that could be code."""

Handler = Callable[[str, Payload], Payload]
"""A site: (method, payload) -> reply. May be called from several threads at once; raises Refused."""

QUICK = frozenset({"hello", "ping", "cancel", "query", "status"})
"""Methods that travel as one small message and never wait behind a transfer or a training."""

MOST = 16 << 20  # bytes that one payload may have


class TransportError(Exception):
    """A call that got no good answer."""


class Away(TransportError):
    """The node is not connected, or its connection broke while it was asked."""


class Late(TransportError):
    """The node did not answer in time; what it was asked may still go on there."""


class Refused(TransportError):
    """The node answered that it will not, or could not, in words for people."""


class Transport(Protocol):
    """The hub's side. All methods may be called from any thread."""

    def start(self) -> None:
        """Begins to listen. Sites come when they come."""

    def nodes(self) -> tuple[str, ...]:
        """The sites that are connected now, by name, sorted."""

    def call(self, node: str, method: str, payload: Payload, timeout: float) -> Payload:
        """The site's reply; waits at most `timeout` seconds, and ends at once where the connection breaks.

        Raises Away, Late, Refused."""

    def begin(self, node: str, method: str, payload: Payload) -> "Future[Payload]":
        """A QUICK call that is not waited for: its reply once it is there; Away or Refused where there will be none.

        Never raises, and takes no time but that of sending. Whoever cancels the future waits no more."""

    def on_change(self, tell: Callable[[str, bool], None]) -> None:
        """From now on `tell(node, here)` is called whenever a site comes or goes."""

    def notes(self) -> Mapping[str, str]:
        """site -> what its owner should know of how it is connected."""

    def close(self) -> None:
        """Ends all connections."""


def waited(reply: "Future[Payload]", node: str, method: str, timeout: float) -> Payload:
    """The reply of `begin`, waited for at most `timeout` seconds. Raises as `call` does."""
    try:
        return reply.result(timeout)
    except TimeoutError:
        reply.cancel()
        raise Late(f"{node} has not answered {method} within {timeout:g} s") from None


def failed(error: TransportError) -> "Future[Payload]":
    """A call that cannot be made."""
    reply = Future[Payload]()
    reply.set_exception(error)
    return reply


def size(payload: Payload) -> int:
    """Bytes of what a payload says, without what frames it."""
    return sum(_bytes(k) + _bytes(v) for k, v in payload.items())


def check(payload: object, most: int = MOST) -> Payload:
    """The payload, where it is one. Raises Refused for anything but a flat dict of scalars and bytes, or too much."""
    if not isinstance(payload, dict):
        raise Refused(f"a message is a dict of scalars and bytes, and this is a {type(payload).__name__}")
    for k, v in payload.items():
        if not isinstance(k, str) or not isinstance(v, bool | int | float | str | bytes | None):
            raise Refused(f"a message holds scalars and bytes, and {k!r} is a {type(v).__name__}")
    if (n := size(payload)) > most:
        raise Refused(f"a message of {n:,} bytes; at most {most:,} are taken")
    return payload


def _bytes(value: Scalar | bytes) -> int:
    if isinstance(value, bytes):
        return len(value)
    return len(value.encode(errors="surrogatepass")) if isinstance(value, str) else 8
