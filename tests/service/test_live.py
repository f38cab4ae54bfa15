"""The live form: a query travels to the chosen client, and to the next best where that one is away, slow or broken."""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from fedroute import Router
from fedroute.federation.inprocess import InProcess
from fedroute.federation.transport import Away, Late, Payload, Refused, TransportError, failed
from fedroute.router.guide import Guide
from fedroute.service.answers import Live, Own
from fedroute.service.gateway import make_app
from fedroute.service.running import serve_in_thread
from fedroute.service.serving import Service
from fedroute.service.settings import Settings
from tests.federation.federations import wait_for
from tests.service.conftest import Row, cases


class Ward:
    """A site that answers queries with its own model; what it does otherwise can be set from outside."""

    def __init__(self, router: Router, client: str):
        self.own, self.seen, self.asked = Own.of(router, client).apart(), list[int](), 0
        self.broken: Callable[[Tensor], Any] | None = None
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, method: str, payload: Payload) -> Payload:
        assert method == "query"
        assert set(payload) == {"x"}
        x = load(payload["x"])["x"]  # type: ignore[arg-type]
        self.asked += 1
        self.seen.append(len(x))
        self.gate.wait(600)
        if self.broken:
            found: Payload = self.broken(x)
            return found
        return {"p": save({"p": self.own.answer(x)}), "version": 3}


class Waiting(Live):
    """Of all clients only those of `slow` can be late, however busy the machine is; how long they are passed over, the
    test says."""

    slow = frozenset[str]()

    async def answer(self, client: str, x: Tensor, timeout: float) -> Tensor:
        return await super().answer(client, x, timeout if client in self.slow else 600.0)

    def rested(self) -> None:
        self._late.clear()


class Hub:
    """A hub with a guide and three wards, and its gateway in this process."""

    def __init__(self, router: Router, **settings: Any):
        self.sites = {c: Ward(router, c) for c in router.clients}
        self.transport = InProcess(self.sites)
        self.transport.start()
        self.live = Waiting(self.transport, router.clients, rest=600.0)
        self.service = Service(Guide.of(router), self.live)
        self.app = make_app(self.service, Settings(**{"answer_timeout": 0.3, "timeout": 600.0} | settings))

    def ask(self, *bodies: Row, path: str = "/v1/predict") -> list[httpx.Response]:
        """All at once."""

        async def all_at_once() -> list[httpx.Response]:
            over = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=over, base_url="http://hub", timeout=600) as client:
                return await asyncio.gather(*(client.post(path, json=body) for body in bodies))

        return asyncio.run(all_at_once())

    def one(self, query: Row, status: int = 200, **options: Any) -> Row:
        (answer,) = self.ask({"query": query, **options})
        assert answer.status_code == status, answer.text
        found: Row = answer.json()
        return found


@pytest.fixture
def plain(router: Router) -> Router:
    """Nobody is turned away, and the likeliest client answers."""
    return replace(router, rule="posterior", abstain=None)


@pytest.fixture
def hub(plain: Router, request: pytest.FixtureRequest) -> Any:
    found = Hub(plain)
    yield found
    found.app.state.close()
    found.transport.close()


def test_the_chosen_client_answers_with_its_own_model(hub: Hub, plain: Router) -> None:
    asked = cases()
    for query, row in zip(asked, plain.route(asked).rows(), strict=True):
        told = hub.one(query)
        assert (told["client"], told["answered_by"], told["fallback"]) == (row["client"], row["client"], False)
        assert told["answer"] == row["answer"]
        assert told["probabilities"] == pytest.approx(row["probabilities"], abs=1e-4)
        assert told["score"] == row["score"]
    assert sum(site.asked for site in hub.sites.values()) == len(asked)  # nobody else was asked
    there = {c["client"]: c for c in hub.live.clients()}
    assert all(c["here"] for c in there.values())
    assert there["mid"]["version"] == 3


def of_ward(router: Router, client: str, n: int = 40) -> list[Row]:
    """Queries whose first choice is this client."""
    asked = cases(n)
    return [q for q, row in zip(asked, router.route(asked).rows(), strict=True) if row["client"] == client]


def test_where_one_is_away_the_next_best_answers(hub: Hub, plain: Router) -> None:
    query = of_ward(plain, "mid")[0]
    hub.transport.unplug("mid")
    told, then = hub.one(query), plain.route([query], ["mid"]).rows()[0]
    assert (told["client"], told["answered_by"], told["fallback"]) == ("mid", then["client"], True)
    assert told["answer"] == then["answer"]
    assert "mid is away" in told["reason"]
    hub.transport.plug("mid")
    assert hub.one(query)["answered_by"] == "mid"


def test_who_breaks_off_in_mid_call_is_passed_over(hub: Hub, plain: Router) -> None:
    query = of_ward(plain, "mid")[0]
    hub.transport.cut("mid", "query", back=None)
    told = hub.one(query)
    assert told["fallback"] is True
    assert "mid is away" in told["reason"]


