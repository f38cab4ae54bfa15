"""The owner of a site's data sees what would leave, and accepts it or not."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fedroute.durable import write
from fedroute.errors import InputError
from fedroute.federation.folders import SiteFolder
from fedroute.federation.state_file import read_state
from fedroute.federation.supervise import Running

SOON = 3.0  # seconds after which it is said what is waited for
PATIENCE = 60.0  # seconds that are waited for the hub to ask, where the site runs


class Known(NamedTuple):
    """words: why the hub has not asked; final: whether waiting would change nothing."""

    words: str
    final: bool = False


def known_of(site: SiteFolder) -> Known:
    """What is known here of why the hub has not asked yet, and the mend."""
    if not Running(site.root).alive:
        return Known("start the site, and look again when all sites of the federation are there", True)
    state = read_state(site.root)
    if not state.get("admitted") or not state.get("hub"):
        return Known(str(state.get("words") or "this site is not connected with the hub (yet)"))
    if state.get("words"):
        return Known(str(state["words"]), True)
    hub = state.get("hub_says") or {}
    if hub.get("phase") == "failed":
        own = f": {hub['words']}" if hub.get("words") else ""
        return Known(f"its run cannot go on{own}; the hub's keeper sees why in `fedroute hub status`", True)
    if hub.get("phase") == "waiting":
        return Known("it waits for the other sites")
    return Known("it is at work on the agreement" if hub.get("phase") == "agreeing" else "it has said nothing of it")


def manifest_of(
    site: SiteFolder, patience: float = PATIENCE, say: Callable[[str], None] = lambda text: print(text, file=sys.stderr)
) -> dict[str, Any]:
    """The manifest as the hub asked last, its "sha256", and whether it is "accepted". say: hears what is known, where
    it takes longer. Raises InputError where the hub has not asked yet, and does not within `patience` seconds while the
    site runs, or cannot."""
    file = site.root / "manifest.json"
    begun, said = time.monotonic(), ""
    while not file.exists() and time.monotonic() < begun + patience and Running(site.root).alive:
        known = known_of(site)
        if known.final:
            break
        if time.monotonic() > begun + SOON and known.words != said:
            say(f"waiting for the hub to ask: {known.words}")
            said = known.words
        time.sleep(0.2)
    if not file.exists():
        raise InputError(
            f"{site.root}: the hub has not asked yet what this site would send; until it is accepted, nothing but a "
            f"summary of the columns leaves: {known_of(site).words}"
        )
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found | {"accepted": _accepted(site, found["sha256"])}


def accept(site: SiteFolder) -> str:
    """Accepts the manifest as it stands, by its hash in the file `accepted`; words on what that was."""
    found = manifest_of(site)
    write(site.root / "accepted", found["sha256"] + "\n")
    return f"{told(found | {'accepted': True})}: another manifest would be asked about anew"


def told(found: dict[str, Any]) -> str:
    """A manifest in lines."""
    lines = [f"what leaves this site ({found['sha256'][:12]}):"]
    private = ""
    for row in found["rows"]:
        if row["bytes"]:
            lines.append(f"  {row['what']}\n      {row['when']}, {row['bytes']:,} bytes")
        else:
            lines.append(f"  {row['what']}\n      {row['when']}")
        if row["private"] != private:
            private = row["private"]
            lines.append(f"      {private}")
    lines += [f"note: {text}" for text in found.get("notes", ())]
    lines.append("accepted" if found.get("accepted") else "not accepted yet: `fedroute site accept`")
    return "\n".join(lines)


def is_open(site: SiteFolder) -> bool:
    """Whether the hub has asked and the owner has not accepted yet."""
    return (site.root / "manifest.json").exists() and not manifest_of(site)["accepted"]


def _accepted(site: SiteFolder, digest: str) -> bool:
    file = site.root / "accepted"
    return site.settings().get("accept") == "any" or (
        file.exists() and digest in file.read_text(encoding="utf-8").split()
    )
