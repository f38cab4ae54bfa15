"""The client: what it sends, when it tries again, and what it says where it does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from fedroute import Router
from fedroute.errors import InputError
from fedroute.router.guide import Guide
from fedroute.service import Client, ServiceError
from fedroute.service.client import plain
from tests.service.conftest import Open, cases
from tests.service.test_edge import Through


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited, without waiting."""
    found = list[float]()
    monkeypatch.setattr("fedroute.service.client.time.sleep", found.append)
    return found


def answering(answers: list[Callable[[], httpx.Response]]) -> httpx.MockTransport:
    todo = iter(answers)
    return httpx.MockTransport(lambda request: next(todo)())


def refused(status: int, **headers: str) -> Callable[[], httpx.Response]:
    body = {"error": "busy", "field": None, "mend": "later"}
    return lambda: httpx.Response(status, json=body, headers=headers)


def schema_of_two() -> httpx.Response:
    return httpx.Response(200, json={"most_queries": 2})


def broken() -> httpx.Response:
    raise httpx.ConnectError("no route to host")


def good() -> httpx.Response:
    return httpx.Response(200, json={"answer": "y"})


def int_like(value: Any) -> Any:
    """What a program may give for a whole number."""
    return value


def test_it_asks_a_real_gateway(gateway: Open, router: Router) -> None:
    asked = cases(10)
    with Client("http://testserver", transport=Through(gateway(most_queries=4))) as c:
        routed = router.route(asked).rows()
        assert c.route(asked[0])["client"] == routed[0]["client"]
        assert c.predict(asked[0])["answer"] == routed[0]["answer"]
        assert len(c.predict(asked[0], top_k=3, away=["mid"])["mixed"]) == 2
        assert len(c.predict(asked[0], top_k=int_like(np.int64(9)))["mixed"]) == 3  # all there are
        assert len(c.predict_batch(asked[:1], top_k=int_like(torch.tensor(2)))[0]["mixed"]) == 2
        for wrong in (-1, 101, 1.5, "2"):
            with pytest.raises(ServiceError, match=r"top_k: is no whole number from 0 to 100; .*more than there are"):
                c.predict(asked[0], top_k=int_like(wrong))
        assert [r["answer"] for r in c.predict_batch(asked)] == [r["answer"] for r in routed]  # in three requests
        assert [r["client"] for r in c.route_batch(asked)] == [r["client"] for r in routed]
        assert {r["client"] for r in c.clients()} == {*router.clients}
        assert c.schema()["labels"] == ["n", "y"]
        assert c.ready()
        with pytest.raises(ServiceError) as e:
            c.predict(asked[0] | {"age": "old"})
        assert (e.value.status, e.value.field) == (422, "query.age")
        assert "number" in str(e.value)


def test_it_tries_again_where_that_is_of_use_and_says_why(waited: list[float]) -> None:
    heard = list[str]()
    answers = [broken, refused(503, **{"Retry-After": "2"}), refused(429), good]
    c = Client("http://gateway", transport=answering(answers), log=heard.append)
    assert c.predict({"a": 1})["answer"] == "y"
    assert waited == [0.2, 2.0, 0.8]
    assert "no route to host" in heard[0]
    assert heard[1:] == ["busy; again in 2 s", "busy; again in 0.8 s"]


def test_it_gives_up_with_the_last_reason(waited: list[float]) -> None:
    c = Client("http://gateway", transport=answering([refused(503)] * 3), retries=2)
    with pytest.raises(ServiceError, match="busy; later") as e:
        c.predict({"a": 1})
    assert e.value.status == 503
    assert len(waited) == 2
    c = Client("http://gateway", transport=answering([broken]), retries=0)
    with pytest.raises(ServiceError, match=r"http://gateway: nobody answered.*is it running"):
        c.predict({"a": 1})
    assert not Client("http://gateway", transport=answering([broken])).ready()


@pytest.mark.parametrize("status", [401, 404, 413, 422, 500])
def test_what_will_not_change_is_not_tried_again(status: int, waited: list[float]) -> None:
    c = Client("http://gateway", transport=answering([refused(status)]))
    with pytest.raises(ServiceError) as e:
        c.predict({"a": 1})
    assert e.value.status == status
    assert not waited


def test_what_is_not_a_gateway_is_said() -> None:
    c = Client("http://gateway", transport=answering([lambda: httpx.Response(502, text="<html>")]))
    with pytest.raises(ServiceError, match="HTTP 502"):
        c.clients()


def test_the_token_is_sent() -> None:
    seen = list[str]()

    def hear(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, json={"clients": []})

    Client("http://gateway", token="abc", transport=httpx.MockTransport(hear)).clients()
    assert seen == ["Bearer abc"]


