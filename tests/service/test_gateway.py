"""The gateway of a run directory: what it answers is what the router says, and what it refuses it refuses in words."""

import base64
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from fedroute import Router
from fedroute.router.guide import Guide
from fedroute.router.rules import decide
from fedroute.service import Edge
from fedroute.service.answers import Local
from fedroute.service.gateway import make_app
from fedroute.service.serving import Service
from tests.service.conftest import Open, cases

KEPT = ("client", "score", "runner_up", "abstained", "reason", "posterior")


def post(gateway: TestClient, path: str, body: Any, status: int = 200) -> Any:
    answer = gateway.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_it_routes_and_answers_as_the_router_does(gateway: Open, router: Router) -> None:
    open_, asked = gateway(), cases()
    routed = router.route(asked).rows()
    assert {r["client"] for r in routed} == {"west", "mid", "east"}
    for query, row in zip(asked, routed, strict=True):
        told = post(open_, "/v1/route", {"query": query})
        assert {k: told[k] for k in KEPT} == {k: row[k] for k in KEPT}
        answer = post(open_, "/v1/predict", {"query": query})
        assert {k: answer[k] for k in (*KEPT, "answer", "probabilities")} == {
            k: row[k] for k in (*KEPT, "answer", "probabilities")
        }
        assert answer["answered_by"] == row["client"]
        assert answer["fallback"] is False
    told = post(open_, "/v1/route/batch", {"queries": asked})["answers"]
    assert told == [{k: row[k] for k in KEPT} for row in routed]
    told = post(open_, "/v1/predict/batch", {"queries": asked})["answers"]
    assert [t["answer"] for t in told] == [r["answer"] for r in routed]


def test_a_gap_is_null_and_a_number_may_be_a_text(gateway: Open, router: Router) -> None:
    open_ = gateway()
    gap = {"age": None, "dose": 5.0, "kind": "a"}
    for query in (gap, {"age": "NA", "dose": "5", "kind": " a"}):
        told = post(open_, "/v1/route", {"query": query})
        assert told["posterior"] == router.route([gap]).rows()[0]["posterior"]
        assert "age missing" in told["reason"] or told["abstained"]
    row = router.route([{"age": 50.5, "dose": 5.0, "kind": "a"}]).rows()[0]
    told = post(open_, "/v1/predict", {"query": {"age": " 50.5", "dose": 5, "kind": "a"}})
    assert told["probabilities"] == row["probabilities"]


def test_a_column_that_training_filled_may_be_left_out(gateway: Open, router: Router) -> None:
    assert router.form.table
    post(gateway(), "/v1/predict", {"query": {"dose": 5.0, "kind": "a"}}, 422)
    form = router.form.model_copy(update={"table": router.form.table.model_copy(update={"optional": True})})
    filling = replace(router, form=form)
    guide = Guide.unpacked(Guide.of(filling).packed())
    open_ = gateway(service=Service(guide, Local(filling), router=filling))
    short, gap = {"dose": 5.0, "kind": "a"}, {"age": None, "dose": 5.0, "kind": "a"}
    for path in ("/v1/route", "/v1/predict"):
        told, as_gap = (post(open_, path, {"query": q}) for q in (short, gap))
        assert told | {"request": ""} == as_gap | {"request": ""}
    schema = open_.get("/v1/schema").json()["query"]
    assert (schema["required"], [*schema["properties"]]) == ([], ["age", "dose", "kind"])
    edge = Edge(guide, {})
    assert edge.route(short) == edge.route(gap)


def test_what_is_like_nobody_is_turned_away(gateway: Open) -> None:
    told = post(gateway(), "/v1/predict", {"query": {"age": 50, "dose": 4000, "kind": "a"}})
    assert told["abstained"] is True
    assert (told["client"], told["answered_by"], told["answer"], told["probabilities"]) == (None, None, None, None)
    assert told["runner_up"] is not None


