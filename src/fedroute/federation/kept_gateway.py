"""A gateway that is kept open beside a hub or a site: from when there is something to serve, tried on while its port is
another's or its files are wrong, and opened anew when they have changed."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.errors import InputError, RunFailed
from fedroute.federation.gateway_file import NAME, GatewayFile, read_gateway
from fedroute.federation.ports import fault_at

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fedroute.service.running import Running
    from fedroute.service.settings import Settings

SOON, AGAIN = 0.5, 5.0  # seconds until it is looked again for what there is to serve, and for what is wrong
LOOK = 1.0  # seconds until it is looked again for what has changed

Files = tuple[GatewayFile | str, tuple[tuple[int, int], ...]]
"""gateway.yaml as it is read, or why it cannot be; and of each file that it names when it was written, and which it
is."""
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
    ready: Callable[[], bool] = lambda: True,
) -> None:
    """Serves where settings["gateway"] says, until `stop`; nothing where they say nothing. What changes in
    gateway.yaml, and in the files that it names, is taken up: the gateway answers what it was asked, and opens anew. A
    change that cannot be used is told, and the gateway goes on as it was.

    what: is asked there; once: from when on it can be answered, in words, and ready: whether it can now, where it is
    served before. tell: hears how it stands, whenever that may have changed."""
    if not settings.get("gateway"):
        return
    told = ""

    def at(where: str) -> str:
        return f"{what} at {where}" if ready() else f"{what} at {where} {once}"

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
        taken = _files(root, settings)
        running = _opened(root, settings, make)
        if running is None:
            stands(at(settings["gateway"]), False)
        elif isinstance(running, str):
            stands(f"there is no gateway at {settings['gateway']}: {running}; it is tried on", True)
        else:
            stands(at(running.url), False)
            say(f"{what} are answered at {running.url}" + ("" if ready() else f" {once}"))
            _until_changed(root, settings, taken, stop, partial(_goes_on, stands, partial(at, running.url)))
            running.stop()
            if not stop.is_set():
                say(f"{NAME} has changed: the gateway opens anew")
                continue
        if stop.wait(SOON if running is None else AGAIN):
            return


def _opened(root: Path, settings: Mapping[str, Any], make: Make) -> "Running | str | None":
    """The gateway that runs, or why there is none."""
    from fedroute.service.running import serve_in_thread

    host, _, port = settings["gateway"].rpartition(":")
    host = host.strip("[]")
    if fault := fault_at(host, int(port)):
        return f"{fault}; stop that, or put another `gateway` into {root / 'settings.json'}"
    try:
        given = read_gateway(root, settings)
        if (app := make(given)) is None:
            return None
        return serve_in_thread(app, host, int(port), certificate=given.certificate, key=given.key)
    except (InputError, RunFailed) as e:
        return str(e)


def _goes_on(stands: Callable[[str, bool], None], at: Callable[[], str], fault: str) -> None:
    stands(f"{at()}; {NAME} has changed, and is not taken up: {fault}" if fault else at(), bool(fault))


def _until_changed(
    root: Path, settings: Mapping[str, Any], taken: Files, stop: threading.Event, told: Callable[[str], None]
) -> None:
    """Returns at `stop`, or when the files are others than those taken, have been so for two looks (they may be half
    written at one), and can be used. told: hears at each look why they cannot; "" where they have not changed."""
    seen = taken
    while not stop.wait(LOOK):
        found = _files(root, settings)
        if found == seen:
            fault = "" if found == taken else _fault(found)
            if found != taken and not fault:
                return
            told(fault)
        seen = found


def _files(root: Path, settings: Mapping[str, Any]) -> Files:
    """What gateway.yaml says now, or why it cannot be read; and of the files that it names which they are."""
    try:
        given = read_gateway(root, settings)
    except InputError as e:
        return str(e), ()
    return given, tuple(_stamp(path) for path in (given.certificate, given.key, given.audit_key) if path)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def _fault(files: Files) -> str:
    """Why a gateway cannot be opened by them; "" where it can."""
    from fedroute.service.access import Tokens
    from fedroute.service.audit import QueryHash
    from fedroute.service.running import check_certificate

    given, _ = files
    if isinstance(given, str):
        return given
    try:
        check_certificate(given.certificate, given.key)
        Tokens(given.tokens)
        QueryHash(given.audit_key)
    except InputError as e:
        return str(e)
    return ""


def _missing() -> str:
    """The package without which there is no gateway; "" where all are there."""
    try:
        import fedroute.service.running  # noqa: F401
    except ImportError as e:
        return str(e.name)
    return ""
