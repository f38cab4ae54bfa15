"""What runs in the hub's process: the run of its config over the transport, and the gateway beside it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.errors import InputError, RunFailed
from fedroute.federation.folders import HubFolder
from fedroute.federation.live_gateway import serve_live
from fedroute.federation.state_file import write_state
from fedroute.federation.transport import Transport

if TYPE_CHECKING:
    from fedroute.federation.hub import Hub

Say = Callable[[str], None]


def run(folder: Path, transport: Transport, stop: threading.Event, say: Say) -> None:
    """The run to its end, or to `stop`; then the hub stays, for the gateway. What a run fails of is said, and tried
    again when a site comes: its data may have been mended."""
    from fedroute.config import load
    from fedroute.federation.hub import Hub

    at = HubFolder.at(folder)
    came = threading.Event()
    transport.on_change(lambda node, here: came.set() if here else None)
    words = ""
    try:
        hub = Hub(load(at.config), at.run, transport, log=say, stop=stop)
    except InputError as e:
        say(str(e))
        write_state(folder, up=True, words=str(e))
        return
    telling = threading.Thread(
        target=_tell, args=(folder, hub, stop, lambda: words), name="fedroute-state", daemon=True
    )
    telling.start()
    gateway = threading.Thread(target=serve_live, args=(at, hub, transport, stop, say), name="fedroute-gateway")
    gateway.start()
    while not stop.is_set():
        came.clear()
        words = ""
        try:
            hub.run()
            say("the run has ended; its report is run/report.html")
            stop.wait()
        except KeyboardInterrupt:
            say("the run was stopped after its last whole round; `fedroute hub start` goes on")
        except (InputError, RunFailed) as e:
            words = f"the run cannot go on: {e}"
            say(words)
            while not stop.wait(1.0) and not came.is_set():
                pass
    gateway.join()


def _tell(folder: Path, hub: "Hub", stop: threading.Event, words: Callable[[], str]) -> None:
    last: dict[str, Any] = {}
    while True:
        if (state := {"up": True, "words": words()} | hub.status()) != last:
            write_state(folder, **state)
            last = state
        if stop.wait(1.0):
            return
