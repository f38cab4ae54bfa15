"""The gateway in the hub's process: it decides by the guide, and the chosen site answers over the federation's own
connection. A query passes through the hub and is kept nowhere."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedroute.data.spec import both_sides
from fedroute.federation.folders import HubFolder
from fedroute.federation.kept_gateway import kept_open
from fedroute.federation.transport import Transport

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fedroute.federation.hub import Hub
    from fedroute.service.settings import Settings

FROM = "from when the first training has ended"
NEVER = "once the config has a router: `router: auto` in federation.yaml, then `fedroute hub start --new-run`"


def serve_live(
    at: HubFolder,
    hub: "Hub",
    transport: Transport,
    stop: threading.Event,
    say: Callable[[str], None],
    tell: Callable[[str], None] = lambda words: None,
) -> None:
    """Answers where the hub's settings say, from the agreement of the sites on until `stop`; nothing where they say
    nothing. Before there is a guide the gateway says that there is none yet.

    tell: hears how it stands, whenever that may have changed."""

    def make(given: "Settings") -> "FastAPI | None":
        return _app(hub, transport, given) if hub.clients() else None

    once = FROM if hub.config.router else NEVER
    kept_open(at.root, at.settings(), make, stop, say, tell, what="routed queries", once=once,
              ready=lambda: hub.guide() is not None)  # fmt: skip


def _app(hub: "Hub", transport: Transport, given: "Settings") -> "FastAPI":
    from fedroute.service.answers import Live
    from fedroute.service.gateway import make_app
    from fedroute.service.serving import Service

    class Sites(Live):
        """Those that have joined since, too."""

        def clients(self) -> list[dict[str, Any]]:
            self.names = hub.clients()
            return super().clients()

    size = both_sides(hub.config.federation.get("size"))
    return make_app(Service(hub.guide, Sites(transport, hub.clients()), size=size), given)
