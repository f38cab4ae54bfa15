"""What all requests of one gateway share, and what becomes of each of them."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from fedroute.service.access import Rate, Tokens
from fedroute.service.audit import Audit, Line, QueryHash, now
from fedroute.service.metrics import Metrics
from fedroute.service.off_the_loop import off_the_loop
from fedroute.service.refusal import Refusal
from fedroute.service.request import Asked, body_of, parsed
from fedroute.service.settings import Settings

Read = Callable[[dict[str, Any], bool], Asked]
"""(the body, whether it is a batch) -> what is asked. Raises Refusal."""
Work = Callable[[Asked], Awaitable[list[Any]]]
"""A row, or a Refusal, for each query. Raises Refusal where that is of all."""


class Gate:
    """So many requests are worked on, so many wait, and more are refused."""

    def __init__(self, concurrency: int, queue: int):
        self.queue, self.waiting = queue, 0
        self._free = asyncio.Semaphore(concurrency)

    async def __aenter__(self) -> None:
        if self._free.locked():
            if self.waiting >= self.queue:
                raise Refusal(503, "too many requests at once", "ask again in a moment, or in batches", retry=1)
            self.waiting += 1
            try:
                await self._free.acquire()
            finally:
                self.waiting -= 1
        else:
            await self._free.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


class Desk:
    """What all requests of one gateway share."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.tokens, self.rate = Tokens(settings.tokens), Rate(settings.rate)
        self.audit, self.query_hash = Audit(settings.audit), QueryHash(settings.audit_key)
        self.metrics, self.gate = Metrics(), Gate(settings.concurrency, settings.queue)

    async def answer(self, request: Request, what: str, read: Read, work: Work, many: bool) -> Response:
        """One request, read, worked on, counted and put down, whatever becomes of it. what: route, predict, answer."""
        of: Asked | None = None
        try:
            body = await body_of(request, self.settings)
            of = await off_the_loop(len(body), lambda: read(parsed(body), many))
            if self.audit.full:
                raise Refusal(503, "no audit can be kept now", "ask whoever runs this gateway", retry=10)
            try:
                async with self.gate, asyncio.timeout(self.settings.timeout):
                    rows = await work(of)
            except TimeoutError:
                words = f"no answer within {self.settings.timeout:g} s"
                raise Refusal(503, words, "ask again later", retry=1) from None
        except Refusal as refusal:
            self.put_down(request, what, [refusal] * (len(of.queries) if of else 1), of)
            return refused(refusal)
        except ClientDisconnect:
            gone = Refusal(499, "who asked has gone", "")
            self.put_down(request, what, [gone], of)
            return refused(gone)
        except BaseException as e:
            fault = Refusal(500, "unexpected fault", "", told=f"unexpected {type(e).__name__}")
            self.put_down(request, what, [fault] * (len(of.queries) if of else 1), of)
            raise
        self.metrics.answered(r for r in rows if not isinstance(r, Refusal))
        self.put_down(request, what, rows, of)
        if all(isinstance(r, Refusal) for r in rows):
            return refused(rows[0])
        told = [r.body() if isinstance(r, Refusal) else r for r in rows]
        number = request.state.number
        return as_json({"request": number, "answers": told} if many else {"request": number, **told[0]})

    def put_down(self, request: Request | Any, what: str, rows: list[Any], of: Asked | None) -> None:
        """A line of the audit for each row."""
        if self.audit.path is None:
            return
        state = request.state
        ms = round((time.perf_counter() - state.started) * 1e3, 3)
        lines = []
        for i, row in enumerate(rows):
            digest = self.query_hash(of.given[i]) if of else None
            line: dict[str, Any] = {"request": state.number, "place": i, "time": now(), "who": state.who, "what": what}
            if isinstance(row, Refusal):
                line |= {"status": row.status, "reason": row.told}
            else:
                line |= {"asked": row["client"], "answered": row.get("answered_by"), "label": row.get("answer")}
                line |= {k: row.get(k) for k in ("fallback", "score", "abstained")}
            lines.append(Line(**line, ms=ms, query=digest))
        self.audit.add(lines)


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(value), status, headers, "application/json")


def refused(refusal: Refusal) -> Response:
    """{error, field, mend}. What was not read of a request is not waited for."""
    closing = {"Connection": "close"} if refusal.status in (408, 413) else {}
    return as_json(refusal.body(), refusal.status, refusal.headers() | closing)
