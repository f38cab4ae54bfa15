"""The gateway in the hub's process: it decides by the guide, and the chosen site answers over the federation's own
connection. A query passes through the hub and is kept nowhere."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.data.spec import both_sides
from fedroute.errors import InputError, RunFailed
from fedroute.federation.folders import HubFolder
from fedroute.federation.ports import fault_at
from fedroute.federation.transport import Transport

if TYPE_CHECKING:
    from fedroute.federation.hub import Hub
    from fedroute.service.running import Running

SOON, AGAIN = 0.5, 5.0  # seconds until the sites are looked for again, and a port that is taken


def serve_live(
    at: HubFolder,
    hub: "Hub",
    transport: Transport,
    stop: threading.Event,
    say: Callable[[str], None],
    tell: Callable[[str], None] = lambda words: None,
) -> None:
    """Answers where the hub's settings say, from the agreement of the sites on until `stop`; nothing where they say
    nothing. Before there is a guide the gateway says that there is none yet. Where it cannot be had it is tried on.

    tell: hears how it stands, whenever that may have changed."""
    settings = at.settings()
    if not settings.get("gateway"):
        return
    host, _, port = settings["gateway"].rpartition(":")
    told = ""

    def stands(words: str, fault: bool) -> None:
        nonlocal told
        tell(words)
        if fault and words != told:
            say(words)
        told = words if fault else ""

    while True:
        if missing := _missing():
            stands(f"there is no gateway, it needs {missing}: pip install 'fedroute[serve]'", True)
            return
        fault = fault_at(host.strip("[]"), int(port))
        running = None
        if not fault and hub.clients():
            running = _served(at, hub, transport, host.strip("[]"), int(port))
            fault = running if isinstance(running, str) else ""
        if running is not None and not isinstance(running, str):
            stands(f"routed queries at {running.url}", False)
            say(f"routed queries are answered at {running.url}")
            stop.wait()
            running.stop()
            return
        if fault:
            stands(f"there is no gateway at {settings['gateway']}: {fault}; it is tried on", True)
        else:
            stands(f"routed queries at http://{settings['gateway']} once the sites have agreed", False)
        if stop.wait(AGAIN if fault else SOON):
            return


def _missing() -> str:
    """The package without which there is no gateway; "" where all are there."""
    try:
        import fedroute.service.running  # noqa: F401
    except ImportError as e:
        return str(e.name)
    return ""


def _served(at: HubFolder, hub: "Hub", transport: Transport, host: str, port: int) -> "Running | str":
    """The gateway that runs, or why there is none."""
    from fedroute.service.answers import Live
    from fedroute.service.gateway import make_app
    from fedroute.service.running import serve_in_thread
    from fedroute.service.serving import Service
    from fedroute.service.settings import Settings

    settings = at.settings()
    tokens = Path(settings["tokens"]) if settings.get("tokens") else None

    class Sites(Live):
        """Those that have joined since, too."""

        def clients(self) -> list[dict[str, Any]]:
            self.names = hub.clients()
            return super().clients()

    service = Service(hub.guide, Sites(transport, hub.clients()), size=both_sides(hub.config.federation.get("size")))
    try:
        return serve_in_thread(make_app(service, Settings(tokens=tokens, audit=at.root / "audit.sqlite")), host, port)
    except (InputError, RunFailed) as e:
        return str(e)
