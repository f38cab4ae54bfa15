"""Sites that send what they must not, or do not answer: left out with client and reason, and the others go on."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute.federation import wire
from fedroute.federation.site import Site
from fedroute.federation.transport import Payload, Refused
from fedroute.tree import Tree, tree_map
from tests.federation.federations import wait_for
from tests.federation.lateness import Only
from tests.federation.whole import Whole, config

DEADLINE = 1.0
Twist = Callable[[Payload], Payload]


def twisted(whole: Whole, client: str, method: str, twist: Twist) -> None:
    """What this site answers to `method` is another thing."""
    site = whole.sites[client]
    whole.network.plug(client, lambda m, p: twist(site(m, p)) if m == method else site(m, p))


def tree(change: Callable[[Tree], Tree]) -> Twist:
    def twist(reply: Payload) -> Payload:
        data = reply["update"]
        assert isinstance(data, bytes)
        return reply | {"update": wire.encode(change(wire.decode(data)))}

    return twist


def put(**more: Any) -> Twist:
    return lambda reply: {k: v for k, v in (reply | more).items() if v != "gone"}


def nan(t: Tree) -> Tree:
    return tree_map(lambda v: v * torch.nan if v.is_floating_point() else v, t)


def refused(reply: Payload) -> Payload:
    raise Refused("I will not")


FAULTS: dict[str, tuple[Twist, str]] = {
    "NaN": (tree(nan), r"dw/.* has NaN or Inf"),
    "a wrong shape": (tree(lambda t: tree_map(lambda v: v.reshape(-1, 1), t)), r"no update: dw/.* has shape"),
    "another type": (tree(lambda t: tree_map(lambda v: v.double(), t)), r"no update: dw/.* is torch.float64, declared"),
    "an undeclared tensor": (tree(lambda t: t | {"rows": torch.zeros(9)}), "no update: sent the undeclared rows"),
    "a lacking tensor": (tree(lambda t: {"dw": dict(list(t["dw"].items())[1:])}), "no update: lacks dw/"),
    "an absurd value": (tree(lambda t: tree_map(lambda v: v + 10**7, t)), r"dw/.* has a value of 1e\+07, beyond"),
    "garbage": (put(update=b"\x80\x04garbage" * 99), "no update: not safetensors"),
    "nothing": (put(update=b""), "no update: not safetensors"),
    "text": (put(update="dw"), "no update: size: None is no count"),
    "too much": (put(update="gone", update_id="a" * 64, size=1 << 40), "no update: 1,099,511,627,776 bytes, and"),
    "a transfer that is not there": (put(update="gone", update_id="a" * 64, size=9), "no update: transfer aaaaaaa"),
    "a folder as transfer": (put(update="gone", update_id="../../x", size=9), "no update: a transfer is named by"),
    "too many steps": (put(steps=10**6), "claims 1000000 steps, asked for"),
    "no count of steps": (put(steps="many"), "no update: steps: 'many' is no count"),
    "negative steps": (put(steps=-1), "no update: steps: -1 is no count"),
    "no loss": (put(loss="low"), "no update: loss and quality are numbers"),
    "a version that is none": (put(version=None), "no update: version: None is no count"),
    "a message that is too long": (put(padding=bytes(17 << 20)), "no update: a message of"),
    "a refusal": (refused, "no update: I will not"),
}  # fmt: skip


QUICK: dict[str, Any] = {"rounds": 2, "alone": False, "evaluate_every": 2}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run in which north never trains."""
    whole = Whole(tmp_path_factory.mktemp("without"))
    twisted(whole, "north", "train", refused)
    return whole.hub(config(**QUICK)).run()


@pytest.mark.parametrize("name", FAULTS)
def test_what_must_not_be_sent_is_left_out_with_client_and_reason(
    name: str, tmp_path: Path, without: dict[str, Any]
) -> None:
    twist, why = FAULTS[name]
    whole = Whole(tmp_path)
    twisted(whole, "north", "train", twist)
    found = whole.hub(config(**QUICK)).run()
    assert [(q["round"], q["client"]) for q in found["quarantined"]] == [(1, "north"), (2, "north")]
    for q in found["quarantined"]:
        assert re.search(why, q["reason"]), q["reason"]
    assert found["void_rounds"] == []
    assert found["weights_sha256"]["server"] == without["weights_sha256"]["server"]  # it left no trace


def test_a_site_does_not_send_what_it_must_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedroute.algorithms.fedavg import FedAvg
    from fedroute.core import Algorithm

    def broken(self: Algorithm, carry: Tree, ctx: Any) -> tuple[Tree, Tree]:
        update, private = Algorithm.end(self, carry, ctx)
        return (nan(update), private) if int(ctx.client) == 1 and ctx.steps else (update, private)

    monkeypatch.setattr(FedAvg, "end", broken)
    whole = Whole(tmp_path)
    found = whole.hub(config(rounds=1, alone=False)).run()
    (q,) = found["quarantined"]
    assert q["client"] == "north"
    assert q["reason"].startswith("no update: would send what it must not: dw/")
    assert any("sends nothing: dw/" in text for text in whole.heard["north"])


