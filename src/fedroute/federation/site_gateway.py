"""A site's own gateway: who has a case and has decided by the guide sends it to that site alone, and the hub sees
nothing of it."""

import contextlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedroute.durable import write
from fedroute.errors import InputError
from fedroute.federation.folders import SiteFolder
from fedroute.federation.kept_gateway import kept_open
from fedroute.federation.transport import Refused

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fedroute.federation.site import Site
    from fedroute.service.answers import Own
    from fedroute.service.settings import Settings

STANDS = "gateway_state.json"  # how it stands, and of which process: another's is not believed


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
    """`serve_own` in a thread; set what is returned to end it. None where the settings want none. `own_gateway` tells
    how it stands."""
    if not at.settings().get("gateway"):
        return None
    stop, told = threading.Event(), ""

    def tell(words: str) -> None:
        nonlocal told
        if words != told:
            with contextlib.suppress(OSError, RuntimeError):  # a full disk ends no gateway
                write(at.root / STANDS, json.dumps({"process": os.getpid(), "words": words}))
                told = words

    threading.Thread(target=serve_own, args=(at, site, stop, say, tell), name="fedroute-gateway", daemon=True).start()
    return stop


def own_gateway(root: Path, process: int | None) -> str:
    """How the gateway of the site in this folder stands, whose process has this id; "" where it has not said yet."""
    try:
        found = json.loads((root / STANDS).read_text(encoding="utf-8"))
        return str(found["words"]) if process and found["process"] == process else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
