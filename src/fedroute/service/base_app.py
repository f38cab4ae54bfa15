"""An application with what every gateway has."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fedroute import __version__
from fedroute.service import described
from fedroute.service.desk import Desk, as_json, refused
from fedroute.service.front import OPEN, Front
from fedroute.service.refusal import Refusal


def new_app(
    desk: Desk, title: str, ready: Callable[[], str], clients: Callable[[], list[dict[str, Any]]],
    query: Callable[[], dict[str, Any]], close: Callable[[], None],
) -> FastAPI:  # fmt: skip
    """Health, readiness, metrics, refusals in words, OpenAPI, and an end at
    which nothing is lost. ready: "", or why not; query: the JSON Schema of one query, {} while unknown."""

    def closed() -> None:
        close()
        desk.audit.close()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(closed)

    # pages of documentation would load scripts from elsewhere: /openapi.json is what there is
    app = FastAPI(title=title, version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.desk, app.state.close = desk, closed

    @app.get("/healthz", response_model=described.Health, summary="Whether this process answers")
    async def healthz() -> Response:
        return as_json({"ok": True})

    @app.get("/readyz", response_model=described.Health, summary="Whether queries can be answered",
             responses={503: described.REFUSALS[503]})  # fmt: skip
    async def readyz() -> Response:
        why = ready() or desk.audit.trouble
        return refused(Refusal(503, why, "ask again later", retry=5)) if why else as_json({"ok": True})

    @app.get("/metrics", summary="For Prometheus", response_class=Response,
             responses=described.OFTEN | {200: {"content": {"text/plain": {}}}})  # fmt: skip
    async def metrics() -> Response:
        return Response(desk.metrics.text(clients, desk.audit.waiting), media_type="text/plain; version=0.0.4")

    @app.exception_handler(Refusal)
    async def on_refusal(_: Request, refusal: Refusal) -> Response:
        return refused(refusal)

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, e: HTTPException) -> Response:
        words = {404: "no such path", 405: "this path does not take this method"}
        found = Refusal(e.status_code, words.get(e.status_code, str(e.detail)), "GET /openapi.json names all paths")
        answer = refused(found)
        answer.headers.update(e.headers or {})
        return answer

    plain = app.openapi

    def openapi() -> dict[str, Any]:
        app.openapi_schema = None
        found = plain()
        names = [c["client"] for c in clients()]
        found["components"]["schemas"] |= described.parts(query(), names, desk.settings.most_queries)
        if desk.settings.tokens is not None:
            found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in found["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path in OPEN else [{"token": []}]
        return found

    app.openapi = openapi  # type: ignore[method-assign]
    app.add_middleware(Front, desk=desk)
    return app
