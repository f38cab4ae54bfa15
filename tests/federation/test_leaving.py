"""Sites that leave for good: nobody is sent to them any more, and there is a way back."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedroute.config import Config
from fedroute.errors import RunFailed
from fedroute.federation.asking import LEFT
from fedroute.federation.hub import Hub
from fedroute.federation.inprocess import InProcess
from fedroute.federation.left_file import come_back, left
from fedroute.federation.transport import Payload, Refused
from fedroute.router.guide import Guide
from fedroute.router.spec import RouterSpec
from tests.federation.federations import wait_for
from tests.federation.whole import ROWS, Whole, config

PRIVATE = {"name": "pfedme", "private": ["norm"]}


def routed() -> Config:
    return config(PRIVATE, rounds=2).model_copy(update={"router": RouterSpec(kind="lda", abstain=None)})


def state(hub: Hub, client: str) -> dict[str, Any]:
    return next(s for s in hub.status()["sites"] if s["client"] == client)


def test_one_that_leaves_after_the_run_is_gone_everywhere_also_after_a_restart_and_may_come_back(
    tmp_path: Path,
) -> None:
    whole = Whole(tmp_path)
    hub = whole.hub(routed())
    hub.run()
    assert hub.clients() == tuple(sorted(ROWS))
    whole.network.unplug("south")
    whole.sites["south"].leave()
    told = left(tmp_path / "south")
    assert told is not None
    assert not told.heard
    whole.network.plug("south", whole.site("south"))  # its process starts anew, to say so
    wait_for(lambda: (found := left(tmp_path / "south")) and found.heard)
    others = ("east", "north", "west")
    wait_for(lambda: hub.clients() == others)
    wait_for(lambda: (guide := hub.guide()) is not None and guide.clients == others)  # of two that hear it one makes it
    assert Guide.load(tmp_path / "run" / "guide.safetensors").clients == hub.clients() == others
    assert state(hub, "south") == {"client": "south", "here": False, "state": LEFT, "words": ""}

    whole.network.close()  # the hub's process ends
    answered, site = list[str](), whole.sites["south"]

    def south(method: str, payload: Payload) -> Payload:
        reply = site(method, payload)
        answered.append(method)
        return reply

    network = InProcess(whole.sites | {"south": south})
    again = Hub(routed(), tmp_path / "run", network, log=whole.said.append)
    kept = again.guide()
    assert kept is not None
    assert kept.clients == again.clients() == others
    again.run()
    assert state(again, "south")["state"] == LEFT
    wait_for(lambda: "leave" in answered)

    network.unplug("south")
    come_back(tmp_path / "south")  # what `site join` does with a new approval
    network.plug("south", whole.site("south"))
    wait_for(lambda: state(again, "south")["words"] == "has joined after the run")
    wait_for(lambda: (now := again.guide()) is not None and "south" in now.clients)
    assert whole.sites["south"]("hello", {})["state"] == "serving"
    assert state(again, "south") == {
        "client": "south", "here": True, "state": "here", "words": "has joined after the run",
    }  # fmt: skip
    assert json.loads((tmp_path / "run" / "joined.json").read_text())["south"]["entry"]["newcomer"] is True
    assert again.clients() == tuple(sorted(ROWS))


def test_one_that_left_while_the_hub_was_away_is_heard_of_when_it_starts(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.hub(routed()).run()
    whole.network.close()  # as the hub's process ends: what it still asks after a run is not answered
    whole.sites["south"].leave()
    hub = Hub(routed(), tmp_path / "run", InProcess(dict(whole.sites)), log=whole.said.append)
    assert "south" in hub.clients()
    hub.run()
    wait_for(lambda: "south" not in hub.clients())
    wait_for(lambda: (found := left(tmp_path / "south")) and found.heard)


def test_a_run_does_not_begin_with_one_that_has_left(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.sites["south"].leave()
    with pytest.raises(RunFailed, match=r"south has left the federation for good: take it out of hub\.sites"):
        whole.hub(config(rounds=1)).run()
    found = left(tmp_path / "south")
    assert found is not None
    assert found.heard


def test_a_hub_cannot_make_a_site_leave(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    with pytest.raises(Refused, match="only the owner"):
        whole.sites["east"]("leave", {})
    assert left(tmp_path / "east") is None


@pytest.mark.parametrize("spec", [{}, {"late": "use"}, {"asynchronous": {"buffer": 3}}])
def test_who_leaves_in_mid_round_is_neither_waited_for_nor_asked_again_where_it_comes_back(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    """It leaves while it trains, and is there again, approved anew, before the others are done with that round."""
    whole, back, asked = Whole(tmp_path), threading.Event(), list[str]()
    south, east = whole.sites["south"], whole.sites["east"]

    def again(method: str, payload: Payload) -> Payload:
        asked.append(method)
        return whole.sites["south"](method, payload)

    def leaves_and_comes_back() -> None:
        south.leave()
        whole.network.unplug("south")
        whole.network.plug("south", whole.site("south"))
        wait_for(lambda: any("south has left the federation for good" in line for line in whole.said))
        whole.network.unplug("south")
        come_back(tmp_path / "south")
        whole.site("south")
        whole.network.plug("south", again)
        wait_for(lambda: "hello" in asked)
        time.sleep(0.3)  # in which a call that looks out for it would be made again
        back.set()

    def leaving(method: str, payload: Payload) -> Payload:
        if method == "train" and payload["round"] == 1:
            threading.Thread(target=leaves_and_comes_back, daemon=True).start()
            back.wait(120)
        return south(method, payload)

    def waiting(method: str, payload: Payload) -> Payload:
        if method == "train" and payload["round"] == 1:
            assert back.wait(120)
        return east(method, payload)

    whole.network.plug("south", leaving)
    whole.network.plug("east", waiting)
    hub = whole.hub(config(rounds=4, hub={"away": 600.0, "deadline": 600.0} | spec))
    found = hub.run()
    assert found["rounds"] == 4
    assert found["hub"]["left"] == ["south"]
    assert "train" not in asked
    if not spec:
        assert [(q["round"], q["client"], q["reason"]) for q in found["quarantined"]] == [
            (2, "south", "no answer: it has left in mid-round")
        ]


def test_one_that_is_approved_anew_and_not_accepted_by_its_owner_has_not_left(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    hub = whole.hub(routed())
    hub.run()
    whole.network.unplug("south")
    whole.sites["south"].leave()
    whole.network.plug("south", whole.site("south"))
    wait_for(lambda: state(hub, "south")["state"] == LEFT)
    whole.network.unplug("south")
    come_back(tmp_path / "south")
    whole.network.plug("south", whole.site("south", accept=""))
    wait_for(lambda: "not accepted yet" in state(hub, "south")["words"])
    assert state(hub, "south")["state"] == "here"
    assert state(hub, "south")["here"] is True
    whole.stop.set()
