"""A gateway that is kept open beside a hub or a site: from when there is something to serve, and tried on while its
port is another's or its files are wrong."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.errors import InputError, RunFailed
from fedroute.federation.ports import fault_at

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fedroute.service.running import Running
    from fedroute.service.settings import Settings

SOON, AGAIN = 0.5, 5.0  # seconds until it is looked again for what there is to serve, and for what is wrong

Make = Callable[["Settings"], "FastAPI | None"]
"""The application by these settings; None while there is nothing to serve. May raise InputError."""


def kept_open(
    root: Path,
    settings: Mapping[str, Any],
    make: Make,
    stop: threading.Event,
    say: Callable[[str], None],
    tell: Callable[[str], None] = lambda words: None,
    *,
    what: str,
    once: str = "",
) -> None:
    """Serves where settings["gateway"] says, until `stop`; nothing where they say nothing. what: is asked there, and
    once: from when on, in words. tell: hears how it stands, whenever that may have changed."""
    if not settings.get("gateway"):
        return
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
        running = _opened(root, settings, make)
        if running is None:
            stands(f"{what} at {settings['gateway']} {once}", False)
        elif isinstance(running, str):
            stands(f"there is no gateway at {settings['gateway']}: {running}; it is tried on", True)
        else:
            stands(f"{what} at {running.url}", False)
            say(f"{what} are answered at {running.url}")
            stop.wait()
            running.stop()
            return
        if stop.wait(SOON if running is None else AGAIN):
            return


def _opened(root: Path, settings: Mapping[str, Any], make: Make) -> "Running | str | None":
    """The gateway that runs, or why there is none."""
    from fedroute.federation.gateway_file import read_gateway
    from fedroute.service.running import serve_in_thread

    host, _, port = settings["gateway"].rpartition(":")
    host = host.strip("[]")
    if fault := fault_at(host, int(port)):
        return fault
    try:
        given = read_gateway(root, settings)
        if (app := make(given)) is None:
            return None
        return serve_in_thread(app, host, int(port), certificate=given.certificate, key=given.key)
    except (InputError, RunFailed) as e:
        return str(e)


def _missing() -> str:
    """The package without which there is no gateway; "" where all are there."""
    try:
        import fedroute.service.running  # noqa: F401
    except ImportError as e:
        return str(e.name)
    return ""