def test_the_answers_of_several_clients_are_mixed_as_the_rule_top_mixture_does(gateway: Open, router: Router) -> None:
    asked = cases()
    scores = router.scores(asked)
    expected = decide("top_mixture", scores, top=2).answer
    open_ = gateway()
    for query, p in zip(asked, expected, strict=True):
        told = post(open_, "/v1/predict", {"query": query, "top_k": 2})
        assert [*told["probabilities"].values()] == pytest.approx(p.tolist(), abs=1e-4)
        assert sum(told["mixed"].values()) == pytest.approx(1, abs=1e-3)
        assert len(told["mixed"]) == 2
        assert told["answered_by"] == max(told["mixed"], key=told["mixed"].get)


def test_how_many_answers_are_mixed_has_limits_that_are_said(gateway: Open) -> None:
    """Of three clients: 0 is one answer, 1 a mix of one, more than there are all; beyond the limits a refusal."""
    open_, query = gateway(), cases()[0]
    alone = post(open_, "/v1/predict", {"query": query})
    assert post(open_, "/v1/predict", {"query": query, "top_k": 0}) | {"request": alone["request"]} == alone
    assert "mixed" not in post(open_, "/v1/predict", {"query": query, "top_k": 1})
    for k in (3, 4, 100, 100.0):
        assert {*post(open_, "/v1/predict", {"query": query, "top_k": k})["mixed"]} == {"west", "mid", "east"}
    for wrong in (-1, 101, 2.5, True, "2", None):
        for path, body in (("", {"query": query}), ("/batch", {"queries": [query]})):
            told = open_.post(f"/v1/predict{path}", json=body | {"top_k": wrong})
            assert (told.status_code, told.json()["field"]) == (422, "top_k")
            assert "is no whole number from 0 to 100" in told.json()["error"]
            assert "more than there are: all do" in told.json()["mend"]


def test_who_is_away_is_not_asked_and_it_is_said(gateway: Open, router: Router) -> None:
    asked = cases()
    all_here, without = router.route(asked).rows(), router.route(asked, ["mid"]).rows()
    open_ = gateway(away=("mid",))
    told = post(open_, "/v1/predict/batch", {"queries": asked})["answers"]
    moved = 0
    for answer, before, after in zip(told, all_here, without, strict=True):
        assert answer["client"] == before["client"]
        assert answer["answered_by"] == after["client"] != "mid"
        assert answer["abstained"] == after["abstained"]
        assert answer["answer"] == after["answer"]
        assert answer["fallback"] == (before["client"] == "mid" and not after["abstained"])
        moved += before["client"] == "mid"
        assert ("mid is away" in answer["reason"]) == (before["client"] == "mid")
    assert moved
    there = open_.get("/v1/clients").json()["clients"]
    assert {c["client"]: c["here"] for c in there} == {"west": True, "mid": False, "east": True}
    mixed = post(open_, "/v1/predict", {"query": asked[0], "top_k": 3})
    assert set(mixed["mixed"]) == {"west", "east"}


def test_who_asks_may_say_whom_not_to_ask(gateway: Open, router: Router) -> None:
    query = cases()[0]
    first = router.route([query]).rows()[0]["client"]
    told = post(gateway(), "/v1/route", {"query": query, "away": [first]})
    assert told["client"] == router.route([query], [first]).rows()[0]["client"]
    refused = post(gateway(), "/v1/route", {"query": query, "away": ["west", "mid", "east"]}, 422)
    assert "every client" in refused["error"]
    refused = post(gateway(away=("west", "mid")), "/v1/route", {"query": query, "away": ["east"]}, 503)
    assert "no client can be asked" in refused["error"]


