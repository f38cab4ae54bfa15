"""A site that gives no answer when the run ends: told, and let in again when it comes."""

import json
import shutil
from pathlib import Path

import pytest

from fedroute.federation.hub import IN_AGAIN
from fedroute.federation.inprocess import InProcess
from fedroute.federation.same_rows import NOT_NOW
from fedroute.federation.transport import Handler, Payload, Refused
from fedroute.router.spec import RouterSpec
from tests.federation.federations import wait_for
from tests.federation.test_leaving import PRIVATE, state
from tests.federation.whole import ROWS, Whole, config


def test_one_that_was_silent_at_the_end_is_told_of_and_let_in_when_it_comes(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    site = whole.sites["south"]

    def south(method: str, payload: Payload) -> Payload:
        if method == "judge" and payload.get("what") == "ledger":
            raise Refused("the data have changed since the agreement")
        return site(method, payload)

    whole.replace("south", south)
    routed = config("fedavg", alone=False).model_copy(update={"router": RouterSpec(kind="lda")})
    hub = whole.hub(routed)
    found = hub.run()
    assert "south" in found["hub"]["silent"]
    why = "is not let in: no site answers any more (south: judge: the data have changed"
    wait_for(lambda: why in state(hub, "south")["words"])  # it is tried again at once
    guide = hub.guide()
    assert guide is not None
    assert "south" not in guide.clients

    whole.network.close()  # as its process ends
    network = InProcess({c: s for c, s in whole.sites.items() if c != "south"})
    again = whole.hub(routed, network)  # the hub starts anew, and the site is not there
    again.run()
    assert "gave no answer when the run ended (judge: the data have changed" in state(again, "south")["words"]
    network.plug("south", whole.site("south"))  # the data are back, and it starts anew
    wait_for(lambda: state(again, "south")["words"] == IN_AGAIN)
    guide = again.guide()
    assert guide is not None
    assert {*guide.clients} == {*ROWS}
    joined = json.loads((tmp_path / "run" / "joined.json").read_text())["south"]
    assert joined["entry"]["newcomer"] is False
    assert any("south took part in the run" in text and "with what it trained" in text for text in whole.said)
    assert not any("takes part in no round" in text for text in whole.said)
    network.close()


def loses_its_file(whole: Whole) -> tuple[Handler, Path, Path]:
    """South, which starts anew without its file as soon as it is to train alone; the file, and where it has gone."""
    site, file, gone = whole.sites["south"], whole.root / "south.csv", whole.root / "gone.csv"

    def south(method: str, payload: Payload) -> Payload:
        if method == "alone" and not gone.exists() and whole.sites["south"] is site:
            file.rename(gone)
            site.close()
            whole.site("south")
        return whole.sites["south"](method, payload)

    return south, file, gone


def test_one_whose_data_are_away_for_a_while_at_the_end_keeps_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has started anew without them, and they come back within hub.away."""
    monkeypatch.setattr("fedroute.federation.site.AGAIN", 0.0)
    whole, made = Whole(tmp_path), config(PRIVATE, rounds=2, hub={"away": 60.0})
    site, file, gone = loses_its_file(whole)

    def south(method: str, payload: Payload) -> Payload:
        try:
            return site(method, payload)
        except Refused as e:
            if NOT_NOW in str(e) and gone.exists():
                gone.rename(file)
            raise

    whole.replace("south", south)
    found = whole.hub(made).run()
    assert f"south: alone: {NOT_NOW}; it is asked again for at most 60 s" in whole.said
    assert "silent" not in found["hub"]
    assert found["weights_sha256"] == whole.simulated(made)["weights_sha256"]
    assert [c["better_off"] for c in found["clients"]] == [
        c["better_off"] for c in json.loads((tmp_path / "simulated" / "summary.json").read_text())["clients"]
    ]


def test_data_that_stay_away_are_waited_for_no_longer_than_hub_away_and_it_is_let_in_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its trained weights, and without a restart of anybody."""
    monkeypatch.setattr("fedroute.federation.hub.SOONEST", 0.05)
    monkeypatch.setattr("fedroute.federation.hub.LONGEST", 0.05)
    monkeypatch.setattr("fedroute.federation.site.AGAIN", 0.0)
    whole, made = Whole(tmp_path), config(PRIVATE, rounds=2, hub={"away": 0.1})
    south, file, gone = loses_its_file(whole)
    whole.replace("south", south)
    hub = whole.hub(made)
    assert hub.run()["hub"]["silent"] == {"south": f"alone: {NOT_NOW}"}
    wait_for(lambda: state(hub, "south")["words"] == f"is not let in: south: {NOT_NOW}")
    wait_for(lambda: whole.network.calls["south", "agree"] > 3)  # it is tried again and again, and said once
    assert len([text for text in whole.said if "south is not let in" in text]) == 1
    gone.rename(file)
    wait_for(lambda: state(hub, "south")["words"] == IN_AGAIN)
    joined = json.loads((tmp_path / "run" / "joined.json").read_text())["south"]
    simulated = whole.simulated(made)
    assert joined["sha256"] == simulated["weights_sha256"]["clients"]["south"]
    (line,) = (c for c in simulated["clients"] if c["name"] == "south")
    assert joined["entry"]["scores"]["personal"]["metrics"]["accuracy"] == pytest.approx(line["personal"])
    assert whole.sites["south"]("hello", {})["state"] == "serving"
    whole.network.close()


def test_one_whose_folder_is_gone_comes_back_as_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights of the run are nowhere: nobody may call it one that kept them."""
    whole, made = Whole(tmp_path), config(PRIVATE, rounds=2, alone=False)
    site = whole.sites["south"]

    def south(method: str, payload: Payload) -> Payload:
        if method == "judge" and payload.get("what") == "ledger":
            raise Refused("not now")
        return site(method, payload)

    whole.replace("south", south)
    hub = whole.hub(made)
    hub.run()
    whole.network.unplug("south")
    shutil.rmtree(tmp_path / "south")
    whole.network.plug("south", whole.site("south"))
    wait_for((tmp_path / "run" / "joined.json").exists)
    joined = json.loads((tmp_path / "run" / "joined.json").read_text())["south"]
    assert joined["entry"]["newcomer"] is True
    wait_for(lambda: state(hub, "south")["words"] == "has joined after the run")
    assert any("took part in rounds, with rows or private weights that are there no more" in t for t in whole.said)
    whole.network.close()
