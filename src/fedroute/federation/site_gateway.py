"""A site's own gateway: who has a case and has decided by the guide sends it to that site alone, and the hub sees
nothing of it."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from fedroute.errors import InputError
from fedroute.federation.folders import SiteFolder
from fedroute.federation.kept_gateway import kept_open
from fedroute.federation.transport import Refused

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fedroute.federation.site import Site
    from fedroute.service.answers import Own
    from fedroute.service.settings import Settings


def serve_own(
    at: SiteFolder,
    site: "Site",
    stop: threading.Event,
    say: Callable[[str], None],
    tell: Callable[[str], None] = lambda words: None,
) -> None:
    """Answers where the site's settings say with the model that the hub's queries are answered with, until `stop`;
    nothing where they say nothing. Before there is a model it says that there is none yet."""

    def own() -> "Own | None":
        try:
            return site.own()
        except (Refused, InputError):  # nothing is agreed, other data lie there, or it has left: `site status` says
            return None

    def make(given: "Settings") -> "FastAPI":
        from fedroute.service.gateway import make_site_app

        return make_site_app(own, given)

    kept_open(at.root, at.settings(), make, stop, say, tell, what="queries to this site alone")


def beside(at: SiteFolder, site: "Site", say: Callable[[str], None]) -> threading.Event | None:
    """`serve_own` in a thread; set what is returned to end it. None where the settings want none."""
    if not at.settings().get("gateway"):
        return None
    stop = threading.Event()
    threading.Thread(target=serve_own, args=(at, site, stop, say), name="fedroute-gateway", daemon=True).start()
    return stop