GOOD = {"age": 50, "dose": 5, "kind": "a"}
WRONG: list[tuple[Any, int, str | None, str]] = [
    ({"query": GOOD | {"aeg": 1}}, 422, "query.aeg", "age"),
    ({"query": {"dose": 5, "kind": "a"}}, 422, "query.age", "null"),
    ({"query": GOOD | {"age": "old"}}, 422, "query.age", "number"),
    ({"query": GOOD | {"age": [1]}}, 422, "query.age", "number"),
    ({"query": GOOD | {"age": 1e300}}, 422, "query.age", "number"),
    ({"query": GOOD | {"age": 10**400}}, 422, "query.age", "number"),
    ({"query": GOOD | {"kind": {"a": 1}}}, 422, "query.kind", "word"),
    ({"query": [1, 2, 3]}, 422, "query", "schema"),
    ({"query": None}, 422, "query", "object"),
    ({"quer": GOOD}, 422, "quer", "query"),
    ({}, 422, "query", "schema"),
    ({"query": GOOD, "away": ["nrth"]}, 422, "away[0]", "clients"),
    ({"query": GOOD, "away": "west"}, 422, "away", "names"),
    ({"query": GOOD, "away": [["west"]]}, 422, "away[0]", "clients"),
    ({"query": GOOD, "away": ["west", "west"]}, 422, "away", "once"),
    ([], 422, None, "query"),
    ("text", 422, None, "query"),
]


