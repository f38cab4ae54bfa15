"""The edge form: the guide is downloaded, the case goes to one client alone, and the hub sees nothing of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedroute import Router
from fedroute.errors import InputError
from fedroute.router.guide import Guide
from fedroute.service import Client, Edge, ServiceError
from fedroute.service.answers import Local, Own
from fedroute.service.gateway import make_app, make_site_app
from fedroute.service.running import Running, serve_in_thread
from fedroute.service.serving import Service
from fedroute.service.settings import Settings
from tests.service.conftest import cases


class Overheard:
    """An application, and all that came to it: method, path and every byte of the bodies."""

    def __init__(self, app: ASGIApp):
        self.app, self.state = app, app.state  # type: ignore[attr-defined]
        self.asked, self.bytes = list[tuple[str, str]](), b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.asked.append((scope["method"], scope["path"]))
            self.bytes += scope["query_string"] + repr(scope["headers"]).encode()

        async def hearing() -> Message:
            message = await receive()
            self.bytes += message.get("body", b"")
            return message

        await self.app(scope, hearing, send)


class Town:
    """A hub and three wards with gateways of their own, on real sockets."""

    def __init__(self, router: Router):
        self.wards = {c: Overheard(make_site_app(Own.of(router, c))) for c in router.clients}
        self.running: dict[str, Running] = {c: serve_in_thread(app) for c, app in self.wards.items()}  # type: ignore[arg-type]
        addresses = {c: r.url for c, r in self.running.items()}
        service = Service(Guide.of(router), Local(router), router=router)
        self.hub = Overheard(make_app(service, Settings(addresses=addresses)))
        self.running["hub"] = serve_in_thread(self.hub)  # type: ignore[arg-type]
        self.client = Client(self.running["hub"].url, retries=0)
        self.edge = Edge.of(self.client, lambda url: Client(url, retries=0))


@pytest.fixture
def plain(router: Router) -> Router:
    return replace(router, rule="posterior", abstain=None)


@pytest.fixture
def town(plain: Router) -> Iterator[Town]:
    found = Town(plain)
    yield found
    for running in found.running.values():
        running.stop()


def test_the_case_goes_to_the_chosen_client_and_the_hub_sees_nothing(town: Town, plain: Router) -> None:
    before = list(town.hub.asked)
    assert before == [("GET", "/v1/clients"), ("GET", "/v1/router")]
    asked = [q | {"kind": f"secret-{i}"} for i, q in enumerate(cases(8))]
    for i, (query, row) in enumerate(zip(asked, plain.route(asked).rows(), strict=True)):
        told = town.edge.predict(query)
        assert (told["client"], told["answered_by"]) == (row["client"], row["client"])
        assert told["answer"] == row["answer"]
        assert told["probabilities"] == pytest.approx(row["probabilities"], abs=1e-4)
        assert (told["score"], told["runner_up"], told["reason"]) == (row["score"], row["runner_up"], row["reason"])
        heard = [c for c, ward in town.wards.items() if f"secret-{i}".encode() in ward.bytes]
        assert heard == [row["client"]]
    assert town.hub.asked == before
    assert b"secret" not in town.hub.bytes


def test_where_that_client_cannot_be_reached_the_next_is_asked(town: Town, plain: Router) -> None:
    asked = cases()
    i = next(i for i, row in enumerate(plain.route(asked).rows()) if row["client"] == "mid")
    town.running["mid"].stop()
    told, then = town.edge.predict(asked[i]), plain.route([asked[i]], ["mid"]).rows()[0]
    assert (told["client"], told["answered_by"], told["fallback"]) == ("mid", then["client"], True)
    assert told["answer"] == then["answer"]
    assert "mid could not be asked" in told["reason"]
    for c in ("west", "east"):
        town.running[c].stop()
    with pytest.raises(ServiceError, match="mid could not be asked"):
        town.edge.predict(asked[i])


def test_of_a_batch_each_case_goes_to_its_own_client_alone(town: Town, plain: Router) -> None:
    before = list(town.hub.asked)
    asked = [q | {"kind": f"secret-{i}-"} for i, q in enumerate(cases(20))]
    rows = plain.route(asked).rows()
    told = town.edge.predict_batch(asked)
    assert told == [town.edge.predict(q) for q in asked]
    assert [t["answer"] for t in told] == [r["answer"] for r in rows]
    assert [r["client"] for r in town.edge.route_batch(asked)] == [r["client"] for r in rows]
    assert {r["client"] for r in rows} == {*town.wards}
    for i, row in enumerate(rows):
        heard = [c for c, ward in town.wards.items() if f"secret-{i}-".encode() in ward.bytes]
        assert heard == [row["client"]]
    for ward in town.wards.values():  # and in one request
        assert ward.asked.count(("POST", "/v1/answer/batch")) == 1
    assert town.hub.asked == before
    assert town.edge.predict_batch([]) == town.edge.route_batch([]) == []


def test_of_a_batch_those_of_a_client_that_cannot_be_asked_go_to_the_next(town: Town, plain: Router) -> None:
    asked = cases(20)
    rows, then = plain.route(asked).rows(), plain.route(asked, ["mid"]).rows()
    town.running["mid"].stop()
    told = town.edge.predict_batch(asked)
    assert [t["answered_by"] for t in told] == [r["client"] for r in then]
    assert [t["fallback"] for t in told] == [r["client"] == "mid" for r in rows]
    assert told == [town.edge.predict(q) for q in asked]
    assert [t["answered_by"] for t in town.edge.predict_batch(asked, away=["mid", "west"])] == ["east"] * 20
    town.running["east"].stop()
    some = town.edge.predict_batch(asked, away=["mid"])
    assert {t["answered_by"] for t in some} == {"west"}
    town.running["west"].stop()
    with pytest.raises(ServiceError, match=r"no client can be asked now .*west could not be asked"):
        town.edge.predict_batch(asked)


def test_of_a_batch_what_was_answered_is_not_sent_again(town: Town, plain: Router) -> None:
    """A client that answers one request of several and no more keeps what it has answered."""
    asked = [q for q, r in zip(cases(30), plain.route(cases(30)).rows(), strict=True) if r["client"] == "mid"]
    assert len(asked) >= 5
    mid, sent = town.edge.clients["mid"], list[int]()
    mid._most, post = 2, mid._post

    def once(path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent.append(len(body["queries"]))
        if len(sent) > 1:
            raise ServiceError(503, "busy")
        return post(path, body)

    mid._post = once  # type: ignore[method-assign]
    told = town.edge.predict_batch(asked)
    assert sent == [2, 2]
    assert [t["answered_by"] == "mid" for t in told] == [True, True] + [False] * (len(asked) - 2)


def test_of_a_batch_what_nobody_could_answer_stands_in_its_place(town: Town, plain: Router) -> None:
    """The only client that is left answers one request of two."""
    asked, east = cases(3), town.edge.clients["east"]
    east._most, post = 2, east._post

    def once(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if len(body["queries"]) < 2:
            raise ServiceError(503, "busy")
        return post(path, body)

    east._post = once  # type: ignore[method-assign]
    told = town.edge.predict_batch(asked, away=["mid", "west"])
    assert [t.get("answered_by") for t in told] == ["east", "east", None]
    assert told[2]["error"] == "no client can be asked now (east could not be asked (busy))"
    assert told[2]["mend"] == "ask again later"


def test_a_query_that_a_client_refuses_has_the_number_that_it_was_given(town: Town, plain: Router) -> None:
    asked = cases(20)
    mine = [i for i, r in enumerate(plain.route(asked).rows()) if r["client"] == "mid"]
    mid = town.edge.clients["mid"]

    def refuse(path: str, body: dict[str, Any]) -> dict[str, Any]:
        raise ServiceError(422, "queries[1].age: no", "queries[1].age", "give another")

    mid._post = refuse  # type: ignore[method-assign]
    with pytest.raises(ServiceError, match=rf"queries\[{mine[1]}\]\.age: no") as e:
        town.edge.predict_batch(asked)
    assert e.value.field == f"queries[{mine[1]}].age"
    with pytest.raises(ServiceError, match=r"queries\[2\]\.dose"):
        town.edge.predict_batch([*asked[:2], asked[2] | {"dose": "much"}])


def test_what_is_like_nobody_leaves_the_edge_for_nobody(router: Router) -> None:
    town = Town(router)
    told = town.edge.predict({"age": 50, "dose": 4000, "kind": "a"})
    for running in town.running.values():
        running.stop()
    assert told["abstained"] is True
    assert (told["client"], told["answered_by"], told["answer"]) == (None, None, None)
    assert not any(ward.asked for ward in town.wards.values())


def test_what_no_query_is_is_refused_at_the_edge(town: Town) -> None:
    with pytest.raises(ServiceError) as e:
        town.edge.predict({"age": 50, "dose": "much", "kind": "a"})
    assert (e.value.status, e.value.field) == (422, "query.dose")
    assert not any(ward.asked for ward in town.wards.values())


def test_a_client_without_an_address_is_as_one_that_is_away(town: Town, plain: Router) -> None:
    asked = cases()
    i = next(i for i, row in enumerate(plain.route(asked).rows()) if row["client"] == "mid")
    edge = Edge(town.edge.guide, {c: k for c, k in town.edge.clients.items() if c != "mid"})
    told = edge.predict(asked[i])
    assert told["fallback"] is True
    assert "mid has no address" in told["reason"]
    with pytest.raises(InputError, match="no client 'north'"):
        Edge(town.edge.guide, {"north": town.client})


def test_a_hub_without_addresses_is_said(router: Router) -> None:
    app = make_app(Service(Guide.of(router), Local(router), router=router))
    with TestClient(app) as open_:
        hub = Client("http://testserver", transport=Through(open_))
        with pytest.raises(InputError, match="--site NAME=URL"):
            Edge.of(hub)


class Through(httpx.BaseTransport):
    """What httpx sends, to an application in this process."""

    def __init__(self, open_: TestClient):
        self.open = open_

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self.open.request(request.method, str(request.url), content=request.read(), headers=request.headers)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def test_a_client_s_own_gateway_answers_with_its_model_alone(router: Router) -> None:
    own = Own.of(router, "east")
    asked = cases(5)
    p = router.scores(asked).heads[:, router.clients.index("east")].exp()
    with TestClient(make_site_app(own)) as open_:
        rows = open_.post("/v1/answer/batch", json={"queries": asked}).json()["answers"]
        found = torch.tensor([[*r["probabilities"].values()] for r in rows], dtype=torch.float64)
        assert torch.allclose(found, p, atol=1e-4)
        one = open_.post("/v1/answer", json={"query": asked[0]}).json()
        assert {k: one[k] for k in rows[0]} == rows[0]
        assert one["client"] == one["answered_by"] == "east"
        for path in ("/v1/route", "/v1/predict"):
            assert open_.post(path, json={"query": asked[0]}).status_code == 404
        for path in ("/v1/router", "/v1/clients"):
            assert open_.get(path).status_code == 404
        assert open_.post("/v1/answer", json={"query": asked[0], "away": []}).status_code == 422
        assert open_.get("/readyz").status_code == 200


def test_its_model_is_its_own_whoever_uses_the_other(router: Router) -> None:
    """A training in another thread puts other weights into the model that the owner was made of."""
    own: Any = Own.of(router, "east")
    x = router.encode(cases(3))
    before = own.answer(x)
    mine = own.apart()
    for v in own.task.module.parameters():
        v.data.fill_(torch.nan)
    module = own.task.module
    assert mine.task.module is not module
    assert torch.equal(mine.answer(x), before)


def test_there_may_be_no_model_yet(router: Router) -> None:
    there: list[Own] = []
    with TestClient(make_site_app(lambda: there[0] if there else None)) as open_:
        assert open_.get("/readyz").status_code == 503
        assert "no model yet" in open_.post("/v1/answer", json={"query": cases(1)[0]}).json()["error"]
        there.append(Own.of(router, "east"))
        assert open_.post("/v1/answer", json={"query": cases(1)[0]}).status_code == 200