def test_queries_of_every_kind_become_json(tmp_path: Path) -> None:
    assert plain({"a": np.float64(1.5), "b": np.int64(2), "c": "x", "d": None}) == {
        "a": 1.5,
        "b": 2,
        "c": "x",
        "d": None,
    }
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert plain(x) == plain(torch.from_numpy(x))
    assert set(plain(x)) == {"npy"}
    (tmp_path / "a.png").write_bytes(b"picture")
    assert set(plain(tmp_path / "a.png")) == {"image"}
    assert plain([[1, 2]]) == [[1, 2]]
    json.dumps([plain(v) for v in ({"a": np.float64(1)}, x, tmp_path / "a.png")])


@pytest.mark.parametrize(
    "missing", [None, float("nan"), np.float64("nan"), np.float32("nan"), "pandas.NA", "pandas.NaT"]
)
def test_what_is_missing_is_null(missing: Any) -> None:
    if isinstance(missing, str):
        missing = getattr(pytest.importorskip("pandas"), missing.partition(".")[2])
    assert json.loads(json.dumps(plain({"age": missing, "n": np.int64(3)}), allow_nan=False)) == {"age": None, "n": 3}


@pytest.mark.parametrize("value", [float("inf"), np.float32("-inf")])
def test_an_infinite_number_names_its_column(value: Any) -> None:
    with pytest.raises(ServiceError, match=r"query\.age is not a finite number; give a number, or None") as e:
        Client("http://hub", transport=answering([])).predict({"age": value})
    assert (e.value.status, e.value.field) == (422, "query.age")
    with pytest.raises(ServiceError, match=r"queries\[1\]\.age is not a finite number"):
        Client("http://hub", transport=answering([schema_of_two])).predict_batch([{"age": 1.0}, {"age": value}])


def test_a_picture_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ServiceError, match=r"queries\[0\]: .*none\.png: cannot be read \(no such file.*PNG or JPEG"
    ) as e:
        Client("http://hub", transport=answering([schema_of_two])).predict_batch([tmp_path / "none.png"])
    assert (e.value.status, e.value.field) == (422, "queries[0]")


def test_a_batch_in_several_requests_numbers_its_rows_as_they_were_given() -> None:
    wrong = {"error": "queries[1].age: 'x' is not a number", "field": "queries[1].age", "mend": "give a number"}
    answers = [schema_of_two, lambda: httpx.Response(200, json={"answers": [{}, {}]}),
               lambda: httpx.Response(422, json=wrong)]  # fmt: skip
    with pytest.raises(ServiceError, match=r"^queries\[3\]\.age: 'x'") as e:
        Client("http://hub", transport=answering(answers)).predict_batch([{"age": 1.0}] * 3 + [{"age": "x"}])
    assert (e.value.status, e.value.field) == (422, "queries[3].age")


def test_a_url_without_its_beginning_is_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"127\.0\.0\.1:8951: is no URL of a gateway; put http://"):
        Client("127.0.0.1:8951")


def test_pictures_go_through(digits_run: Path) -> None:
    from sklearn.datasets import load_digits
    from starlette.testclient import TestClient

    from fedroute.service.gateway import make_app
    from fedroute.service.serving import Service

    pixels: Any = (load_digits().images[:5] * 255 / 16).round().astype(np.uint8)
    expected = Router.load(digits_run).route(torch.from_numpy(pixels)[:, None]).rows()
    with TestClient(make_app(Service.of_run(digits_run))) as open_:
        c = Client("http://testserver", transport=Through(open_))
        assert [r["answer"] for r in c.predict_batch(list(pixels))] == [r["answer"] for r in expected]


def test_one_name_is_one_client_that_is_away(gateway: Open, router: Router) -> None:
    (query,), name = cases(1), router.clients[0]
    with Client("http://testserver", transport=Through(gateway())) as c:
        one, listed = (c.route(query, away=away) | {"request": ""} for away in (name, [name]))
    assert one == listed
    rows = router.route([query], away=name).rows()
    assert rows == router.route([query], away=[name]).rows()
    assert rows[0]["client"] != name
    guide = Guide.of(router)
    assert guide.choose(router.encode([query]), name).rows() == guide.choose(router.encode([query]), [name]).rows()
    assert guide.because(router.encode([query]), name) == guide.because(router.encode([query]), [name])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_answers_than_of_queries_is_no_answer(count: int) -> None:
    def odd() -> httpx.Response:
        return httpx.Response(200, json={"answers": [{"client": "a"}] * count})

    client = Client("http://hub", transport=answering([schema_of_two, odd]), retries=0)
    with pytest.raises(ServiceError, match=f"{count} answers to 2 queries; is that a gateway of fedroute") as e:
        client.predict_batch([{"x": 1}, {"x": 2}])
    assert e.value.status == 0


@pytest.mark.parametrize("value", [object(), b"7", {1}])
def test_a_value_that_json_has_no_word_for_is_named(value: object) -> None:
    with pytest.raises(ServiceError, match=rf"query\.weight is a {type(value).__name__}, which JSON has no word") as e:
        Client("http://hub", transport=answering([])).predict({"weight": value})
    assert (e.value.status, e.value.field) == (422, "query.weight")
