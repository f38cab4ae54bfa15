"""The owner of a site's data sees what would leave, and accepts it or not."""

import json
import time
from typing import Any

from fedroute.durable import write
from fedroute.errors import InputError
from fedroute.federation.folders import SiteFolder
from fedroute.federation.supervise import Running

PATIENCE = 60.0  # seconds that are waited for the hub to ask, where the site runs


def manifest_of(site: SiteFolder, patience: float = PATIENCE) -> dict[str, Any]:
    """The manifest as the hub asked last, its "sha256", and whether it is "accepted". Raises InputError where the hub
    has not asked yet, and does not within `patience` seconds while the site runs."""
    file = site.root / "manifest.json"
    end = time.monotonic() + patience
    while not file.exists() and time.monotonic() < end and Running(site.root).alive:
        time.sleep(0.2)
    if not file.exists():
        raise InputError(
            f"{site.root}: the hub has not asked yet what this site would send: start the site, and look again when "
            "all sites of the federation are there; until it is accepted, nothing but a summary of the columns leaves"
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
