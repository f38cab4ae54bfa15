"""Bodies that are no requests: whatever comes, it is refused in words, nothing is a fault of ours, memory stays."""

import asyncio
import gc
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from fedroute import Router
from fedroute.service.answers import Own
from fedroute.service.gateway import make_app, make_site_app
from fedroute.service.serving import Service
from fedroute.service.settings import Settings
from tests.service.conftest import cases

MANY = int(os.environ.get("FEDROUTE_FUZZ", "10000"))
ODD: list[Any] = [
    None, True, False, 0, -1, 1e308, -1e308, 1e-320, 2**63, 10**400, "", "NaN", "inf", "-inf", "null", "\ud800", "\0",
    "x" * 5000, [], {}, [[]], [None], {"": None}, [[[[[[[[[[[[1]]]]]]]]]]]], "a\nb", "๓", {"npy": "a"},
    {"image": "aGk="},
]  # fmt: skip
PATHS = ("/v1/route", "/v1/predict", "/v1/route/batch", "/v1/predict/batch")


def spoilt(value: Any, draw: random.Random) -> Any:
    """The value with something in it changed, taken away or added."""
    if isinstance(value, dict) and value and draw.random() < 0.7:
        key = draw.choice(list(value))
        found = dict(value)
        how = draw.randrange(4)
        if how == 0:
            del found[key]
        elif how == 1:
            found[draw.choice(["", "AGE", "constructor", "\u202e", "q" * 300])] = draw.choice(ODD)
        else:
            found[key] = spoilt(found[key], draw)
        return found
    if isinstance(value, list) and value and draw.random() < 0.7:
        i = draw.randrange(len(value))
        return [*value[:i], spoilt(value[i], draw), *value[i + draw.randrange(2) :]]
    return draw.choice(ODD)


def body(draw: random.Random, good: Any) -> bytes:
    """A body near a good one, or far from it."""
    how = draw.random()
    if how < 0.6:
        return json.dumps(spoilt(good, draw)).encode("utf-8", "surrogatepass")
    if how < 0.7:
        return draw.randbytes(draw.randrange(200))
    if how < 0.75:
        return draw.choice([b"[", b'{"query":', b"-", b'"']) * draw.randrange(1, 3000)
    text = bytearray(json.dumps(good).encode())
    for _ in range(draw.randrange(1, 5)):
        i = draw.randrange(len(text))
        match draw.randrange(3):
            case 0:
                text[i] = draw.randrange(256)
            case 1:
                del text[i:]
                text += b"}"
            case _:
                text[i:i] = draw.choice([b"NaN", b"Infinity", b"\\u0000", b"1e999", b"{", b",", b"\xff"])
    return bytes(text)


async def ask(app: FastAPI, path: str, data: bytes) -> tuple[int, bytes]:
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
        "scheme": "http", "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "client": ("127.0.0.1", 1), "server": ("gateway", 80),
        "headers": [(b"host", b"gateway"), (b"content-type", b"application/json")],
    }  # fmt: skip
    told: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    await app(scope, receive, send)
    return int(told[0]["status"]), b"".join(m.get("body", b"") for m in told)


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def flood(app: FastAPI, bodies: list[tuple[str, bytes]]) -> Counter[int]:
    found: Counter[int] = Counter()
    for path, data in bodies:
        status, answer = await ask(app, path, data)
        assert status < 500, (path, data, answer)
        if status != 200:
            told = json.loads(answer)
            assert told["error"], data
            assert told["mend"], (data, answer)
        found[status] += 1
    return found


def told(goods: dict[str, Any], many: int, seed: int) -> list[tuple[str, bytes]]:
    draw = random.Random(seed)
    paths = [draw.choice(list(goods)) for _ in range(many)]
    return [(path, body(draw, goods[path])) for path in paths]


def test_bodies_that_are_none_are_refused_and_memory_stays(ward_run: Path, router: Router, tmp_path: Path) -> None:
    app = make_app(
        Service.of_run(ward_run, router=router), Settings(audit=tmp_path / "a.sqlite", most_queries=50, timeout=600)
    )
    one: dict[str, Any] = {"query": cases(1)[0], "away": ["mid"]}
    many = {"queries": cases(4), "away": []}
    goods: dict[str, Any] = {path: many if "batch" in path else one for path in PATHS}
    goods["/v1/predict"] = one | {"top_k": 2}

    async def all_of_it() -> tuple[Counter[int], int]:
        found = await flood(app, told(goods, MANY // 3, 0))  # until caches are what they will be
        gc.collect()
        before = resident() if os.name == "posix" and Path("/proc/self/statm").exists() else 0
        found += await flood(app, told(goods, MANY - MANY // 3, 1))
        gc.collect()
        return found, resident() - before if before else 0

    found, grown = asyncio.run(all_of_it())
    app.state.close()
    assert found.total() == MANY
    assert found[422] > MANY / 2
    assert grown < 16 << 20


@pytest.mark.parametrize("form", ["images", "site"])
def test_so_are_images_and_a_client_s_own_gateway(digits_run: Path, form: str) -> None:
    router = Router.load(digits_run)
    picture = [[k % 200 for k in range(8)]] * 8
    one, many = {"query": picture}, {"queries": [picture, {"npy": "AAAA"}, {"image": "AAAA"}]}
    if form == "site":
        app, goods = make_site_app(Own.of(router, router.clients[0])), {"/v1/answer": one, "/v1/answer/batch": many}
    else:
        app = make_app(Service.of_run(digits_run, router=router), Settings(timeout=600))
        goods = {path: many if "batch" in path else one for path in PATHS}
    found = asyncio.run(flood(app, told(goods, MANY // 6, 2)))
    app.state.close()
    assert found[422] > MANY / 12
