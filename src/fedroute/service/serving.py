"""What a gateway serves: who decides, who answers, and from a decision to the answer of a client that is there."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Self, cast

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.federation.transport import Away, Late, Refused, TransportError
from fedroute.router.guide import Guide
from fedroute.router.router import Router
from fedroute.service.answers import Far, Local, Near
from fedroute.service.batching import Batches
from fedroute.service.query_json import Item, QueryJson
from fedroute.service.refusal import Refusal

MOST = 256  # queries of a pass
CALLS = 4  # to one client at a time
LEAVING = 0.0003  # seconds in which a question has left for a client
WORDS = {Away: "is away", Late: "did not answer in time", Refused: "refused"}


@dataclass(eq=False)
class Query:
    """One query on its way: as it was asked, and encoded once it has been."""

    item: Item
    x: Tensor | None = None


class Service:
    """Who decides (a guide, or the router of a run directory, whose models are all at hand) and who answers.

    guide: or a function that gives the one in force, None while there is none, so that a hub may open its gateway
    before the first round. size: (H, W) to which images are resized."""

    def __init__(
        self,
        guide: Guide | Callable[[], Guide | None],
        answers: Near | Far,
        *,
        router: Router | None = None,
        size: Sequence[int] | None = None,
    ):
        self._given = guide if callable(guide) else lambda: guide
        self._guides: tuple[Guide | None, Guide | None] = None, None  # the one given, and it with a model of its own
        self.answers, self.router, self.size = answers, router, size
        if router:  # models that are in the mode of evaluation need not be put into it for every query
            for task in (router.models.task, router.models.trunk, router.answering.open, router.read.task):
                if task is not None:
                    task.module.eval()
        self.most_rows: Callable[[int], None] | None = None  # hears how many queries a pass has
        self._reader: QueryJson | None = None
        self._deciding = ThreadPoolExecutor(
            1, "fedroute-decide"
        )  # one pass at a time, and the next takes all that came
        # a model is one thread's at a time: weights are put into it while it runs
        models = Lock()
        self.decide = Batches(self._decided, self._deciding, most=MOST, told=self._told, models=models)
        self.why = Batches(self._why, self._deciding, most=MOST, models=models)
        self.ask = (
            Batches(self._asked, self._deciding, most=MOST, models=models)
            if router
            else Batches(self._asked_afar, most=MOST, at_once=CALLS)
        )

    @classmethod
    def of_run(cls, folder: Path, *, away: Iterable[str] = (), router: Router | None = None) -> Self:
        """The run-directory form: nothing but the folder of a run with a router is needed. router: that of the folder,
        where it was loaded already, as one with a model of one's own is. Raises InputError where there is none."""
        router = router or Router.load(folder)
        return cls(Guide.of(router), Local(router, away), router=router, size=image_size(folder))

    def guide(self) -> Guide:
        """The one in force. Raises Refusal where there is none yet."""
        given = self._given()
        if given is None:
            raise Refusal(503, "there is no router yet", "ask again when the first training has ended", retry=5)
        was, own = self._guides
        if was is not given or own is None:
            own = given.apart()
            self._guides = given, own
        return own

    def reader(self) -> QueryJson:
        """What checks queries. Raises Refusal where nothing is known of them yet."""
        form = self.guide().form
        if self._reader is None or self._reader.form is not form:
            self._reader = QueryJson(form, self.size)
        return self._reader

    def away(self) -> frozenset[str]:
        """The clients that cannot be asked now."""
        here = {c["client"] for c in self.answers.clients() if c["here"]}
        return frozenset(self.guide().clients) - here

    def rule(self) -> str:
        """By which clients are chosen."""
        return self.router.rule if self.router else self.guide().rule

    def _told(self, count: int) -> None:
        if self.most_rows:
            self.most_rows(count)

    def close(self) -> None:
        """Ends the threads, once what they do is done."""
        self._deciding.shutdown()

    # in threads

    @torch.inference_mode()
    def _encoded(self, queries: Sequence[Query]) -> Tensor:
        if new := [q for q in queries if q.x is None]:
            for q, x in zip(new, self.reader().encode([q.item for q in new]), strict=True):
                q.x = x
        return torch.stack([q.x for q in queries if q.x is not None])

    @torch.inference_mode()
    def _decided(self, key: tuple[bool, frozenset[str]], queries: list[Query]) -> list[dict[str, Any]]:
        """key: (whether by the guide, who is away). Of each query a row of the router (client and answer), or of the
        guide, with the weights of all clients, and `reason_by`: what speaks for the choice -> the reason, which is
        looked for in `_why`, while the client answers."""
        by_guide, guide = key[0], self.guide()
        x, gone = self._encoded(queries), sorted(key[1] & {*guide.clients})  # others have left since
        try:
            if self.router and not by_guide:
                return self.router.route(x, gone).rows()
            found = guide.choose(x, gone, why=False)
        except InputError as e:  # the queries are well-formed, so that it is the models
            raise Refusal(503, str(e), "ask whoever runs this gateway to look at the clients' models") from None
        weights = [dict(zip(guide.clients, p, strict=True)) for p in found.routed.posterior.tolist()]
        return [
            row | {"weights": w, "reason_by": partial(found.routed.reason, i)}
            for i, (row, w) in enumerate(zip(found.rows(), weights, strict=True))
        ]

    @torch.inference_mode()
    def _why(self, away: frozenset[str], queries: list[Query]) -> list[str]:
        """Of each query what speaks for the client that the guide chose while these were away."""
        guide = self.guide()
        return guide.because(self._encoded(queries), sorted(away & {*guide.clients})) or [""] * len(queries)

    @torch.inference_mode()
    def _asked(self, key: tuple[str, float], queries: list[Query]) -> list[Tensor]:
        """(K,) probabilities for each query, by one client. Raises TransportError."""
        near = cast(Near, self.answers)
        return self._probabilities(key[0], near.answer(key[0], self._encoded(queries)), len(queries))

    async def _asked_afar(self, key: tuple[str, float], queries: list[Query]) -> list[Tensor]:
        """The same of a client elsewhere."""
        far = cast(Far, self.answers)
        return self._probabilities(key[0], await far.answer(key[0], self._encoded(queries), key[1]), len(queries))

    def _probabilities(self, client: str, told: Tensor, count: int) -> list[Tensor]:
        p = told.exp()
        if tuple(p.shape) != (count, len(self.guide().labels)) or bool(p.isnan().any()):
            raise Refused(f"{client} did not answer with the probabilities of {len(self.guide().labels)} labels")
        return list(p)


