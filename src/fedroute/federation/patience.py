"""Asking over a network that breaks: how long a call may take in all, and going on once the other side is back."""

import threading
import time
from collections.abc import Callable

from fedroute.federation.transport import Away, Late, Payload, Refused, Transport

STOPPED = "was stopped"  # what a site says of work that was asked anew, or when it closes: it may be asked again
SOON, SELDOM = 0.05, 2.0  # seconds between two looks whether a node is back: each wait is half as long again


class Patience:
    """How long something may take: `seconds` from now, or less where somebody ends it. None: no limit."""

    def __init__(self, seconds: float | None = None):
        self._end = None if seconds is None else time.monotonic() + seconds
        self._ended = threading.Event()

    def left(self) -> float:
        """Seconds, 0 where it is over."""
        if self._ended.is_set():
            return 0.0
        return 1e9 if self._end is None else max(0.0, self._end - time.monotonic())

    def end(self) -> None:
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Lets so much time pass, or what is left; whether any is left then."""
        self._ended.wait(min(seconds, self.left()))
        return self.left() > 0


class Caller:
    """Calls to one node that are made again, after a while, where the connection breaks.

    timeout: seconds of a small call. away: seconds after which a site that is gone is given up, whatever patience is
    left; None: never. gone_since: when the connection was found broken, 0 while it is there."""

    def __init__(
        self,
        transport: Transport,
        node: str,
        patience: Patience,
        timeout: float = 30.0,
        log: Callable[[str], None] = lambda text: None,
        away: float | None = None,
    ):
        self.transport, self.node, self.patience, self.timeout, self.log = transport, node, patience, timeout, log
        self.away, self.gone_since = away, 0.0

    def call(self, method: str, payload: Payload, timeout: float | None = None) -> Payload:
        """One try, which lasts at most as long as patience does. Raises Away, Late, Refused."""
        left = self.patience.left()
        if not left:
            raise Late(f"{self.node}: no time left for {method}")
        return self.transport.call(self.node, method, payload, min(left, timeout or self.timeout))

    def ask(self, method: str, payload: Payload, timeout: float | None = None, *, again: bool = True) -> Payload:
        """The reply, however often the connection breaks until then, or the site closes to start anew: only for what
        may be asked twice. again: also where an answer did not come in time. Raises Away or Late when patience ends,
        and Refused."""
        pause = SOON
        while True:
            try:
                return self.call(method, payload, timeout)
            except Away:
                if not self.gone_since:
                    self.gone_since = time.monotonic()
                    self.log(f"{self.node}: the connection is gone; {method} goes on once it is back")
                if not self.patience.wait(pause):
                    raise
                pause = self._back(pause)
            except Refused as e:
                if STOPPED not in str(e) or not self.patience.wait(pause):
                    raise
                pause = min(SELDOM, 1.5 * pause)
            except Late:
                if not again or not self.patience.left():
                    raise

    def _back(self, pause: float) -> float:
        """Waits until the node is there again; how long to wait if it breaks once more."""
        while self.node not in self.transport.nodes():
            pause = min(SELDOM, 1.5 * pause)
            long = self.away is not None and time.monotonic() - self.gone_since > self.away
            if long or not self.patience.wait(pause):
                raise Away(f"{self.node} is not connected")
        self.gone_since = 0.0
        return min(SELDOM, 1.5 * pause)
