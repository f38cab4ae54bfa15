"""The gateway in the hub's process: it decides by the guide, and the chosen site answers over the federation's own
connection. A query passes through the hub and is kept nowhere."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.errors import InputError
from fedroute.federation.folders import HubFolder
from fedroute.federation.transport import Transport

if TYPE_CHECKING:
    from fedroute.federation.hub import Hub


def serve_live(
    at: HubFolder, hub: "Hub", transport: Transport, stop: threading.Event, say: Callable[[str], None]
) -> None:
    """Answers where the hub's settings say, from the agreement of the sites on until `stop`; nothing where they say
    nothing. Before there is a guide the gateway says that there is none yet."""
    settings = at.settings()
    if not settings.get("gateway"):
        return
    while not hub.clients():
        if stop.wait(0.2):
            return
    try:
        from fedroute.service.answers import Live
        from fedroute.service.gateway import make_app
        from fedroute.service.running import serve_in_thread
        from fedroute.service.serving import Service
        from fedroute.service.settings import Settings
    except ImportError as e:
        say(f"there is no gateway, it needs {e.name}: pip install 'fedroute[serve]'")
        return
    host, _, port = settings["gateway"].rpartition(":")
    tokens = Path(settings["tokens"]) if settings.get("tokens") else None

    class Sites(Live):
        """Those that have joined since, too."""

        def clients(self) -> list[dict[str, Any]]:
            self.names = hub.clients()
            return super().clients()

    service = Service(hub.guide, Sites(transport, hub.clients()), size=hub.config.federation.get("size"))
    try:
        app = make_app(service, Settings(tokens=tokens, audit=at.root / "audit.sqlite"))
        running = serve_in_thread(app, host, int(port))
    except InputError as e:
        say(f"there is no gateway: {e}")
        return
    say(f"routed queries are answered at {running.url}")
    stop.wait()
    running.stop()
