"""Who answers: the models of a run directory, or clients at the other end of a federation's connection."""

import asyncio
import copy
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from fedroute.data.queries import QueryForm
from fedroute.evaluate.predict import predict
from fedroute.federation.transport import MOST, Away, Late, Payload, Refused, Transport
from fedroute.router.answers import log_probabilities
from fedroute.router.router import Router
from fedroute.service.off_the_loop import off_the_loop
from fedroute.task import Task
from fedroute.tree import Weights
from fedroute.words import one_or_more


class Answers(Protocol):
    """Clients that can be asked."""

    def clients(self) -> list[dict[str, Any]]:
        """[{client, here, ...}]; here: whether it can be asked now. May be called from any thread."""


class Near(Answers, Protocol):
    """Clients whose models are at hand."""

    def answer(self, client: str, x: Tensor) -> Tensor:
        """(B, K) float64, log-probabilities of the labels by the client's own model, for encoded x (B, ...). May be
        called from any thread. Raises Away."""


class Far(Answers, Protocol):
    """Clients elsewhere."""

    async def answer(self, client: str, x: Tensor, timeout: float) -> Tensor:
        """As that of Near, within `timeout` seconds; all calls are awaited by one loop. Raises Away, Late, Refused."""


@dataclass(frozen=True, eq=False)
class Own:
    """One client's own model: what its own gateway answers with. temperature: () by which it is less sure.
    size: (H, W) to which images are resized. Of threads that ask it one runs the model at a time."""

    client: str
    labels: tuple[str, ...]
    form: QueryForm
    task: Task
    weights: Weights
    temperature: Tensor | None = None
    size: Sequence[int] | None = None
    turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def of(cls, router: Router, client: str, size: Sequence[int] | None = None) -> Self:
        """That of a router's client. Raises InputError where there is no such client."""
        i, warm, models = router.place(client), router.temperatures, router.models
        temperature = None if warm is None else warm.heads[i]
        return cls(client, router.labels, router.form, models.task, models.personal[i], temperature, size)

    def apart(self) -> Self:
        """The same with a model of its own, which no other thread uses."""
        task = copy.deepcopy(self.task)
        task.module.eval()
        return replace(self, task=task, turn=threading.Lock())

    def answer(self, x: Tensor) -> Tensor:
        """(B, K) float64, log-probabilities of the labels, for encoded x (B, ...)."""
        with self.turn:
            found = log_probabilities(predict(self.task, self.weights, x))
        return found if self.temperature is None else (found / self.temperature).log_softmax(1)


class Local:
    """The models of a run directory, all at hand but those that are said to be away."""

    def __init__(self, router: Router, away: Iterable[str] = ()):
        turn = threading.Lock()  # they share the model into which their weights are put
        self.own = {c: replace(Own.of(router, c), turn=turn) for c in router.clients}
        self.away = {router.clients[router.place(c)] for c in one_or_more(away)}

    def clients(self) -> list[dict[str, Any]]:
        return [{"client": c, "here": c not in self.away} for c in self.own]

    def answer(self, client: str, x: Tensor) -> Tensor:
        if client not in self.own or client in self.away:
            raise Away(f"{client} is away")
        return self.own[client].answer(x)


class Live:
    """Clients over a transport, by its method `query` {x: safetensors} -> {p: safetensors, version}. A client that did
    not answer in time is passed over for `rest` seconds, so that not every query waits for it."""

    def __init__(self, transport: Transport, clients: Sequence[str], *, rest: float = 5.0):
        self.transport, self.names, self.rest = transport, tuple(clients), rest
        self._late: dict[str, float] = {}  # client -> until when it is passed over
        self._version: dict[str, Any] = {}
        self._lock = threading.Lock()

    def clients(self) -> list[dict[str, Any]]:
        connected, now = {*self.transport.nodes()}, time.monotonic()
        with self._lock:
            late, version = dict(self._late), dict(self._version)
        return [
            {"client": c, "here": c in connected and late.get(c, 0.0) <= now, "version": version.get(c)}
            for c in self.names
        ]

    async def answer(self, client: str, x: Tensor, timeout: float) -> Tensor:
        with self._lock:
            if self._late.get(client, 0.0) > time.monotonic():
                raise Late(f"{client} did not answer in time a moment ago")
        try:
            async with asyncio.timeout(timeout):
                found = [await self._part(client, part) for part in x.split(_rows(x))]
        except TimeoutError:
            with self._lock:
                self._late[client] = time.monotonic() + self.rest
            raise Late(f"{client} has not answered within {timeout:g} s") from None
        with self._lock:
            self._late.pop(client, None)
        return found[0] if len(found) == 1 else torch.cat(found)

    async def _part(self, client: str, x: Tensor) -> Tensor:
        """What goes into one message."""
        from safetensors.torch import save

        begun, gone = list["Future[Payload]"](), threading.Event()

        def sent() -> "Future[Payload]":
            begun.append(self.transport.begin(client, "query", {"x": save({"x": x.contiguous()})}))
            if gone.is_set():
                begun[0].cancel()
            return begun[0]

        try:
            reply = await asyncio.wrap_future(await off_the_loop(x.nbytes, sent))
        except asyncio.CancelledError:  # perhaps while a thread was still sending
            gone.set()
            for future in begun:
                future.cancel()
            raise
        with self._lock:
            self._version[client] = reply.get("version")
        return _read(client, reply.get("p"), len(x))


def _rows(x: Tensor) -> int:
    """Of encoded queries (B, ...) how many a message may hold."""
    return max(1, (MOST >> 1) // max(1, x[0].nbytes))


def _read(client: str, data: object, rows: int) -> Tensor:
    """(B, K) float64. Raises Refused for anything but finite or infinitely small log-probabilities of these rows."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        p = load(data)["p"] if isinstance(data, bytes) else torch.zeros(())
    except (SafetensorError, KeyError, ValueError) as e:
        raise Refused(f"{client} sent an answer that cannot be read ({type(e).__name__})") from None
    if p.ndim != 2 or len(p) != rows or p.dtype != torch.float64:
        raise Refused(f"{client} sent an answer of {p.dtype} {tuple(p.shape)} to {rows} queries")
    if not bool((p.logsumexp(1).abs() < 1e-6).all()):  # nor where there is a NaN
        raise Refused(f"{client} sent an answer that is no log-probability")
    return p