def image_size(folder: Path) -> Sequence[int] | None:
    """(H, W) to which the run in a folder resized its images, where it did."""
    from fedroute.config import load
    from fedroute.data.spec import both_sides

    config = folder / "config.yaml"
    found: Sequence[int] | None = both_sides(load(config).federation.get("size")) if config.exists() else None
    return found


@dataclass(frozen=True)
class Wish:
    """What was asked of a query besides itself. away: whom not to ask; top: how many answers are mixed, 0: one client
    answers; timeout: seconds that one client has."""

    away: frozenset[str] = frozenset()
    top: int = 0
    timeout: float = 2.0


async def route(service: Service, queries: list[Query], wish: Wish) -> list[dict[str, Any]]:
    """Of each query {client, score, runner_up, abstained, reason, posterior}: who should answer of those that can be
    asked. Raises Refusal where nobody can."""
    gone = _some_left(service, wish, service.away() - wish.away)
    rows = await service.decide((False, gone), queries)
    if service.router is None:
        words = await service.why(gone, queries)
        rows = [row | {"reason": row["reason_by"](because)} for row, because in zip(rows, words, strict=True)]
    return [{k: row[k] for k in ROUTE} for row in rows]


async def predict(service: Service, queries: list[Query], wish: Wish) -> list[dict[str, Any] | Refusal]:
    """Of each query a row of `route`, client being the one of all that should be asked, and {answered_by, fallback,
    answer, probabilities}; a Refusal where nobody could answer."""
    by_guide = bool(wish.top) or service.router is None
    gone = service.away() - wish.away
    left = _some_left(service, wish, gone)
    first = await service.decide((by_guide, wish.away), queries)
    if by_guide:
        ways = [_answered(service, q, row, wish, gone) for q, row in zip(queries, first, strict=True)]
        together = len(ways) != 1 and asyncio.gather(*map(_or_refusal, ways), return_exceptions=True)
        found = await together if together else [await _or_refusal(ways[0])]  # one needs no task of its own
        for bad in found:
            if isinstance(bad, BaseException) and not isinstance(bad, Refusal):
                raise bad
        return found  # type: ignore[return-value]
    rows = await service.decide((by_guide, left), queries) if gone else first
    why = dict.fromkeys(gone, WORDS[Away])
    return [_plain(row, one["client"], row["client"], why) for one, row in zip(first, rows, strict=True)]


ROUTE = ("client", "score", "runner_up", "abstained", "reason", "posterior")