def test_who_is_slow_is_passed_over_and_not_waited_for_again_at_once(hub: Hub, plain: Router) -> None:
    asked = of_ward(plain, "mid")[:3]
    hub.live.slow = frozenset({"mid"})
    hub.sites["mid"].gate.clear()
    told = hub.one(asked[0])
    assert told["fallback"] is True
    assert "did not answer in time" in told["reason"]
    assert not {c["client"]: c["here"] for c in hub.live.clients()}["mid"]
    for query in asked[1:]:  # nobody waits for it
        assert hub.one(query)["answered_by"] != "mid"
    assert hub.sites["mid"].asked == 1
    hub.sites["mid"].gate.set()
    hub.live.slow = frozenset()
    hub.live.rested()
    assert hub.one(asked[0])["answered_by"] == "mid"


BAD: list[tuple[str, Callable[[Tensor], Any]]] = [
    ("rows", lambda x: {"p": save({"p": torch.full((len(x) + 1, 2), 0.5, dtype=torch.float64).log()})}),
    ("labels", lambda x: {"p": save({"p": torch.full((len(x), 4), 0.25, dtype=torch.float64).log()})}),
    ("nan", lambda x: {"p": save({"p": torch.full((len(x), 2), torch.nan, dtype=torch.float64)})}),
    ("logits", lambda x: {"p": save({"p": torch.ones(len(x), 2, dtype=torch.float64)})}),
    ("single", lambda x: {"p": save({"p": torch.full((len(x), 2), 0.5).log()})}),
    ("bytes", lambda x: {"p": b"no tensors"}),
    ("nothing", lambda x: {}),
    ("text", lambda x: {"p": "0.5"}),
]


@pytest.mark.parametrize("how", [name for name, _ in BAD])
def test_an_answer_that_is_none_is_not_believed(hub: Hub, plain: Router, how: str) -> None:
    hub.sites["mid"].broken = dict(BAD)[how]
    told = hub.one(of_ward(plain, "mid")[0])
    assert told["fallback"] is True
    assert told["answered_by"] != "mid"
    assert "mid refused" in told["reason"]


def test_where_nobody_can_answer_that_is_said_with_each_reason(hub: Hub) -> None:
    hub.transport.unplug("west")
    hub.live.slow = frozenset({"mid"})
    hub.sites["mid"].gate.clear()
    hub.sites["east"].broken = lambda x: {}
    told = hub.one(cases(1)[0], 503)
    for words in ("west is away", "mid did not answer in time", "east refused"):
        assert words in told["error"]
    (batch,) = hub.ask({"queries": cases(2)}, path="/v1/predict/batch")
    assert batch.status_code == 503
    hub.sites["mid"].gate.set()


def test_a_query_unlike_those_of_all_that_are_left_is_turned_away(router: Router) -> None:
    hub = Hub(replace(router, rule="posterior"))
    query = of_ward(hub_router := replace(router, rule="posterior"), "mid")[0]
    assert hub_router.route([query], ["mid"]).rows()[0]["abstained"]
    hub.sites["mid"].broken = lambda x: {}
    told = hub.one(query)
    hub.app.state.close()
    assert (told["client"], told["answered_by"], told["abstained"]) == ("mid", None, True)
    assert "mid refused" in told["reason"]
    assert hub.sites["west"].asked == hub.sites["east"].asked == 0


def test_several_answers_are_mixed_and_who_fails_is_left_out(hub: Hub, plain: Router) -> None:
    query = cases(3)[2]
    told = hub.one(query, top_k=2)
    own = plain.scores([query])
    p = own.heads[0].exp()
    names, share = [*told["mixed"]], torch.tensor([*told["mixed"].values()], dtype=torch.float64)
    expected = (share[:, None] * p[[plain.clients.index(c) for c in names]]).sum(0)
    assert [*told["probabilities"].values()] == pytest.approx(expected.tolist(), abs=2e-4)
    hub.sites[names[0]].broken = lambda x: {}
    again = hub.one(query, top_k=2)
    assert "mixed" not in again
    assert again["answered_by"] == names[1]
    assert [*again["probabilities"].values()] == pytest.approx(p[plain.clients.index(names[1])].tolist(), abs=2e-4)


def test_queries_that_come_together_travel_together(hub: Hub, plain: Router) -> None:
    query, mid = of_ward(plain, "mid")[0], hub.sites["mid"]
    mid.gate.clear()

    def come() -> None:
        """It answers once all are on their way, or wait for those that are."""
        waiting = hub.service.ask._waiting
        wait_for(lambda: sum(mid.seen) + sum(map(len, list(waiting.values()))) == 40)
        mid.gate.set()

    coming = threading.Thread(target=come)
    coming.start()
    answers = hub.ask(*[{"query": query}] * 40)
    coming.join()
    assert [a.status_code for a in answers] == [200] * 40
    assert sum(hub.sites["mid"].seen) == 40
    assert hub.sites["mid"].asked <= 6


