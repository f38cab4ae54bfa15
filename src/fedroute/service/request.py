"""A request read: never more of it than is allowed, never longer than is allowed, and JSON or refused in words."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from fedroute.options import nearest
from fedroute.service.query_json import QueryJson
from fedroute.service.refusal import Refusal, wrong
from fedroute.service.serving import Query, Wish
from fedroute.service.settings import MOST_MIXED, Settings


@dataclass(frozen=True)
class Asked:
    """What a request asks. given: the queries as they came, for their keyed hashes."""

    queries: list[Query]
    given: list[Any]
    wish: Wish


async def body_of(request: Request, settings: Settings) -> bytes:
    """Raises Refusal: 413 as soon as it is known that it is too long, 408 where it does not come in time, 415."""
    if request.headers.get("content-type", "application/json").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "the body is not said to be JSON", "send the header Content-Type: application/json")
    most = settings.most_bytes
    too_long = Refusal(413, f"the body has more than {most:,} bytes", "send smaller batches", told="a body too long")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > most:
        raise too_long
    parts, got = list[bytes](), 0
    try:
        async with asyncio.timeout(settings.timeout):
            async for part in request.stream():
                got += len(part)
                if got > most:
                    raise too_long
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {settings.timeout:g} s", "send it at once") from None
    return b"".join(parts)


def parsed(body: bytes) -> dict[str, Any]:
    """The object in a body. Raises Refusal, 422."""
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as e:
        raise Refusal(422, f"the body is not JSON ({_why(e)})", 'send an object such as {"query": ...}',
                      told="a body that is not JSON") from None  # fmt: skip
    if not isinstance(found, dict):
        raise Refusal(
            422, "the body is no object", 'send an object such as {"query": ...}', told="a body of another kind"
        )
    return found


def asked(
    body: dict[str, Any], reader: QueryJson, settings: Settings, clients: tuple[str, ...], *, many: bool, mixes: bool
) -> Asked:
    """many: a batch; mixes: whether `top_k` may be said. Raises Refusal, 422, which names field and mend."""
    key = "queries" if many else "query"
    known = (key, *(("away",) if clients else ()), *(("top_k",) if mixes else ()))
    for k in body:
        if k not in known:
            raise wrong(k[:40], "no such field", f"{nearest(k[:40], known)}")
    if key not in body:
        raise wrong(key, "is not there", f'send {{"{key}": ...}}, as GET /v1/schema says')
    items = reader.many(body[key], settings.most_queries) if many else [reader.one(body[key])]
    given = body[key] if many and isinstance(body[key], list) else [body[key]] * len(items)
    wish = Wish(_away(body.get("away", []), clients), _top(body.get("top_k", 0)), settings.answer_timeout)
    return Asked([Query(i) for i in items], given, wish)


def _away(value: Any, clients: tuple[str, ...]) -> frozenset[str]:
    if not isinstance(value, list):
        raise wrong("away", "is no list", "give the names of clients that shall not be asked")
    for i, c in enumerate(value):
        if not isinstance(c, str) or c not in clients:
            raise wrong(f"away[{i}]", "no such client", f"{nearest(str(c)[:40], clients)} (GET /v1/clients)")
    if len({*value}) < len(value):
        raise wrong("away", "names a client twice", "name each once")
    if value and len(value) == len(clients):
        raise wrong("away", "names every client", "leave one that may be asked")
    return frozenset(value)


def _top(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():  # JSON has one kind of number
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_MIXED:
        raise wrong(
            "top_k",
            f"is no whole number from 0 to {MOST_MIXED}",
            "say how many clients' answers are mixed; 0: one client answers, more than there are: all do",
        )
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def _why(e: Exception) -> str:
    """Without what the body holds."""
    if isinstance(e, json.JSONDecodeError):
        return f"{e.msg} at byte {e.pos}"
    return "too deep" if isinstance(e, RecursionError) else str(e)[:60] if "JSON" in str(e) else type(e).__name__