def test_a_hub_that_sends_what_it_must_not_is_refused(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.hub(config(rounds=1, alone=False)).run()
    site: Site = whole.sites["north"]
    order: Payload = {"round": 1, "base": 1, "seed": 0, "lr": 0.1, "judged": False, "chunk": 1 << 20}
    for server, why in {
        wire.encode({"w": {"0.weight": torch.zeros(2)}}): "what the server sent is refused: lacks",
        b"import os": "refused: not safetensors",
    }.items():
        with pytest.raises(Refused, match=why):
            site("train", order | {"server": server})
    with pytest.raises(Refused, match="neither bytes nor the name"):
        site("train", order)
    wrongs: tuple[Payload, ...] = ({"lr": "x"}, {"lr": float("nan")}, {"round": -1}, {"base": None}, {"seed": 0.5})
    for wrong in wrongs:
        with pytest.raises(Refused):
            site("train", order | {"server": b""} | wrong)
    with pytest.raises(Refused, match="at most"):
        site("put", {"id": "a" * 64, "offset": 0, "size": 1 << 30, "data": b"x"})  # no model of this run has so much
    for method in ("shell", "__class__", "eval", ""):
        with pytest.raises(Refused):
            site(method, {"server": b"", "id": "x"})


def gone_while_training(whole: Whole, client: str) -> None:
    site = whole.sites[client]

    def through(method: str, payload: Payload) -> Payload:
        if method == "train" and payload["round"] == 0:
            whole.network.unplug(client)
        return site(method, payload)

    whole.network.plug(client, through)


def test_a_site_killed_in_mid_round_is_left_out_and_nobody_waits_long(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    gone_while_training(whole, "north")
    hub = whole.hub(config(hub={"deadline": 600.0, "away": 0.3}, **QUICK))
    back = hub.progress

    def came_back(phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        back(phase, done, rounds, line)
        whole.network.plug("north", whole.sites["north"])

    hub.progress = came_back
    (q,) = hub.run()["quarantined"]
    assert (q["round"], q["client"]) == (1, "north")
    assert "its connection has been gone for" in q["reason"]


def test_a_site_that_came_back_is_waited_for_while_it_trains(tmp_path: Path) -> None:
    """The connection breaks, and is back before the others are done; then the site takes longer than `away` to
    train."""
    whole, back = Whole(tmp_path), threading.Event()

    def through(client: str, site: Site) -> Callable[[str, Payload], Payload]:
        def answer(method: str, payload: Payload) -> Payload:
            if method == "train" and payload["round"] == 0:
                if client == "north":
                    back.set()
                    time.sleep(1.0)
                elif client == "east":
                    assert back.wait(60)
            return site(method, payload)

        return answer

    for client, site in whole.sites.items():
        whole.network.plug(client, through(client, site))
    whole.network.cut("north", "train", back=0.1)
    found = whole.hub(config(hub={"away": 0.4}, **QUICK)).run()
    assert found["quarantined"] == []


def test_a_site_slower_than_the_deadline_is_left_out_and_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, ended = Whole(tmp_path), threading.Event()
    Only(monkeypatch, "north")
    site = whole.sites["north"]

    def slow(method: str, payload: Payload) -> Payload:
        if method == "train":
            ended.wait(600)  # who waited for it would hear of no round before
        return site(method, payload)

    whole.network.plug("north", slow)
    hub = {"deadline": DEADLINE, "away": 0.3}
    found = whole.hub(config(hub=hub, **QUICK)).run()
    ended.set()
    assert [(q["round"], q["client"]) for q in found["quarantined"]] == [(1, "north"), (2, "north")]
    assert {q["reason"] for q in found["quarantined"]} == {f"no answer within {DEADLINE:g} s"}
    assert found["void_rounds"] == []
    wait_for(lambda: whole.network.calls["north", "cancel"] >= 2)  # each is told by a thread of its own
    assert whole.network.calls["north", "cancel"] == 2


def test_a_site_that_freezes_holds_nobody_up_longer_than_the_deadline_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers nothing any more, and its connection stays."""
    whole, thaw, only = Whole(tmp_path), threading.Event(), Only(monkeypatch)
    site = whole.sites["north"]

    def frozen(method: str, payload: Payload) -> Payload:
        if method in ("train", "cancel", "judge", "alone", "hash", "serve"):
            only.names.add("north")
            thaw.wait(600)
        return site(method, payload)

    whole.network.plug("north", frozen)
    found = whole.hub(config(hub={"deadline": 1.0, "wait": 2.5, "answer_timeout": 1.0}, rounds=2)).run()
    assert not thaw.is_set()
    thaw.set()
    assert [(q["round"], q["client"]) for q in found["quarantined"]] == [(1, "north"), (2, "north")]
    assert list(found["hub"]["silent"]) == ["north"]
    assert sorted(found["weights_sha256"]["clients"]) == ["east", "south", "west"]
    assert [c["name"] for c in found["clients"]] == ["east", "south", "west"]
    assert any("evaluated without north" in text for text in whole.said)


def test_where_nobody_answers_well_the_rounds_are_void_and_nothing_changes(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    for client in list(whole.sites):
        twisted(whole, client, "train", tree(nan))
    found = whole.hub(config(**QUICK)).run()
    assert found["void_rounds"] == [1, 2]
    assert len(found["quarantined"]) == 8
    (tmp_path / "other").mkdir()
    never = Whole(tmp_path / "other")
    for client in list(never.sites):
        twisted(never, client, "train", refused)
    assert never.hub(config(**QUICK)).run()["weights_sha256"] == found["weights_sha256"]


def test_what_is_the_same_each_round_is_said_once_and_how_often_at_the_end(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.network.start()
    twisted(whole, "west", "train", tree(nan))
    hub = whole.hub(config())
    there = hub.run()
    assert [q["round"] for q in there["quarantined"]] == [1, 2, 3]
    assert len([text for text in whole.said if "west left out" in text]) == 1
    assert any(text.startswith("west was left out of 3 of 3 rounds, at last: ") for text in whole.said)
    words = {s["client"]: s["words"] for s in hub.status()["sites"]}
    assert words.pop("west").startswith("left out of 3 of 3 rounds")
    assert {*words.values()} == {""}
