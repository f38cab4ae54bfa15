"""A site that leaves for good: it says so at the hub before it stops."""

import time
from pathlib import Path

from fedroute.errors import InputError, RunFailed
from fedroute.federation import supervise
from fedroute.federation.folders import SiteFolder
from fedroute.federation.left_file import leave, left
from fedroute.federation.state_file import read_state

UNHEARD = "the hub has not heard it yet"
BACK = "the way back: let the hub `fedroute site approve` its request again, and `fedroute site join` with that zip"


def leave_for_good(site: SiteFolder, wait: float) -> str:
    """Words on it, once the hub has heard it, so many seconds at most; the site is stopped then. One that does not run
    is started for it.

    Raises InputError where it has not joined, RunFailed where the hub has not heard it in time: the site then goes on
    running, answers nothing, and says so as soon as the hub is there."""
    site.to_join()
    name, root = site.settings()["name"], site.root
    new = left(root) is None
    if new:
        leave(root)
    if not _heard(root):
        if new or not supervise.Running(root).alive:  # a process reads the file when it starts
            supervise.stop(root)
            (root / "state.json").unlink(missing_ok=True)
            supervise.start(root)
        end = time.monotonic() + wait
        while not _heard(root):
            if time.monotonic() > end:
                why = read_state(root).get("words") or "the hub may not be running"
                raise RunFailed(
                    f"{name} has left, and answers nothing any more; the hub has not heard of it within {wait:g} s "
                    f"({why}). It goes on running only to say so: `fedroute site leave {root}` waits again, and stops "
                    "it then"
                )
            time.sleep(0.1)
    supervise.stop(root)
    return f"{name} {left_words(root)}; it is stopped, and its data and private weights stay in {root}\n{BACK}"


def left_words(folder: Path) -> str:
    """That it has left, when, and whether the hub knows; "" where it has not."""
    if (found := left(folder)) is None:
        return ""
    known = "the hub has heard it" if found.heard else UNHEARD
    return f"has left the federation for good on {found.at}, and {known}"


def to_be_in(site: SiteFolder) -> None:
    """Raises InputError where the site has left."""
    if words := left_words(site.root):
        more = "" if _heard(site.root) else f"`fedroute site leave {site.root}` says so at the hub; "
        raise InputError(f"{site.root}: {site.settings()['name']} {words}: {more}{BACK}")


def _heard(folder: Path) -> bool:
    found = left(folder)
    return bool(found and found.heard)
