"""What runs in the hub's process: the run of its config over the transport, and the gateway beside it."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.errors import InputError, RunFailed
from fedroute.federation.folders import HubFolder
from fedroute.federation.live_gateway import serve_live
from fedroute.federation.ports import held, port_words, taken
from fedroute.federation.state_file import write_state
from fedroute.federation.transport import Transport
from fedroute.federation.twins import CANNOT

if TYPE_CHECKING:
    from fedroute.federation.hub import Hub

Say = Callable[[str], None]
AGAIN = "it is tried again when a site comes, or is started anew"


def run(folder: Path, transport: Transport, stop: threading.Event, say: Say) -> None:
    """The run to its end, or to `stop`; then the hub stays, for the gateway. What a run fails of is said, and tried
    again when a site comes: its data may have been mended."""
    from fedroute.config import load
    from fedroute.federation.hub import Hub

    at = HubFolder.at(folder)
    came, told = threading.Event(), dict[str, Any]()
    transport.on_change(lambda node, here: came.set() if here else None)
    try:
        hub = Hub(load(at.config), at.run, transport, log=say, stop=stop)
    except InputError as e:
        say(str(e))
        write_state(folder, up=True, phase="failed", words=str(e))
        return
    telling = threading.Thread(target=_tell, args=(at, hub, stop, told), name="fedroute-state", daemon=True)
    telling.start()
    gateway = threading.Thread(
        target=serve_live, name="fedroute-gateway",
        args=(at, hub, transport, stop, say, lambda words: told.update(gateway=words)),
    )  # fmt: skip
    gateway.start()
    while not stop.is_set():
        came.clear()
        told["words"] = ""
        try:
            hub.run()
            say("the run has ended; its report is run/report.html")
            stop.wait()
        except KeyboardInterrupt:
            say("the run was stopped after its last whole round; `fedroute hub start` goes on")
        except (InputError, RunFailed) as e:
            told.update(words=f"{CANNOT}{e}\n{AGAIN}", failed_at=time.time())
            say(told["words"])
            while not stop.wait(1.0) and not came.is_set():
                pass
    gateway.join()


def _tell(at: HubFolder, hub: "Hub", stop: threading.Event, told: Mapping[str, Any]) -> None:
    """Keeps state.json as it is."""
    last: dict[str, Any] = {}
    port = at.settings()["port"]
    while True:
        state: dict[str, Any] = {"up": held(port)} | dict(told) | hub.status()
        if not state["up"]:
            state["words"] = port_words(taken(port), at.settings_file)
        if state != last:
            write_state(at.root, **state)
            last = state
        if stop.wait(1.0):
            return
