"""What a site is asked to train, so that the same is done once, and can be stopped."""

import math
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torch import Tensor

from fedroute.federation.transfer import number
from fedroute.federation.transport import Payload, Refused


class Order(NamedTuple):
    """What a client is asked to do. Two that are equal are one, and are done once."""

    what: str  # "train" or "adapt"
    round: int
    base: int
    seed: int
    lr: float
    judged: bool
    server: str  # SHA-256 of the bytes of what it sees
    own: str
    version: int  # of the private tree that comes of it

    @classmethod
    def read(cls, what: str, payload: Payload, server: str, own: str) -> "Order":
        lr = payload.get("lr")
        if not isinstance(lr, float) or not math.isfinite(lr):
            raise Refused(f"lr: {lr!r} is no learning rate")
        round = number(payload, "round")
        version = number(payload, "version") if "version" in payload else round + 1
        base, seed = number(payload, "base"), number(payload, "seed")
        return cls(what, round, base, seed, lr, payload.get("judged") is True, server, own, version)


class Job:
    def __init__(self, order: Order):
        self.order, self.stop, self.done = order, threading.Event(), threading.Event()
        self.reply: Payload | Refused = Refused("not done")


class Steps(list[Tensor]):
    """Steps that are looked at one after the other until somebody stops them."""

    def __init__(self, steps: Iterable[Tensor], stop: threading.Event):
        super().__init__(steps)
        self.stop = stop

    def __iter__(self) -> Iterator[Tensor]:
        for rows in super().__iter__():
            if self.stop.is_set():
                raise InterruptedError("stopped")
            yield rows
