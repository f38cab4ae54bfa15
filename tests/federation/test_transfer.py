"""Large trees in pieces: they arrive whole or not at all, and after a break nothing is sent twice."""

import hashlib
import threading
from pathlib import Path

import pytest

from fedroute.federation.inprocess import InProcess
from fedroute.federation.patience import Caller, Patience
from fedroute.federation.transfer import Spool, pull, push
from fedroute.federation.transport import Away, Handler, Late, Payload, Refused

DATA = bytes(range(256)) * 40  # 10,240 bytes: 11 pieces of 1,000
ID = hashlib.sha256(DATA).hexdigest()


def network(handler: Handler) -> InProcess:
    made = InProcess({"a": handler})
    made.start()
    return made


def caller(net: InProcess, seconds: float | None = 600.0, timeout: float = 60.0) -> Caller:
    return Caller(net, "a", Patience(seconds), timeout)


@pytest.mark.parametrize("source", ["bytes", "file", "empty"])
def test_what_is_pushed_can_be_pulled(source: str, tmp_path: Path) -> None:
    data = b"" if source == "empty" else DATA
    (tmp_path / "file").write_bytes(data)
    id, site = hashlib.sha256(data).hexdigest(), Spool(tmp_path / "site")
    net = network(site.handle)
    assert push(caller(net), tmp_path / "file" if source == "file" else data, id, 1000) == len(data)
    assert site.complete(id).read_bytes() == data
    assert pull(caller(net), id, len(data), tmp_path / "hub", 1000).read_bytes() == data
    assert push(caller(net), data, id, 1000) == 0 or not data  # it is there already
    assert net.calls["a", "put"] == (11 if data else 2)


@pytest.mark.parametrize("answered", [False, True], ids=["before it came", "after it came"])
def test_after_a_cut_it_goes_on_from_where_the_other_side_is(answered: bool, tmp_path: Path) -> None:
    site = Spool(tmp_path / "site")
    net = network(site.handle)
    net.cut("a", "put", answered=answered, back=0.2)
    net.cut("a", "have", back=0.1)
    sent = push(caller(net), DATA, ID, 1000)
    assert site.complete(ID).read_bytes() == DATA
    assert sent == len(DATA)
    assert net.down["a"] < len(DATA) + 3000  # at most one piece twice, and what frames them
    net.cut("a", "get", answered=answered, back=0.2)
    assert pull(caller(net), ID, len(DATA), tmp_path / "hub", 1000).read_bytes() == DATA
    assert net.calls["a", "get"] == 12


def test_a_site_that_was_restarted_goes_on_with_what_is_on_its_disk(tmp_path: Path) -> None:
    net = network(Spool(tmp_path / "site").handle)
    net.cut("a", "put", back=None)
    net.cut("a", "put", back=None)

    def restarted(node: str, here: bool) -> None:
        if not here:
            threading.Timer(0.2, lambda: net.plug("a", Spool(tmp_path / "site").handle)).start()

    net.on_change(restarted)
    assert push(caller(net), DATA, ID, 1000) == len(DATA)
    assert Spool(tmp_path / "site").complete(ID).read_bytes() == DATA


def test_one_that_does_not_come_back_is_given_up_in_time(tmp_path: Path) -> None:
    net = network(Spool(tmp_path / "site").handle)
    net.cut("a", "put", back=None)
    with pytest.raises((Away, Late)):
        push(caller(net, 0.5), DATA, ID, 1000)
    ended = Patience()
    asks = Caller(net, "a", ended, 60.0, log=lambda text: threading.Timer(0.2, ended.end).start())  # once it is gone
    with pytest.raises((Away, Late)):
        push(asks, DATA, ID, 1000)
    assert asks.gone_since > 0


def test_one_that_is_gone_for_longer_than_away_is_given_up_whatever_patience_is_left(tmp_path: Path) -> None:
    net = network(Spool(tmp_path / "site").handle)
    net.cut("a", "put", back=None)
    with pytest.raises(Away):
        push(Caller(net, "a", Patience(), away=0.3), DATA, ID, 1000)


def test_a_site_that_closes_to_start_anew_is_asked_again() -> None:
    said = [Refused("round 3 was stopped"), Refused("a is closing: train was stopped")]

    def site(method: str, payload: Payload) -> Payload:
        if said:
            raise said.pop()
        return {"done": True}

    assert caller(network(site)).ask("train", {}) == {"done": True}
    said += [Refused("was stopped")] * 99
    ended = Patience()
    ended.end()
    with pytest.raises((Late, Refused)):
        Caller(network(site), "a", ended).ask("train", {})


def test_bytes_that_changed_on_the_way_are_thrown_away(tmp_path: Path) -> None:
    site = Spool(tmp_path / "site")

    def wrong(method: str, payload: Payload) -> Payload:
        data = payload.get("data")
        return site.handle(method, payload | ({"data": data[::-1]} if isinstance(data, bytes) else {}))

    with pytest.raises(Refused, match="not those of its name"):
        push(caller(network(wrong)), DATA, ID, 5000)
    assert site.have(ID) == 0
    site.add(DATA)
    net = network(lambda m, p: {k: v[::-1] if isinstance(v, bytes) else v for k, v in site.handle(m, p).items()})
    with pytest.raises(Refused, match="not those of its name"):
        pull(caller(net), ID, len(DATA), tmp_path / "hub", 1000)


@pytest.mark.parametrize(
    ("method", "payload", "why"),
    [
        ("put", {"id": "../../etc/passwd", "offset": 0, "size": 1, "data": b"x"}, "64 digits"),
        ("get", {"id": ID.upper(), "offset": 0, "length": 9}, "64 digits"),
        ("put", {"id": ID, "offset": 0, "size": 1 << 50, "data": b"x"}, "at most 5,000"),
        ("put", {"id": ID, "offset": 0, "size": 3, "data": b"xxxx"}, "more bytes than the 3"),
        ("put", {"id": ID, "offset": -1, "size": 3, "data": b"x"}, "offset: -1 is no count"),
        ("put", {"id": ID, "offset": 0, "size": 3, "data": "x"}, "data are bytes"),
        ("get", {"id": ID, "offset": 0, "length": 9}, "not here"),
        ("get", {"id": ID, "offset": True, "length": 9}, "no count"),
    ],
)
def test_what_makes_no_sense_is_refused(method: str, payload: Payload, why: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=why):
        Spool(tmp_path, most=5000).handle(method, payload)
    assert not list(tmp_path.iterdir())


def test_a_site_that_sends_other_sizes_is_refused(tmp_path: Path) -> None:
    net = network(lambda m, p: {"data": b"x", "size": 9})
    with pytest.raises(Refused, match="not what was asked for"):
        pull(caller(net), ID, len(DATA), tmp_path, 1000)
