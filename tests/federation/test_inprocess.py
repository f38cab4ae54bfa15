"""The network inside one process behaves as a real one: calls end when connections break, and are counted."""

import threading
import time

import pytest

from fedroute.federation.inprocess import InProcess
from fedroute.federation.transport import Away, Late, Payload, Refused, size


def echo(method: str, payload: Payload) -> Payload:
    if method == "refuse":
        raise Refused("no")
    if method == "break":
        raise KeyError("x")
    return payload | {"method": method}


def network() -> InProcess:
    made = InProcess({"b": echo, "a": echo})
    made.start()
    return made


def test_sites_answer_or_refuse_and_bytes_are_counted() -> None:
    net = network()
    assert net.nodes() == ("a", "b")
    reply = net.call("a", "say", {"x": b"123", "n": 1}, 60)
    assert reply == {"x": b"123", "n": 1, "method": "say"}
    assert net.down["a"] == size({"x": b"123", "n": 1})
    assert net.up["a"] == size(reply)
    assert (net.up["b"], net.calls["a", "say"]) == (0, 1)
    with pytest.raises(Refused, match=r"^no$"):
        net.call("a", "refuse", {}, 60)
    with pytest.raises(Refused, match="KeyError"):
        net.call("a", "break", {}, 60)
    with pytest.raises(Refused, match="scalars and bytes"):
        net.call("a", "say", {"x": [1]}, 60)  # type: ignore[dict-item]
    with pytest.raises(Away):
        net.call("c", "say", {}, 60)


def test_a_call_ends_at_once_when_the_site_goes() -> None:
    go, heard, seen = threading.Event(), threading.Event(), list[tuple[str, bool]]()

    def site(method: str, payload: Payload) -> Payload:
        heard.set()
        return {"done": go.wait(600)}

    def gone() -> None:
        assert heard.wait(60)
        net.unplug("a")

    net = InProcess({"a": site})
    net.on_change(lambda node, here: seen.append((node, here)))
    net.start()
    going = threading.Thread(target=gone, daemon=True)
    going.start()
    with pytest.raises(Away, match="broke"):
        net.call("a", "train", {}, 600)
    going.join(60)  # it has told of it
    assert net.nodes() == ()
    net.plug("a")
    go.set()
    assert net.call("a", "train", {}, 60) == {"done": True}
    net.close()
    assert seen == [("a", True), ("a", False), ("a", True), ("a", False)]


def test_a_slow_site_is_late_and_others_are_not() -> None:
    net = network()
    net.delay["a"] = 600.0
    with pytest.raises(Late, match=r"a has not answered say within 0\.1 s"):
        net.call("a", "say", {}, 0.1)
    assert net.call("b", "say", {}, 60)
    net.close()


def test_cuts_are_before_or_after_the_site_has_heard() -> None:
    heard: list[str] = []

    def site(method: str, payload: Payload) -> Payload:
        heard.append(method)
        return {"n": len(heard)}

    net = InProcess({"a": site})
    net.start()
    net.cut("a", "say")
    net.cut("a", "other", answered=True, back=None)
    with pytest.raises(Away):
        net.call("a", "say", {}, 60)
    assert heard == []
    while "a" not in net.nodes():
        time.sleep(0.01)
    with pytest.raises(Away):
        net.call("a", "other", {}, 60)
    assert heard == ["other"]
    with pytest.raises(Away):
        net.call("a", "say", {}, 60)
    net.plug("a")
    assert net.call("a", "say", {}, 60)
