"""Sites that come later, and a guide for queries, over a whole federation."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute.config import Config
from fedroute.federation.hub import Hub
from fedroute.federation.inprocess import InProcess
from fedroute.federation.transport import Refused
from fedroute.router.guide import Guide
from tests.federation.federations import wait_for
from tests.federation.test_leaving import state
from tests.federation.whole import ROWS, Whole, config, rows_of, write_table

PRIVATE = {"name": "pfedme", "private": ["norm"]}


def routed(made: Config, router: dict[str, Any]) -> Config:
    from fedroute.router.spec import RouterSpec

    return made.model_copy(update={"router": RouterSpec(**router)})


def newcomer(whole: Whole, accept: str = "any") -> None:
    write_table(whole.root / "young.csv", rows_of("east", 50))
    whole.network.plug("young", whole.site("young", accept))


def test_a_site_that_comes_while_others_train_is_let_in_at_the_end(tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(PRIVATE, rounds=3)
    hub = whole.hub(made)
    hub.progress = lambda phase, done, rounds, line: newcomer(whole) if (phase, done) == ("train", 2) else None
    found = hub.run()
    wait_for(lambda: "young" in hub.clients())  # it may be let in by a thread that began before the end
    assert found["weights_sha256"] == whole.simulated(made)["weights_sha256"]  # it changed nothing
    joined = json.loads((tmp_path / "run" / "joined.json").read_text())["young"]
    assert joined["entry"]["newcomer"] is True
    assert joined["entry"]["name"] == "young"
    assert joined["entry"]["scores"]["personal"]["metrics"]["accuracy"] is not None
    assert joined["entry"]["scores"]["alone"] is not None
    assert len(joined["sha256"]) == 64
    assert whole.sites["young"]("hello", {})["state"] == "serving"
    assert hub.clients() == (*sorted(ROWS), "young")
    assert any("young has joined" in text for text in whole.said)


def test_it_may_come_after_the_end_also_to_a_hub_that_was_restarted(tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(PRIVATE, rounds=2)
    whole.hub(made).run()
    network = InProcess(dict(whole.sites))
    hub = Hub(made, tmp_path / "run", network, log=whole.said.append)
    hub.run()
    whole.network = network
    newcomer(whole, accept="")
    wait_for(lambda: any("waiting for its owner" in text for text in whole.said))
    assert hub.clients() == tuple(sorted(ROWS))
    (tmp_path / "young" / "accepted").write_text(
        json.loads((tmp_path / "young" / "manifest.json").read_text())["sha256"]
    )
    wait_for(lambda: hub.clients()[-1] == "young")
    assert whole.sites["young"]("hello", {})["state"] == "serving"


def test_a_site_whose_rows_do_not_fit_is_not_let_in_and_the_others_do_not_mind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedroute.federation.hub.SOONEST", 0.1)
    whole, made = Whole(tmp_path), config(rounds=2)
    hub = whole.hub(made)
    hub.run()
    (tmp_path / "young.csv").write_text("age,illness\n50,ill\n")
    whole.network.plug("young", whole.site("young"))
    wait_for(lambda: any("young is not let in: young: its file has no column" in text for text in whole.said))
    assert hub.clients() == tuple(sorted(ROWS))
    assert not (tmp_path / "run" / "joined.json").exists()
    write_table(whole.root / "young.csv", rows_of("east", 50))
    wait_for(lambda: "young" in hub.clients())  # its file was mended: nobody starts anything anew
    assert state(hub, "young")["words"] == "has joined after the run"


def test_a_hub_with_a_router_makes_a_guide_and_newcomers_stand_in_it(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    made = routed(config(PRIVATE, rounds=2), {"kind": "lda", "abstain": None})
    hub = whole.hub(made)
    assert hub.guide() is None
    assert hub.clients() == ()
    hub.run()
    guide = hub.guide()
    assert guide is not None
    assert guide.clients == tuple(sorted(ROWS))
    columns = len(json.loads((tmp_path / "run" / "summary.json").read_text())["federation"]["columns"])
    x = torch.randn(9, columns)
    assert {r["client"] for r in guide.choose(x).rows()} <= {*ROWS}
    whole.network = InProcess(dict(whole.sites))
    again = whole.hub(made)  # a hub that was restarted
    kept = again.guide()
    assert kept is not None
    assert kept.choose(x).rows() == guide.choose(x).rows()
    assert again.clients() == tuple(sorted(ROWS))
    again.run()
    newcomer(whole)
    wait_for(lambda: "young" in again.clients())
    later = again.guide()
    assert later is not None
    assert "young" in later.clients
    assert Guide.load(tmp_path / "run" / "guide.safetensors").clients == later.clients


def test_a_guide_is_made_without_a_site_that_has_left(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    made = routed(config(PRIVATE, rounds=3), {"kind": "lda", "abstain": None})
    hub = whole.hub(made)
    hub.progress = lambda phase, done, rounds, line: whole.sites["south"].leave() if done == 1 else None
    hub.run()
    guide = hub.guide()
    assert guide is not None
    assert guide.clients == ("east", "north", "west")


def test_sums_are_told_only_to_a_hub_that_was_accepted(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    refused = threading.Event()
    try:
        whole.sites["east"]("sums", {"what": "totals"})
    except Refused:
        refused.set()
    assert refused.is_set()
