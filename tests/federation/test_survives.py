"""Rounds that survive: sites killed and restarted, connections cut, a hub stopped or killed; the result is the same."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedroute.federation.hub import Hub
from fedroute.federation.inprocess import InProcess
from fedroute.federation.transport import Payload
from tests.federation.federations import wait_for
from tests.federation.whole import ROWS, Whole, config

PRIVATE = {"name": "pfedme", "private": ["norm"]}


def at(whole: Whole, client: str, method: str, n: int, do: Callable[[], Any]) -> None:
    """`do` happens, once, when a site is asked for the n-th time."""
    site, asked = whole.sites[client], [0]

    def through(what: str, payload: Payload) -> Payload:
        asked[0] += what == method
        if what == method and asked[0] == n:
            do()
        return site(what, payload)

    whole.network.plug(client, through)


@pytest.mark.parametrize("answered", [False, True], ids=["before it trains", "when it has trained"])
def test_a_cut_in_the_middle_of_a_round_changes_nothing(answered: bool, tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(PRIVATE)
    whole.network.cut("north", "train", answered=answered, back=0.3)
    whole.network.cut("west", "agree", answered=answered, back=0.1)
    whole.network.cut("east", "judge", answered=answered, back=0.1)
    there = whole.hub(made).run()
    assert there["weights_sha256"] == whole.simulated(made)["weights_sha256"]
    assert there["quarantined"] == []
    assert any("north: the connection is gone; train goes on" in text for text in whole.said)
    if answered:  # it does not train a second time
        assert sum("the update of round 1:" in text for text in whole.heard["north"]) == 1


def test_a_site_killed_and_restarted_in_mid_round_comes_back_with_its_private_weights(tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(PRIVATE, rounds=4)

    def kill() -> None:  # what it has begun ends after that, and nobody hears of it
        whole.restart("north")

    at(whole, "north", "train", 3, kill)
    there = whole.hub(made).run()
    assert there["weights_sha256"] == whole.simulated(made)["weights_sha256"]
    assert there["quarantined"] == []


def test_trees_larger_than_a_piece_survive_a_cut_in_mid_transfer(tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(PRIVATE, {"chunk": 4096}, rounds=2)
    made = made.model_copy(update={"model": {"name": "mlp_bn", "hidden": [600]}})
    whole.network.cut("north", "put", back=0.2)
    whole.network.cut("north", "get", answered=True, back=0.2)
    whole.network.cut("east", "get", back=0.2)
    there = whole.hub(made).run()
    assert whole.network.calls["north", "put"] > 5
    assert whole.network.calls["north", "get"] > 5
    assert there["weights_sha256"] == whole.simulated(made)["weights_sha256"]


def test_a_hub_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(PRIVATE, rounds=5, checkpoint_every=3)
    hub = whole.hub(made)
    hub.progress = lambda phase, done, rounds, line: whole.stop.set() if done == 2 else None
    with pytest.raises(KeyboardInterrupt):
        hub.run()
    whole.stop.clear()
    there = whole.hub(made).run()
    assert any("going on after round 2" in text for text in whole.said)
    assert there["weights_sha256"] == whole.simulated(made)["weights_sha256"]
    assert there["rounds"] == 5


class Killed(BaseException):
    """As kill -9: nothing is saved."""


@pytest.mark.parametrize(("checkpoint_every", "last"), [(3, 3), (5, 0)])
def test_a_hub_that_was_killed_goes_on_from_its_checkpoint_and_sites_from_theirs(
    checkpoint_every: int, last: int, tmp_path: Path
) -> None:
    whole, made = Whole(tmp_path), config(PRIVATE, rounds=5, checkpoint_every=checkpoint_every)
    hub = whole.hub(made)

    def killed(phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        if done == 4:
            raise Killed

    hub.progress = killed
    with pytest.raises(Killed):
        hub.run()
    whole.restart("east")  # a site may be restarted meanwhile
    network = InProcess(dict(whole.sites))
    there = whole.hub(made, network).run()
    assert any("going on after round 3" in text for text in whole.said) == (last == 3)
    assert there["weights_sha256"] == whole.simulated(made)["weights_sha256"]
    kept = list((tmp_path / "east").glob("runs/*/private/*.safetensors"))
    assert len(kept) <= 5


def test_a_hub_that_was_stopped_while_sites_trained_alone_goes_on(tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(rounds=2)
    hub = whole.hub(made)

    def killed(phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        if phase == "alone" and done:
            raise Killed

    hub.progress = killed
    with pytest.raises(Killed):
        hub.run()
    there, here = whole.hub(made).run(), whole.simulated(made)
    assert there["weights_sha256"] == here["weights_sha256"]
    assert there["accuracy"] == here["accuracy"]


def test_a_site_may_leave_for_good_and_the_others_go_on(tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(rounds=4)
    hub = whole.hub(made)
    hub.progress = lambda phase, done, rounds, line: whole.sites["south"].leave() if done == 2 else None
    there = hub.run()
    assert there["rounds"] == 4
    assert there["hub"]["left"] == ["south"]
    assert sorted(there["weights_sha256"]["clients"]) == ["east", "north", "west"]
    assert {q["client"] for q in there["quarantined"]} == {"south"}
    assert len(there["quarantined"]) == 1  # asked once, and then no more
    assert any("south has left the federation for good" in text for text in whole.said)
    assert [c["name"] for c in there["clients"]] == ["east", "north", "west"]
    whole.restart("south")
    assert whole.sites["south"]("hello", {})["state"] == "left"


def test_a_round_waits_until_a_quorum_is_here(tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(rounds=3, quorum=1.0)
    hub = whole.hub(made)

    def waits() -> bool:
        return any("waiting until 4 are" in text for text in whole.said)

    def back() -> None:
        wait_for(waits)
        whole.network.plug("east")

    def gone(phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        if phase == "train" and done == 1:
            whole.network.unplug("east")
            threading.Thread(target=back, daemon=True).start()

    hub.progress = gone
    there = hub.run()
    assert waits()
    assert there["void_rounds"] == []
    assert there["weights_sha256"] == whole.simulated(made)["weights_sha256"]


def test_the_state_is_told_while_it_runs(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    hub: Hub = whole.hub(config(rounds=2))
    seen: list[dict[str, Any]] = []
    hub.progress = lambda phase, done, rounds, line: seen.append(hub.status())
    assert hub.status()["phase"] == "waiting"
    hub.run()
    assert seen[0]["phase"] == "training"
    assert [s["round"] for s in seen][:2] == [1, 2]
    assert [s["state"] for s in seen[0]["sites"]] == ["here"] * len(ROWS)
