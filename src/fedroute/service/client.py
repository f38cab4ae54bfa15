"""Asking a gateway from a program."""

import base64
import io
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from fedroute.errors import InputError
from fedroute.service.addresses import is_url
from fedroute.service.unreached import trusted, why_not
from fedroute.words import one_or_more

STATUS = {408, 429, 503}  # worth another try
MOST_WAIT = 30.0  # seconds that are waited for another try, whatever a gateway asks for


class ServiceError(RuntimeError):
    """A gateway's refusal. status: of HTTP, 0 where nobody answered; error, field, mend: in its words."""

    def __init__(self, status: int, error: str, field: str | None = None, mend: str = ""):
        super().__init__(f"{error}; {mend}" if mend else error)
        self.status, self.error, self.field, self.mend = status, error, field, mend


class Client:
    """A gateway at `url`. token: from `fedroute token`. verify: True, or a file with the certificates to trust, for
    HTTPS. retries: how often a request is sent again where nobody answered, or the gateway is busy (429, 503), after
    the time it asks for, else after 0.2 s, 0.4 s, ...; `log` hears each reason.

    A query is a mapping column -> value (None, NaN or pandas' NA where it is not known), or for arrays and images
    nested lists, a numpy array or tensor of one row, or the path of a PNG or JPEG. All methods raise ServiceError where
    they are refused. Raises InputError for a url that is none, and a file of certificates that cannot be used."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        verify: bool | str | Path = True,
        log: Callable[[str], None] = lambda text: None,
        transport: Any = None,
    ):
        try:
            import httpx
        except ImportError:
            raise InputError("the client needs httpx: pip install 'fedroute[serve]'") from None
        if not is_url(url):
            raise InputError(f"{url}: is no URL of a gateway; put http:// or https:// before it")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url, self.retries, self.log = url, retries, log
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, verify=trusted(verify), transport=transport
        )
        self._most: int | None = None

    def route(self, query: Any, away: Iterable[str] = ()) -> dict[str, Any]:
        """Who should answer: {client, score, runner_up, abstained, reason, posterior}. away: whom not to ask."""
        return self._post("/v1/route", {"query": plain(query), **_away(away)})

    def predict(self, query: Any, *, top_k: int = 0, away: Iterable[str] = ()) -> dict[str, Any]:
        """The answer: what `route` says, and {answered_by, fallback, answer, probabilities}. top_k: how many clients'
        answers are mixed, 0 to 100; 0: one client answers; more than there are: all do."""
        return self._post("/v1/predict", {"query": plain(query), "top_k": _whole(top_k), **_away(away)})

    def route_batch(self, queries: Sequence[Any], away: Iterable[str] = ()) -> list[dict[str, Any]]:
        """`route` of many, in as many requests as it takes."""
        return [*self._batches("/v1/route/batch", queries, _away(away))]

    def predict_batch(
        self, queries: Sequence[Any], *, top_k: int = 0, away: Iterable[str] = ()
    ) -> list[dict[str, Any]]:
        """`predict` of many, in as many requests as it takes; {error, field, mend} in the place of a query that nobody
        could answer."""
        return [*self._batches("/v1/predict/batch", queries, {"top_k": _whole(top_k), **_away(away)})]

    def answer(self, query: Any) -> dict[str, Any]:
        """What the one client answers whose own gateway this is: {client, answered_by, answer, probabilities}."""
        return self._post("/v1/answer", {"query": plain(query)})

    def answer_batch(self, queries: Sequence[Any]) -> list[dict[str, Any]]:
        """`answer` of many, in as many requests as it takes."""
        return [*self.answers(queries)]

    def answers(self, queries: Sequence[Any], numbers: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
        """`answer_batch`, one by one, as they come. numbers: what the queries are called in a refusal; 0, 1, ..."""
        return self._batches("/v1/answer/batch", queries, {}, numbers)

    def clients(self) -> list[dict[str, Any]]:
        """[{client, here, address}]."""
        found: list[dict[str, Any]] = self._asked("GET", "/v1/clients").json()["clients"]
        return found

    def schema(self) -> dict[str, Any]:
        """What a query must be: {labels, query: JSON Schema, most_queries, most_bytes}."""
        found: dict[str, Any] = self._asked("GET", "/v1/schema").json()
        return found

    def router(self) -> bytes:
        """The guide, for `Guide.unpacked`."""
        data: bytes = self._asked("GET", "/v1/router").content
        return data

    def ready(self) -> bool:
        """Whether queries can be answered now. Raises nothing."""
        import httpx

        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches(
        self, path: str, queries: Sequence[Any], options: dict[str, Any], numbers: Sequence[int] | None = None
    ) -> Iterator[dict[str, Any]]:
        numbers = numbers or range(len(queries))
        sent = [plain(q, f"queries[{i}]") for i, q in zip(numbers, queries, strict=True)]
        if sent and self._most is None:
            self._most = int(self.schema()["most_queries"])
        for k in range(0, len(sent), self._most or 1):
            end = k + (self._most or 1)
            yield from self._part(path, sent[k:end], numbers[k:end], options)

    def _part(
        self, path: str, part: list[Any], numbers: Sequence[int], options: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The answers to one request of several, whose queries have these numbers."""
        try:
            found: list[dict[str, Any]] = self._post(path, {"queries": part, **options})["answers"]
        except ServiceError as e:

            def counted(text: str) -> str:
                return re.sub(r"^queries\[(\d+)\]", lambda m: f"queries[{numbers[int(m[1])]}]", text)

            raise ServiceError(e.status, counted(e.error), e.field and counted(e.field), e.mend) from None
        if len(found) != len(part):
            words = f"{self.url}: {len(found)} answers to {len(part)} queries"
            raise ServiceError(0, words, None, "is that a gateway of fedroute?")
        return found

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self._asked("POST", path, body).json()
        return found

    def _asked(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        import httpx

        for attempt in range(self.retries + 1):
            wait = 0.2 * 2**attempt
            try:
                answer = self._http.request(method, path, json=body)
            except httpx.TransportError as e:
                why = why_not(self.url, e)
                found = ServiceError(0, why.error, None, why.mend)
                if why.lasting:
                    raise found from None
            else:
                if answer.status_code < 400:
                    return answer
                found = _refusal(answer)
                wait = min(MOST_WAIT, float(answer.headers.get("Retry-After", wait)))
            if found.status not in STATUS | {0} or attempt == self.retries:
                raise found
            self.log(f"{found.error}; again in {wait:g} s")
            time.sleep(wait)
        raise AssertionError("unreachable")


def plain(query: Any, field: str = "query") -> Any:
    """A query as JSON has it. field: what it is called where it is refused. Raises ServiceError, 422."""
    if isinstance(query, Mapping):
        return {k: _cell(f"{field}.{k}", v.item() if hasattr(v, "item") else v) for k, v in query.items()}
    if isinstance(query, Path):
        try:
            return {"image": base64.b64encode(query.read_bytes()).decode()}
        except OSError as e:
            words = f"{field}: {query}: cannot be read ({(e.strerror or str(e)).lower()})"
            raise ServiceError(422, words, field, "give the path of a PNG or JPEG") from None
    if hasattr(query, "numpy"):  # a tensor
        query = query.numpy()
    if hasattr(query, "dtype"):
        import numpy as np

        file = io.BytesIO()
        np.save(file, np.ascontiguousarray(query), allow_pickle=False)
        return {"npy": base64.b64encode(file.getvalue()).decode()}
    return query


def _cell(field: str, value: Any) -> Any:
    """What pandas and numpy write for a missing value is null. Raises ServiceError, 422, for an infinite number, and
    for what JSON has no word for."""
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and math.isinf(value):
        mend = "give a number, or None where it is not known"
        raise ServiceError(422, f"{field} is not a finite number", field, mend)
    if not isinstance(value, str | bool | int | float | list | dict | None):
        words = f"{field} is a {type(value).__name__}, which JSON has no word for"
        raise ServiceError(422, words, field, "give a number or a text, or None where it is not known")
    return value


def _whole(number: Any) -> Any:
    """A whole number of numpy or torch as JSON has it; what is none the gateway refuses, in its words."""
    return number.item() if hasattr(number, "item") else number


def _away(away: Iterable[str]) -> dict[str, Any]:
    return {"away": found} if (found := one_or_more(away)) else {}


def _refusal(answer: Any) -> ServiceError:
    try:
        body = answer.json()
        return ServiceError(answer.status_code, body["error"], body.get("field"), body.get("mend") or "")
    except (ValueError, KeyError, TypeError):  # not our gateway, or something before it
        return ServiceError(answer.status_code, f"HTTP {answer.status_code} {answer.reason_phrase}")
