"""A site that gives no answer when the run ends: told, and let in again when it comes."""

import json
from pathlib import Path

from fedroute.federation.inprocess import InProcess
from fedroute.federation.transport import Payload, Refused
from fedroute.router.spec import RouterSpec
from tests.federation.federations import wait_for
from tests.federation.test_leaving import state
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
    wait_for(lambda: state(again, "south")["words"] == "has joined after the run")
    guide = again.guide()
    assert guide is not None
    assert {*guide.clients} == {*ROWS}
    assert "south" in json.loads((tmp_path / "run" / "joined.json").read_text())