def test_a_query_is_answered_while_a_site_trains(hub: Hub, plain: Router) -> None:
    """A long call of another method on the same connection is not waited for."""
    busy, done = threading.Event(), threading.Event()
    site = hub.sites["mid"]

    def both(method: str, payload: Payload) -> Payload:
        if method == "train":
            busy.set()
            assert done.wait(600)
            return {}
        return site(method, payload)

    hub.transport.plug("mid", both)
    training = threading.Thread(target=hub.transport.call, args=("mid", "train", {}, 600))
    training.start()
    assert busy.wait(60)
    told = hub.one(of_ward(plain, "mid")[0])
    done.set()
    training.join()
    assert told["answered_by"] == "mid"


def test_of_500_at_once_with_one_site_away_none_is_lost(plain: Router, tmp_path: Path) -> None:
    """All are answered, or refused with a reason; and the audit has a line for each of them."""
    hub = Hub(plain, audit=tmp_path / "audit.sqlite", concurrency=64, queue=300)
    hub.transport.unplug("west")
    asked = cases(500)
    answers = hub.ask(*({"query": q} for q in asked))
    hub.app.state.close()
    hub.transport.close()
    assert len(answers) == 500
    told = Counter(a.status_code for a in answers)
    assert set(told) <= {200, 503}
    assert told[200] >= 364  # worked on, and waiting
    for answer, row in zip(answers, plain.route(asked, ["west"]).rows(), strict=True):
        if answer.status_code == 503:
            assert "too many requests" in answer.json()["error"]
            continue
        assert answer.json()["answered_by"] == row["client"] != "west"
        assert answer.json()["answer"] == row["answer"]
    with sqlite3.connect(tmp_path / "audit.sqlite") as connection:
        kept = connection.execute("SELECT request, status, answered FROM answers").fetchall()
    expected = Counter((a.headers["x-request-id"], a.status_code, a.json().get("answered_by")) for a in answers)
    assert Counter(kept) == expected


def test_it_runs_in_a_thread_of_the_hub_and_ends_cleanly(plain: Router) -> None:
    before = {*threading.enumerate()}
    hub = Hub(plain)
    running = serve_in_thread(hub.app)
    answer = httpx.post(f"{running.url}/v1/predict", json={"query": cases(1)[0]}, timeout=60)
    assert answer.status_code == 200
    begun = {*threading.enumerate()} - before
    assert running.thread in begun
    running.stop()
    assert not running.thread.is_alive()
    wait_for(lambda: not any(t.is_alive() for t in begun))
    hub.transport.close()


def test_the_errors_of_a_transport_come_through(plain: Router) -> None:
    class Broken:
        """A transport whose one site fails so, or never answers."""

        def __init__(self, error: TransportError | None):
            self.error, self.begun = error, list["Future[Payload]"]()

        def nodes(self) -> tuple[str, ...]:
            return ("west",)

        def begin(self, *_: Any) -> "Future[Payload]":
            self.begun.append(failed(self.error) if self.error else Future())
            return self.begun[-1]

    x = torch.zeros(1, 4)
    for error in (Away("a"), Refused("r")):
        live = Live(Broken(error), plain.clients)  # type: ignore[arg-type]
        with pytest.raises(type(error)):
            asyncio.run(live.answer("west", x, 1.0))
    never = Broken(None)
    late = Live(never, plain.clients)  # type: ignore[arg-type]
    for words in (r"west has not answered within 0\.02 s", "a moment ago"):
        with pytest.raises(Late, match=words):
            asyncio.run(late.answer("west", x, 0.02))
    assert [f.cancelled() for f in never.begun] == [True]  # nothing is kept for an answer that nobody waits for


def test_a_batch_that_one_message_cannot_hold_goes_in_several(plain: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(20.0).view(5, 4)
    ward = Ward(plain, "west")
    transport = InProcess({"west": ward})
    transport.start()
    live = Live(transport, ("west",))
    whole = asyncio.run(live.answer("west", x, 10.0))
    monkeypatch.setattr("fedroute.service.answers.MOST", 2 * 2 * 16)
    assert asyncio.run(live.answer("west", x, 10.0)).allclose(whole)
    assert ward.seen == [5, 2, 2, 1]


def test_what_was_asked_by_a_thread_is_given_up_also_where_time_is_up_before_it_is_sent(plain: Router) -> None:
    began, go, replies = threading.Event(), threading.Event(), list["Future[Payload]"]()

    class Slow:
        def begin(self, *_: Any) -> "Future[Payload]":
            began.set()
            assert go.wait(60)
            replies.append(Future())
            return replies[-1]

    live = Live(Slow(), plain.clients)  # type: ignore[arg-type]

    async def too_late() -> None:
        with pytest.raises(Late):
            await live.answer("west", torch.zeros(8, 4096), 0.05)
        assert began.is_set()
        go.set()
        while not replies or not replies[0].done():
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(too_late(), 60))
    assert replies[0].cancelled()
