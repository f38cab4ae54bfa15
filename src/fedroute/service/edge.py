"""Deciding at the edge: whoever has a case downloads the guide, decides, and sends the case to one client alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from fedroute.errors import InputError
from fedroute.router.guide import Guide
from fedroute.service.client import STATUS, Client, ServiceError, plain
from fedroute.service.query_json import QueryJson
from fedroute.service.refusal import Refusal
from fedroute.words import one_or_more

Ask = Callable[[str], Client]
Send = Callable[[str, Sequence[int]], Iterator[dict[str, Any]]]
"""(client, the numbers of the queries that it is sent) -> its answers, one by one. Raises ServiceError."""


class Edge:
    """guide: who should answer. clients: name -> the client of its own gateway; others count as away.

    The hub has given the guide and the addresses, and sees no case: not what it is, nor that there was one."""

    def __init__(self, guide: Guide, clients: Mapping[str, Client], *, size: Sequence[int] | None = None):
        if unknown := sorted({*clients} - {*guide.clients}):
            raise InputError(f"edge: the router knows no client {unknown[0]!r}; it has {', '.join(guide.clients)}")
        self.guide, self.clients = guide, dict(clients)
        self._reader = QueryJson(guide.form, size)

    @classmethod
    def of(cls, hub: Client, connect: Ask | None = None, **options: Any) -> "Edge":
        """The guide and the addresses that a hub gives. connect: URL -> Client, where a token is needed.

        Raises InputError where no client has an address."""
        ask = connect or Client
        there = {c["client"]: c["address"] for c in hub.clients() if c.get("address")}
        if not there:
            raise InputError(
                "edge: no client has an address of its own; `fedroute serve --site NAME=URL` names it, "
                "or the hub's gateway.yaml"
            )
        guide = Guide.unpacked(hub.router())
        return cls(guide, {c: ask(url) for c, url in there.items() if c in guide.clients}, **options)

    def route(self, query: Any, away: Iterable[str] = ()) -> dict[str, Any]:
        """A row of `Choices.rows`, decided here. Raises ServiceError, 422, for what no query is."""
        return self.guide.choose(self._encoded([query], "query"), away).rows()[0]

    def route_batch(self, queries: Sequence[Any], away: Iterable[str] = ()) -> list[dict[str, Any]]:
        """`route` of many."""
        return self.guide.choose(self._encoded(queries), away).rows() if len(queries) else []

    def predict(self, query: Any, away: Iterable[str] = ()) -> dict[str, Any]:
        """As a gateway's `predict`: {client, answered_by, fallback, answer, probabilities, score, runner_up, abstained,
        reason}. The query goes to the chosen client, and to another one only where that cannot be asked.

        Raises ServiceError where nobody could answer, or a client refuses the query itself."""
        x = self._encoded([query], "query")
        gone = {*one_or_more(away)}
        found = self._predicted(x, gone, lambda client, _: iter([self.clients[client].answer(query)]))[0]
        if isinstance(found, ServiceError):
            raise found
        return found

    def predict_batch(self, queries: Sequence[Any], away: Iterable[str] = ()) -> list[dict[str, Any]]:
        """`predict` of many, each client being sent those alone that are its own, in as few requests as it takes;
        {error, field, mend} in the place of a query that nobody could answer.

        Raises ServiceError where nobody could answer any, or a client refuses a query itself."""
        if not len(queries):
            return []

        def send(client: str, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
            return self.clients[client].answers([queries[i] for i in numbers], numbers)

        found = self._predicted(self._encoded(queries), {*one_or_more(away)}, send)
        faults = [f for f in found if isinstance(f, ServiceError)]
        if len(faults) == len(found):
            raise faults[0]
        return [
            {"error": f.error, "field": f.field, "mend": f.mend} if isinstance(f, ServiceError) else f for f in found
        ]

    def _encoded(self, queries: Sequence[Any], field: str = "") -> Tensor:
        """field: what the one query is called; by default they are queries[0], queries[1], ..."""
        try:
            names = [field] if field else [f"queries[{i}]" for i in range(len(queries))]
            sent = zip(queries, names, strict=True)
            return self._reader.encode([self._reader.one(plain(query, name), name) for query, name in sent])
        except Refusal as e:
            raise ServiceError(e.status, e.error, e.field, e.mend) from None

    def _predicted(self, x: Tensor, away: set[str], send: Send) -> list[dict[str, Any] | ServiceError]:
        """Of each encoded query (B, ...) what `predict` says, or that nobody could answer it. After each client that
        cannot be asked, the choice among the others is made anew."""
        everybody, nowhere = {*self.guide.clients}, {*self.guide.clients} - {*self.clients} - away
        first = self.guide.choose(x, away).rows()
        found: dict[int, dict[str, Any] | ServiceError] = {}
        gone, why = frozenset(away | nowhere), dict.fromkeys(sorted(nowhere), "has no address")
        todo = [(gone, why, [*range(len(x))])]
        while todo:
            gone, why, numbers = todo.pop()
            if not everybody - gone:
                told = "; ".join(f"{c} {words}" for c, words in why.items())
                found |= {i: ServiceError(503, f"no client can be asked now ({told})", None, "ask again later")
                          for i in numbers}  # fmt: skip
                continue
            rows = first if not gone - away else self.guide.choose(x[numbers], gone).rows()
            chosen = dict(zip(numbers, rows, strict=True))
            for client in dict.fromkeys(row["client"] for row in rows):
                its = [i for i in numbers if chosen[i]["client"] == client]
                if client is None:
                    found |= {i: _told(first[i], chosen[i], {"answer": None, "probabilities": None}, why) for i in its}
                    continue
                try:
                    for i, answer in zip(its, send(client, its), strict=True):
                        found[i] = _told(first[i], chosen[i], answer, why)
                except ServiceError as e:
                    if e.status not in STATUS | {0}:
                        raise
                    left = [i for i in its if i not in found]
                    todo.append((gone | {client}, why | {client: f"could not be asked ({e.error})"}, left))
        return [found[i] for i in range(len(x))]


def _told(first: dict[str, Any], row: dict[str, Any], answer: dict[str, Any], why: dict[str, str]) -> dict[str, Any]:
    asked, by = first["client"], row["client"]
    reason = f"{asked} {why.get(asked, 'is not asked')}; {row['reason']}" if asked != by and asked else row["reason"]
    kept = {k: row[k] for k in ("score", "runner_up", "abstained", "posterior")}
    return {"client": asked, "answered_by": by, "fallback": None not in (asked, by) and asked != by} | kept | {
        "answer": answer["answer"], "probabilities": answer["probabilities"], "reason": reason,
    }  # fmt: skip
