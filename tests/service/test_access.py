"""Who may ask, how often, how much, and how many at once."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedroute import Router
from fedroute.errors import InputError
from fedroute.service import access
from fedroute.service.access import Rate, Tokens, make_token, remove_token
from fedroute.service.gateway import make_app
from fedroute.service.refusal import Refusal
from fedroute.service.running import Running, serve_in_thread
from fedroute.service.serving import Service
from fedroute.service.settings import Settings
from tests.federation.federations import wait_for
from tests.service.conftest import Open, cases

GOOD = cases(1)[0]


def test_only_a_known_token_may_ask(gateway: Open, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    north, south = make_token(path, "north"), make_token(path, "south")
    assert north not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    open_ = gateway(tokens=path)
    for headers in (
        {},
        {"Authorization": "Bearer nothing"},
        {"Authorization": f"Basic {north}"},
        {"Authorization": ""},
    ):
        for method, url in (
            ("POST", "/v1/route"),
            ("GET", "/v1/router"),
            ("GET", "/metrics"),
            ("GET", "/openapi.json"),
        ):
            answer = open_.request(method, url, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "fedroute token" in answer.json()["mend"]
    assert open_.get("/healthz").status_code == open_.get("/readyz").status_code == 200
    for token in (north, south):
        answer = open_.post("/v1/route", json={"query": GOOD}, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200


def test_a_token_that_is_removed_is_known_no_more_and_a_new_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens.json"
    old = make_token(path, "old")
    tokens = Tokens(path)
    assert tokens.who(f"bearer {old}") == "old"
    remove_token(path, "old")
    new = make_token(path, "new")
    monkeypatch.setattr(access, "LOOK", 0.0)
    assert tokens.who(f"Bearer {new}") == "new"
    with pytest.raises(Refusal, match="not known"):
        tokens.who(f"Bearer {old}")
    path.write_text("{")  # half-written: those that were known stay
    assert tokens.who(f"Bearer {new}") == "new"


def test_a_file_of_tokens_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    with pytest.raises(InputError, match=r"cannot be read.*fedroute token"):
        Tokens(path)
    path.write_text('{"tokens": {"a": "short"}}')
    with pytest.raises(InputError, match="no file of tokens"):
        Tokens(path)
    path.unlink()
    make_token(path, "a")
    with pytest.raises(InputError, match="already"):
        make_token(path, "a")
    with pytest.raises(InputError, match="no token 'b'"):
        remove_token(path, "b")
    with pytest.raises(InputError, match="no name"):
        make_token(path, "")


def test_the_rate_is_of_each_asker_and_comes_back_with_time() -> None:
    rate = Rate(10.0)
    taken = 0
    for k in range(100):  # a second and a half, 67 a second
        with contextlib.suppress(Refusal):
            rate.take("north", 0.015 * k)
            taken += 1
    assert taken == 20 + 14  # all at once, and ten a second after
    rate.take("south", 0.0)
    with pytest.raises(Refusal) as e:
        rate.take("north", 1.5)
    assert e.value.status == 429
    assert e.value.headers()["Retry-After"] == "1"
    rate.take("north", 1.7)
    for k in range(access.KNOWN + 10):
        rate.take(str(k), 2.0)
    assert len(rate._left) <= access.KNOWN


def test_too_often_is_429(gateway: Open) -> None:
    open_ = gateway(rate=0.01)  # the next one would be answered in 100 s
    found = [open_.post("/v1/route", json={"query": GOOD}) for _ in range(4)]
    assert [a.status_code for a in found] == [200, 200, 429, 429]
    assert int(found[-1].headers["retry-after"]) >= 1
    assert found[-1].json()["mend"]
    assert open_.get("/healthz").status_code == 200


def served(router: Router, run: Path, **settings: Any) -> Running:
    return serve_in_thread(make_app(Service.of_run(run, router=router), Settings(**settings)))


def talk(port: int, head: str, body: bytes = b"", pause: float = 0.0) -> bytes:
    """What comes back on a plain connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        lines = ["POST /v1/route HTTP/1.1", "Host: x", "Connection: close", "Content-Type: application/json", head]
        s.sendall("\r\n".join([*lines, "", ""]).encode())
        with contextlib.suppress(OSError):  # who is refused need not be listened to
            for i in range(0, len(body), 4096):
                s.sendall(body[i : i + 4096])
                time.sleep(pause)
        return b"".join(iter(lambda: s.recv(65536), b""))