@pytest.mark.parametrize(("body", "status", "field", "mend"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_query_is_refused_with_field_and_mend(
    gateway: Open, body: Any, status: int, field: str | None, mend: str
) -> None:
    told = post(gateway(), "/v1/route", body, status)
    assert set(told) == {"error", "field", "mend"}
    assert told["field"] == field
    assert mend in told["mend"].lower()


def test_batches_name_the_query_that_is_wrong(gateway: Open) -> None:
    open_ = gateway(most_queries=3)
    told = post(open_, "/v1/predict/batch", {"queries": [GOOD, GOOD | {"age": "x"}]}, 422)
    assert told["field"] == "queries[1].age"
    assert post(open_, "/v1/predict/batch", {"queries": []}, 422)["field"] == "queries"
    assert post(open_, "/v1/predict/batch", {"queries": [GOOD] * 4}, 422)["field"] == "queries"
    assert len(post(open_, "/v1/predict/batch", {"queries": [GOOD] * 3})["answers"]) == 3


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 422), (b"\xff\xfe", 422), (b"[" * 100_000, 422), (b'{"query": NaN}', 422), (b"", 422), (b"1" * 5000, 422)],
)
def test_what_is_no_json_is_refused(gateway: Open, content: bytes, status: int) -> None:
    answer = gateway().post("/v1/route", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.json()["mend"]


def test_other_kinds_paths_and_methods_are_refused_in_the_same_form(gateway: Open) -> None:
    open_ = gateway()
    answers = [
        (open_.post("/v1/route", content=b"<a/>", headers={"content-type": "text/xml"}), 415),
        (open_.get("/v1/nothing"), 404),
        (open_.get("/v1/route"), 405),
    ]
    for answer, status in answers:
        assert answer.status_code == status
        assert set(answer.json()) == {"error", "field", "mend"}
    assert open_.get("/v1/route").headers["allow"] == "POST"


def test_the_router_alone_can_be_downloaded(gateway: Open, router: Router) -> None:
    answer = gateway().get("/v1/router")
    assert answer.headers["content-type"] == "application/octet-stream"
    guide = Guide.unpacked(answer.content)
    asked = cases()
    assert guide.choose(asked).rows() == Guide.of(router).choose(asked).rows()


def test_health_readiness_schema_and_metrics(gateway: Open) -> None:
    open_ = gateway()
    assert open_.get("/healthz").json() == {"ok": True}
    assert open_.get("/readyz").status_code == 200
    schema = open_.get("/v1/schema").json()
    assert schema["labels"] == ["n", "y"]
    assert set(schema["query"]["properties"]) == {"age", "dose", "kind"}
    post(open_, "/v1/predict", {"query": GOOD})
    post(open_, "/v1/predict", {"query": GOOD | {"dose": 4000}})
    text = open_.get("/metrics").text
    assert 'fedroute_requests_total{path="/v1/predict",status="200"} 2.0' in text
    assert 'fedroute_answers_total{client="mid"} 1.0' in text
    assert "fedroute_abstained_total 1.0" in text
    assert 'fedroute_client_here{client="west"} 1.0' in text


def test_nobody_is_ready_before_there_is_a_router(router: Router) -> None:
    class Nobody:
        def clients(self) -> list[dict[str, Any]]:
            return []

        def answer(self, client: str, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    guides: list[Guide] = []
    service = Service(lambda: guides[0] if guides else None, Nobody())
    with TestClient(make_app(service)) as open_:
        for path in ("/readyz", "/v1/schema", "/v1/router"):
            assert open_.get(path).status_code == 503
        assert "no router yet" in post(open_, "/v1/route", {"query": GOOD}, 503)["error"]
        assert open_.get("/openapi.json").status_code == 200
        guides.append(Guide.of(router))
        assert open_.get("/v1/schema").status_code == 200
        assert open_.get("/readyz").json()["error"] == "no client can be asked now"
        refused = post(open_, "/v1/predict", {"query": GOOD}, 503)
        assert "no client can be asked now (" in refused["error"]
        assert "is away" in refused["error"]
        assert refused["mend"] == "ask again later"  # `away` was not sent


def test_images_come_as_lists_arrays_or_pictures_and_are_the_same(digits_run: Path) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    router = Router.load(digits_run)
    pixels = (load_digits().images[:6] * 255 / 16).round().astype(np.uint8)
    expected = router.route(torch.from_numpy(pixels)[:, None]).rows()

    def coded(x: Any, kind: str = "npy") -> dict[str, str]:
        file = io.BytesIO()
        Image.fromarray(x).save(file, "PNG") if kind == "image" else np.save(file, x)
        return {kind: base64.b64encode(file.getvalue()).decode()}

    with TestClient(make_app(Service.of_run(digits_run))) as open_:
        for x, row in zip(pixels, expected, strict=True):
            forms = [x.tolist(), [x.tolist()], coded(x), coded(x[None]), coded(x, "image"), (x / 255).tolist()]
            for form in forms:
                told = post(open_, "/v1/predict", {"query": form})
                assert told["answer"] == row["answer"]
                assert told["client"] == row["client"]
                assert [*told["probabilities"].values()] == pytest.approx([*row["probabilities"].values()], abs=2e-4)
        batch = post(open_, "/v1/predict/batch", {"queries": coded(pixels)})["answers"]
        assert [b["answer"] for b in batch] == [r["answer"] for r in expected]
        mixed = post(open_, "/v1/predict/batch", {"queries": [pixels[0].tolist(), (pixels[1] / 255).tolist()]})[
            "answers"
        ]
        assert [b["answer"] for b in mixed] == [r["answer"] for r in expected[:2]]
        large = np.zeros((6000, 6000), dtype=np.uint8)
        lie = coded(pixels[0])["npy"]
        raw = bytearray(base64.b64decode(lie))
        at = raw.index(b"(8, 8)")
        raw[at : at + 6] = b"(9e9,)"[:6]
        wrong = [
            [[1] * 8] * 7, [[1] * 8] * 7 + [[1]], [["a"] * 8] * 8, [[300] * 8] * 8, [[-1] * 8] * 8, "text", None,
            {"npy": "###"}, {"npy": base64.b64encode(b"no array").decode()}, {"npy": 3}, {"zip": "aaaa"}, {},
            {"npy": base64.b64encode(bytes(raw)).decode()}, {"image": base64.b64encode(b"no picture").decode()},
            coded(large, "image"), coded(np.array([[1.0, np.nan]])), coded(pixels), {"npy": lie[: len(lie) // 2]},
            coded(np.array([["a"]])),
        ]  # fmt: skip
        for bad in wrong:
            told = post(open_, "/v1/predict", {"query": bad}, 422)
            assert told["field"].startswith("query")
            assert told["mend"]
