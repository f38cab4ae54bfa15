"""The gateway: routes and answers over HTTP. `make_app` is of a whole federation, `make_site_app` of one client."""

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from fedroute.router.guide import Guide
from fedroute.service import described
from fedroute.service.answers import Own
from fedroute.service.base_app import new_app
from fedroute.service.batching import Batches
from fedroute.service.desk import Desk, Read, Work, as_json
from fedroute.service.query_json import QueryJson
from fedroute.service.refusal import Refusal
from fedroute.service.request import Asked, asked
from fedroute.service.serving import Query, Service, predict, route
from fedroute.service.settings import Settings


def make_app(service: Service, settings: Settings | None = None) -> FastAPI:
    """POST /v1/route, /v1/predict and their batches; GET /v1/clients, /v1/schema, /v1/router (the guide, as bytes);
    /healthz, /readyz, /metrics, /openapi.json. At its end (`app.state.close()`, or the server's) the service is closed
    and the audit whole.

    Raises InputError where a file of the settings cannot be used."""
    desk = Desk(settings or Settings())
    settings = desk.settings
    service.most_rows = desk.metrics.passes.observe

    def query() -> dict[str, Any]:
        try:
            return service.reader().schema()
        except Refusal:
            return {}

    def ready() -> str:
        try:
            here = {*service.guide().clients} - service.away()
        except Refusal as e:
            return e.error
        return "" if here else "no client can be asked now"

    app = new_app(desk, "fedroute gateway", ready, service.answers.clients, query, service.close)

    def reading(mixes: bool) -> Read:
        def read(body: dict[str, Any], many: bool) -> Asked:
            reader, clients = service.reader(), service.guide().clients
            return asked(body, reader, settings, clients, many=many, mixes=mixes)

        return read

    async def routing(of: Asked) -> list[Any]:
        return await route(service, of.queries, of.wish)

    async def predicting(of: Asked) -> list[Any]:
        return await predict(service, of.queries, of.wish)

    _post(app, "route", "Which client should answer", reading(False), routing, described.OneRoute, described.Routes)
    _post(app, "predict", "The answer of the client that should", reading(True), predicting, described.OneAnswer,
          described.Answered, mixes=True)  # fmt: skip

    @app.get("/v1/clients", response_model=described.Clients, summary="Who is there", responses=described.OFTEN)
    async def clients() -> Response:
        found = [c | {"address": settings.addresses.get(c["client"])} for c in service.answers.clients()]
        return as_json({"rule": service.rule(), "clients": found})

    @app.get("/v1/schema", response_model=described.Schema, summary="What a query must be", responses=described.OFTEN)
    async def schema() -> Response:
        return as_json(_schema(service.guide().labels, service.reader(), settings))

    kept: dict[str, Any] = {}

    @app.get("/v1/router", summary="The router alone, for who decides by themselves", response_class=Response,
             responses=described.OFTEN | {200: {"content": {"application/octet-stream": {}}}})  # fmt: skip
    async def router() -> Response:
        guide = service.guide()
        if kept.get("guide") is not guide:
            data = await asyncio.to_thread(Guide.packed, guide)
            kept.update(guide=guide, data=data, tag=hashlib.sha256(data).hexdigest())
        return Response(kept["data"], headers={"ETag": f'"{kept["tag"]}"'}, media_type="application/octet-stream")

    return app


def make_site_app(own: Own | Callable[[], Own | None], settings: Settings | None = None) -> FastAPI:
    """POST /v1/answer and its batch: what one client's own model answers, whoever it was that decided to ask it; and
    GET /v1/schema, health, metrics. own: or a function that gives what is in force, None while there is none.

    Raises InputError where a file of the settings cannot be used."""
    desk, pool = Desk(settings or Settings()), ThreadPoolExecutor(1, "fedroute-answer")
    current = own if callable(own) else lambda: own

    kept: dict[str, Own] = {}

    def mine() -> Own:
        if (found := current()) is None:
            raise Refusal(503, "there is no model yet", "ask again when the first training has ended", retry=5)
        if kept.get("given") is not found:
            kept.update(given=found, own=found.apart())
        return kept["own"]

    def reader() -> QueryJson:
        return QueryJson(mine().form, mine().size)

    def query() -> dict[str, Any]:
        found = current()
        return QueryJson(found.form, found.size).schema() if found else {}

    def answers(_: object, queries: list[Query]) -> list[dict[str, Any]]:
        client = mine()
        p = client.answer(QueryJson(client.form, client.size).encode([q.item for q in queries])).exp()
        return [
            {"client": client.client, "answered_by": client.client, "answer": client.labels[int(row.argmax())],
             "probabilities": {k: round(v, 4) for k, v in zip(client.labels, row.tolist(), strict=True)}}
            for row in p
        ]  # fmt: skip

    def here() -> list[dict[str, Any]]:
        found = current()
        return [{"client": found.client, "here": True}] if found else []

    app = new_app(desk, "fedroute gateway of one client", lambda: "" if current() else "there is no model yet", here,
                  query, pool.shutdown)  # fmt: skip
    together = Batches(answers, pool, most=256, told=desk.metrics.passes.observe, models=Lock())

    def read(body: dict[str, Any], many: bool) -> Asked:
        return asked(body, reader(), desk.settings, (), many=many, mixes=False)

    async def answering(of: Asked) -> list[Any]:
        return list(await together(None, of.queries))

    _post(app, "answer", "What this client answers", read, answering, described.OneOwnAnswer, described.OwnAnswers,
          away=False)  # fmt: skip

    @app.get("/v1/schema", response_model=described.Schema, summary="What a query must be", responses=described.OFTEN)
    async def schema() -> Response:
        return as_json(_schema(mine().labels, reader(), desk.settings))

    return app


def _post(
    app: FastAPI, what: str, summary: str, read: Read, work: Work, one: Any, many: Any, *, away: bool = True,
    mixes: bool = False,
) -> None:  # fmt: skip
    """POST /v1/WHAT and /v1/WHAT/batch."""
    desk: Desk = app.state.desk

    def add(path: str, model: Any, batch: bool) -> None:
        @app.post(
            path, name=f"{what}{'_batch' if batch else ''}", summary=summary + (", of many" if batch else ""),
            response_model=model, responses=described.REFUSALS,
            openapi_extra=described.body(batch, away, mixes),
        )  # fmt: skip
        async def asked_for(request: Request) -> Response:
            return await desk.answer(request, what, read, work, batch)

    add(f"/v1/{what}", one, False)
    add(f"/v1/{what}/batch", many, True)


def _schema(labels: tuple[str, ...], reader: QueryJson, settings: Settings) -> dict[str, Any]:
    limits = {"most_queries": settings.most_queries, "most_bytes": settings.most_bytes}
    return {"labels": list(labels), "query": reader.schema()} | limits