def test_a_body_too_long_is_refused_before_it_is_read(router: Router, ward_run: Path) -> None:
    running = served(router, ward_run, most_bytes=10_000)
    try:
        answer = talk(running.port, "Content-Length: 100000000000")  # none of it is sent
        assert b" 413 " in answer.splitlines()[0]
        assert b"10,000 bytes" in answer
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        answer = talk(running.port, "Transfer-Encoding: chunked", chunk * 1000)
        assert b" 413 " in answer.splitlines()[0]
        fits = json.dumps({"query": GOOD}).encode()
        answer = talk(running.port, f"Content-Length: {len(fits)}", fits)
        assert b" 200 " in answer.splitlines()[0]
    finally:
        running.stop()


def test_a_body_that_does_not_come_is_not_waited_for(router: Router, ward_run: Path) -> None:
    running = served(router, ward_run, timeout=0.3)
    try:
        answer = talk(running.port, "Content-Length: 500", b"{")
        assert b" 408 " in answer.splitlines()[0]
    finally:
        running.stop()


class Slow:
    """Three clients that take their time, or as long as `go` is not set."""

    def __init__(self, router: Router):
        self.own = {c: i for i, c in enumerate(router.clients)}
        self.go = asyncio.Event()

    def clients(self) -> list[dict[str, Any]]:
        return [{"client": c, "here": True} for c in self.own]

    async def answer(self, client: str, x: Any, timeout: float) -> Any:
        import torch

        await self.go.wait()
        return torch.full((len(x), 2), 0.5, dtype=torch.float64).log()


def test_more_than_may_wait_are_refused_with_a_reason_and_the_others_are_answered(router: Router) -> None:
    from fedroute.router.guide import Guide

    slow = Slow(router)
    app = make_app(Service(Guide.of(router), slow), Settings(concurrency=2, queue=3, timeout=60, answer_timeout=60))

    async def all_at_once() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
            ask = (client.post("/v1/predict", json={"query": GOOD}) for _ in range(9))
            asked = [asyncio.create_task(one) for one in ask]
            async with asyncio.timeout(60):
                while sum(task.done() for task in asked) < 4:  # who is refused hears it at once
                    await asyncio.sleep(0.01)
            assert sum(task.done() for task in asked) == 4
            slow.go.set()
            return await asyncio.gather(*asked)

    answers = asyncio.run(all_at_once())
    app.state.close()
    assert sorted(a.status_code for a in answers) == [200] * 5 + [503] * 4
    refused = next(a for a in answers if a.status_code == 503)
    assert "too many requests" in refused.json()["error"]
    assert int(refused.headers["retry-after"]) >= 1


def test_a_request_ends_at_its_timeout(router: Router) -> None:
    from fedroute.router.guide import Guide

    app = make_app(Service(Guide.of(router), Slow(router)), Settings(timeout=1.0))

    async def once() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
            return await client.post("/v1/predict", json={"query": GOOD})

    answer = asyncio.run(once())
    app.state.close()
    assert answer.status_code == 503
    assert "no answer within 1 s" in answer.json()["error"]


def test_a_port_that_is_taken_and_a_certificate_that_is_none_are_said(
    router: Router, ward_run: Path, tmp_path: Path
) -> None:
    running = served(router, ward_run)
    threads = {*threading.enumerate()}
    try:
        with pytest.raises(InputError, match=r"address already in use.*--port 0"):
            serve_in_thread(make_app(Service.of_run(ward_run, router=router)), port=running.port)
        bad = tmp_path / "bad.pem"
        bad.write_text("no certificate")
        for certificate, key, words in ((bad, None, "belong together"), (bad, bad, "cannot be used"),
                                        (bad, tmp_path / "none", "no such file")):  # fmt: skip
            with pytest.raises(InputError, match=words):
                serve_in_thread(make_app(Service.of_run(ward_run, router=router)), certificate=certificate, key=key)
        wait_for(lambda: not {t for t in threading.enumerate() if t.name.startswith("fedroute")} - threads)
    finally:
        running.stop()
