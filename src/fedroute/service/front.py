"""What stands before every request, and counts it after."""

import logging
import os
import time
import traceback

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedroute.service.desk import Desk, refused
from fedroute.service.refusal import Refusal

OPEN = {"/healthz", "/readyz"}  # paths that need no token
log = logging.getLogger("fedroute.service")


class Front:
    """Before every request: its number, who asks and how often; after it: what is counted. A fault of ours becomes one
    line, 500, and its place in the program in the log, never what was sent."""

    def __init__(self, app: ASGIApp, desk: Desk):
        self.app, self.desk = app, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        desk, status = self.desk, 0
        state = scope.setdefault("state", {})
        state |= {"number": os.urandom(8).hex(), "started": time.perf_counter(), "who": ""}

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", state["number"].encode())]
            await send(message)

        desk.metrics.working.inc()
        try:
            await self._checked(scope, receive, sending)
        except Exception as e:
            frames = "".join(traceback.format_tb(e.__traceback__))
            log.error("request %s: unexpected %s\n%s", state["number"], type(e).__name__, frames)
            if not status:
                fault = Refusal(500, "unexpected fault", f"tell whoever runs this gateway: request {state['number']}")
                await refused(fault)(scope, receive, sending)
        finally:
            desk.metrics.working.dec()
            label = getattr(scope.get("route"), "path", "other")
            desk.metrics.requests.labels(label, status).inc()
            desk.metrics.seconds.labels(label).observe(time.perf_counter() - state["started"])

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in OPEN:
            request = Request(scope)
            try:
                name = self.desk.tokens.who(request.headers.get("authorization"))
                request.state.who = name
                self.desk.rate.take(name or (request.client.host if request.client else ""))
            except Refusal as refusal:
                if refusal.status == 429 and scope["method"] == "POST":
                    self.desk.put_down(request, scope["path"].removeprefix("/v1/"), [refusal], None)
                await refused(refusal)(scope, receive, send)
                return
        await self.app(scope, receive, send)
