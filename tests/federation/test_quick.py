"""Quick calls without a network: each gets its own answer, nobody answers for another, and only the hub may ask."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

from fedroute.federation.nvflare_cell import Untaken, pack, pack_refusal, unpack
from fedroute.federation.nvflare_quick import APP, METHOD, NUMBER, SHORT, Answering, Asking
from fedroute.federation.transport import Away, Late, Payload, Refused, waited


class Manager:
    """What reads frames: which it read at once, and which in another thread."""

    def __init__(self) -> None:
        self.at_once, self.later = list[bytes](), list[bytes]()

    def process_frame(self, connection: object, frame: bytes) -> None:
        self.later.append(frame)

    def process_frame_task(self, connection: object, frame: bytes) -> None:
        self.at_once.append(frame)


class Wire:
    """One end of a connection with `others`. sent: what was sent to whom; broken: sending fails."""

    def __init__(self, *others: str) -> None:
        self.others, self.sent, self.broken = others, list[tuple[str, Message]](), False
        self.conn_manager = Manager()
        self.receiver: Any = None

    def register_message_receiver(self, app: int, receiver: Any) -> None:
        assert app == APP
        self.receiver = receiver

    def find_endpoint(self, name: str) -> Endpoint | None:
        return Endpoint(name) if name in self.others else None

    def send(self, endpoint: Endpoint, app: int, message: Message) -> None:
        if self.broken:
            raise CommError(CommError.CLOSED, "broken")
        self.sent.append((endpoint.name, message))

    def comes(self, origin: str, headers: dict[str, Any] | None, payload: object = b"") -> None:
        self.receiver.process_message(Endpoint(origin), None, APP, Message(headers, payload))


class Hub:
    def __init__(self) -> None:
        self.wire, self.said, self.heard = Wire("east", "west"), list[str](), list[str]()
        self.asking = Asking(self.wire, self.said.append, self.heard.append)

    def ask(self, site: str, n: int = 0) -> tuple["Future[Payload]", bytes]:
        """The reply to come, and the number of the question."""
        reply = self.asking.begin(site, "query", {"n": n})
        name, message = self.wire.sent[-1]
        assert name == site
        assert message.get_header(METHOD) == "query"
        assert unpack(message.payload) == {"n": n}
        return reply, message.get_header(NUMBER)

    def answers(self, site: str, number: object, payload: object) -> None:
        self.wire.comes(site, {NUMBER: number}, payload)

    @property
    def waiting(self) -> int:
        return len(self.asking._waiting)


def test_each_question_gets_its_own_answer_in_any_order() -> None:
    hub = Hub()
    asked = [hub.ask(site, n) for n, site in enumerate(("east", "west", "east", "west"))]
    assert len({number for _, number in asked}) == 4
    for k in (2, 0, 3, 1):
        hub.answers(("east", "west")[k % 2], asked[k][1], pack({"to": k}))
    assert [reply.result(0) for reply, _ in asked] == [{"to": k} for k in range(4)]
    assert hub.heard == ["east", "east", "west", "west"]
    assert not hub.waiting


def test_nobody_answers_for_another() -> None:
    hub = Hub()
    reply, number = hub.ask("east")
    for _ in range(3):
        hub.answers("west", number, pack({"forged": True}))
    assert not reply.done()
    assert hub.said == ["a message of 'west' was not taken (quick): it answers what east was asked"]  # one a minute
    assert not hub.heard
    hub.answers("east", number, pack({"forged": False}))
    assert reply.result(0) == {"forged": False}


@pytest.mark.parametrize("number", [None, 7, b"", b"12345678", "12345678", [1]])
def test_what_was_never_asked_is_nobodys_answer(number: object) -> None:
    hub = Hub()
    reply, _ = hub.ask("east")
    hub.answers("east", number, pack({}))
    hub.wire.comes("east", None, None)
    assert not reply.done()
    assert not hub.heard


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (pack_refusal("the words of the site"), "^the words of the site$"),
        (b"\xc1", "cannot be read"),
        (None, "no payload"),
        (b"\x81\xa1a\x90", "holds scalars and bytes"),  # {"a": []}
    ],
)
def test_a_refusal_and_what_is_no_answer_end_the_call(payload: object, words: str) -> None:
    hub = Hub()
    reply, number = hub.ask("east")
    hub.answers("east", number, payload)
    with pytest.raises(Refused, match=words):
        reply.result(0)
    assert not hub.waiting


def test_where_the_connection_breaks_that_sites_calls_end() -> None:
    hub = Hub()
    (east, _), (west, number) = hub.ask("east"), hub.ask("west")
    hub.asking.end("east")
    with pytest.raises(Away, match="broke after it was asked"):
        east.result(0)
    hub.answers("west", number, pack({"here": True}))
    assert west.result(0) == {"here": True}
    hub.wire.broken = True
    for site, words in (("east", "broke as it was asked to query"), ("south", "not connected")):
        with pytest.raises(Away, match=words):
            hub.asking.begin(site, "query", {}).result(0)
    assert not hub.waiting


def test_what_cannot_be_sent_is_refused_before_it_is() -> None:
    hub = Hub()
    for value, words in (([1], "holds scalars and bytes"), (2**70, "cannot be sent"), ("\ud800", "cannot be sent")):
        with pytest.raises(Refused, match=words):
            hub.asking.begin("east", "query", {"n": value}).result(0)  # type: ignore[dict-item]
    assert not hub.wire.sent
    assert not hub.waiting


def test_who_waits_no_more_is_forgotten_and_a_late_answer_disturbs_nobody() -> None:
    hub = Hub()
    reply, number = hub.ask("east")
    with pytest.raises(Late, match=r"east has not answered query within 0\.01 s"):
        waited(reply, "east", "query", 0.01)
    assert not hub.waiting
    hub.answers("east", number, pack({}))


def test_two_threads_get_what_each_asked() -> None:
    hub, found = Hub(), dict[int, Payload]()
    lock = threading.Lock()

    def one(k: int) -> None:
        for i in range(50):
            with lock:
                reply, number = hub.ask("east", 100 * k + i)
            threading.Thread(target=hub.answers, args=("east", number, pack({"n": 100 * k + i}))).start()
            found[100 * k + i] = reply.result(60)

    threads = [threading.Thread(target=one, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {100 * k + i: {"n": 100 * k + i} for k in range(3) for i in range(50)}


def frame(app: int, size: int = PREFIX_LEN, kind: int = Types.DATA) -> bytes:
    made = bytearray(size)
    Prefix(length=size, type=kind, app_id=app).to_buffer(made, 0)
    return bytes(made)


def test_short_replies_alone_are_read_at_once() -> None:
    hub = Hub()
    manager = hub.wire.conn_manager
    quick = [frame(APP), frame(APP, SHORT)]
    others = [frame(APP, kind=2), frame(1), frame(1, SHORT), frame(APP, SHORT + 1), b"", b"\x00" * (PREFIX_LEN - 1)]
    for each in [*quick, *others]:
        manager.process_frame(None, each)
    assert (manager.at_once, manager.later) == (quick, others)


# a site


def site(answer: Callable[[str, object], bytes]) -> tuple[Wire, list[str]]:
    wire, said = Wire("server", "mallory"), list[str]()
    Answering(wire, "server", answer, said.append)
    return wire, said


def test_a_site_answers_the_hub_by_the_number_of_the_question() -> None:
    wire, said = site(lambda method, data: pack({"method": method, **unpack(data)}))
    wire.comes("server", {NUMBER: b"1", METHOD: "query"}, pack({"x": b"abc"}))
    ((name, reply),) = wire.sent
    assert (name, reply.get_header(NUMBER)) == ("server", b"1")
    assert unpack(reply.payload) == {"method": "query", "x": b"abc"}
    assert not said
    wire.broken = True
    wire.comes("server", {NUMBER: b"2", METHOD: "query"}, pack({}))  # the hub has gone meanwhile


def test_nobody_but_the_hub_is_answered() -> None:
    asked = list[str]()
    wire, said = site(lambda method, data: asked.append(method) or pack({}))  # type: ignore[func-returns-value]
    wire.comes("mallory", {NUMBER: b"1", METHOD: "query"}, pack({}))
    assert not wire.sent
    assert not asked
    assert said == ["a message of 'mallory' was not taken (quick): nobody but the hub may call a site"]
    for headers in (None, {}, {NUMBER: 1, METHOD: "query"}, {NUMBER: b"1"}, {NUMBER: b"1", METHOD: 3}):
        wire.comes("server", headers, pack({}))
    assert not asked
    assert said[1:] == ["a message of 'server' was not taken (quick): it is no call"]


def test_whatever_names_are_claimed_one_line_a_minute_is_said_of_who_is_at_the_other_end() -> None:
    said = list[str]()
    untaken = Untaken(said.append)
    for k in range(1000):
        untaken("mallory" if k % 2 else f"mallory.{k}", f"{k}" * 100, "quick", "why")
    untaken("east", "west", "quick", "why")
    assert len(said) == 2
    assert all(len(line) < 200 for line in said)
    assert len(untaken._said) == 2