async def _or_refusal(way: Awaitable[dict[str, Any]]) -> dict[str, Any] | Refusal:
    try:
        return await way
    except Refusal as refusal:
        return refusal


async def _answered(
    service: Service, query: Query, row: dict[str, Any], wish: Wish, gone: frozenset[str]
) -> dict[str, Any]:
    """Client by client, until one answers: after each that cannot, the choice among the others is made anew, so that a
    query which only that client's rows are like is turned away."""
    asked, why, left = row["client"], dict.fromkeys(gone, WORDS[Away]), wish.away
    while True:
        if row["client"] in gone:
            left = _some_left(service, wish, gone, why)
            row = (await service.decide((True, left), [query]))[0]
        if row["abstained"]:
            return _plain(row, asked, None, why)
        who = _top(row, wish, gone)
        calls = (service.ask((c, wish.timeout), [query]) for c in who)
        *found, because = await asyncio.gather(*calls, _why(service, query, left), return_exceptions=True)
        failed = {c: f for c, f in zip(who, found, strict=True) if isinstance(f, BaseException)}
        for c, e in failed.items():
            if not isinstance(e, TransportError):
                raise e
            why[c] = next((words for kind, words in WORDS.items() if isinstance(e, kind)), "could not answer")
        gone |= {*failed}
        heard = {c: f[0] for c, f in zip(who, found, strict=True) if not isinstance(f, BaseException)}
        if heard:
            if isinstance(because, BaseException):
                raise because
            row |= {"reason": row["reason_by"](because)}
            return _mixed(service.guide().labels, row, asked, heard, why)
        row = row | {"client": who[0]}  # who could not answer, so that another is chosen


async def _why(service: Service, query: Query, left: frozenset[str]) -> str:
    """What speaks for the choice, looked for once the question has left, which it would hold up."""
    if service.router is None:  # else the models are at hand, and no question leaves
        await asyncio.sleep(LEAVING)
    return str((await service.why(left, [query]))[0])


def _top(row: dict[str, Any], wish: Wish, gone: frozenset[str]) -> list[str]:
    """Whose answers are wanted: the client's, or those of the likeliest few that can be asked."""
    by_weight = sorted(row["weights"].items(), key=lambda cw: -cw[1])
    most = [c for c, w in by_weight if w > 0 and c not in gone | wish.away][: wish.top]
    return most or [row["client"]]


def _mixed(
    labels: Sequence[str], row: dict[str, Any], asked: str | None, heard: dict[str, Tensor], why: dict[str, str]
) -> dict[str, Any]:
    total = sum(row["weights"][c] for c in heard)
    weights = [row["weights"][c] / total if total > 0 else 1 / len(heard) for c in heard]
    each = [[w * v for v in answer.tolist()] for w, answer in zip(weights, heard.values(), strict=True)]
    p = [math.fsum(of_label) for of_label in zip(*each, strict=True)]
    shares = dict(zip(heard, (round(w, 4) for w in weights), strict=True))
    told = row | {
        "answer": labels[p.index(max(p))],
        "probabilities": {k: round(v, 4) for k, v in zip(labels, p, strict=True)},
    }
    by = max(shares, key=lambda c: shares[c])
    return _plain(told, asked, by, why) | ({"mixed": shares} if len(heard) > 1 else {})


def _plain(row: dict[str, Any], asked: str | None, by: str | None, why: dict[str, str]) -> dict[str, Any]:
    """The row that is sent."""
    reason = row["reason"]
    if asked is not None and asked != by:
        reason = f"{asked} {why.get(asked, 'is not asked')}; {reason}"
    return {k: row[k] for k in ROUTE} | {
        "client": asked,
        "answered_by": by,
        "fallback": None not in (asked, by) and asked != by,
        "answer": None if row["abstained"] else row["answer"],
        "probabilities": None if row["abstained"] else row["probabilities"],
        "reason": reason,
    }


def _some_left(service: Service, wish: Wish, gone: frozenset[str], why: dict[str, str] | None = None) -> frozenset[str]:
    """Who is not to be asked, or cannot be. why: of each that cannot, in words; by default that it is away.

    Raises Refusal, with these reasons, where nobody is left to ask."""
    if not {*service.guide().clients} - wish.away - gone:
        reasons = why or dict.fromkeys(sorted(gone), WORDS[Away])
        told = "; ".join([f"{c} {words}" for c, words in reasons.items()])
        mend = "ask again later, or leave `away` out" if wish.away else "ask again later"
        raise Refusal(503, f"no client can be asked now{f' ({told})' if told else ''}", mend, retry=1)
    return wish.away | gone
