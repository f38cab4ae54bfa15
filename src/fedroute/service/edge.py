"""Deciding at the edge: whoever has a case downloads the guide, decides, and sends the case to one client alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedroute.errors import InputError
from fedroute.router.guide import Guide
from fedroute.service.client import STATUS, Client, ServiceError, plain
from fedroute.service.query_json import QueryJson
from fedroute.service.refusal import Refusal

Ask = Callable[[str], Client]


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
        try:
            x = self._reader.encode([self._reader.one(plain(query))])
        except Refusal as e:
            raise ServiceError(e.status, e.error, e.field, e.mend) from None
        return self.guide.choose(x, away).rows()[0]

    def predict(self, query: Any, away: Iterable[str] = ()) -> dict[str, Any]:
        """As a gateway's `predict`: {client, answered_by, fallback, answer, probabilities, score, runner_up, abstained,
        reason}. The query goes to the chosen client, and to another one only where that cannot be asked.

        Raises ServiceError where nobody could answer, or a client refuses the query itself."""
        gone = {*away} | ({*self.guide.clients} - {*self.clients})
        first = self.route(query, {*away})
        why = dict.fromkeys(gone - {*away}, "has no address")
        while True:
            if not {*self.guide.clients} - gone:
                told = "; ".join(f"{c} {words}" for c, words in why.items())
                raise ServiceError(503, f"no client can be asked now ({told})", None, "ask again later")
            row = self.route(query, gone) if gone - {*away} else first
            client = row["client"]
            if client is None:
                return _told(first, row, {"answer": None, "probabilities": None}, why)
            try:
                return _told(first, row, self.clients[client].answer(query), why)
            except ServiceError as e:
                if e.status not in STATUS | {0}:
                    raise
                gone, why = gone | {client}, why | {client: f"could not be asked ({e.error})"}


def _told(first: dict[str, Any], row: dict[str, Any], answer: dict[str, Any], why: dict[str, str]) -> dict[str, Any]:
    asked, by = first["client"], row["client"]
    reason = f"{asked} {why.get(asked, 'is not asked')}; {row['reason']}" if asked != by and asked else row["reason"]
    kept = {k: row[k] for k in ("score", "runner_up", "abstained", "posterior")}
    return {"client": asked, "answered_by": by, "fallback": None not in (asked, by) and asked != by} | kept | {
        "answer": answer["answer"], "probabilities": answer["probabilities"], "reason": reason,
    }  # fmt: skip
