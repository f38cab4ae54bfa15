"""The dry run of a site: everything that would keep it out, found before it joins. Nothing leaves."""

import datetime
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.federation.folders import SiteFolder
from fedroute.federation.leaving import to_be_in
from fedroute.federation.reaching import days_left, reach

if TYPE_CHECKING:
    from fedroute.federation.check import Finding

SOON = 30  # days before a certificate's end from which it is said
AS_AGREED = "the rows are those that were agreed on with the hub"


def examine(site: SiteFolder) -> "list[Finding]":
    """Findings, each "ok", "note" or "refused" and a text with the mend: data, schema and label map, whether the
    rows are those agreed on, certificate, key, the way to the hub, both clocks. Raises InputError where the site has
    not joined, or has left."""
    import yaml

    from fedroute.federation.check import Finding, check_data, clock
    from fedroute.federation.same_rows import changed
    from fedroute.federation.site_spec import read_data_spec

    site.to_join()
    to_be_in(site)
    settings = site.settings()
    config: dict[str, Any] = yaml.safe_load(site.config.read_text(encoding="utf-8"))
    data, name = Path(settings["data"]), settings["name"]
    found = list(check_data(data, config["federation"], name))
    if all(f.level != "refused" for f in found):
        words = changed(site.root, config["federation"], read_data_spec(data), data.parent, name, str(data))
        if words is not None:
            found.append(Finding("refused", words) if words else Finding("ok", AS_AGREED))
    startup = site.kit / "startup"
    left = days_left(startup / "client.crt", datetime.datetime.now(datetime.UTC))
    if left < 0:
        begun = "has not begun by the clock here" if left == float("-inf") else "has ended"
        found.append(Finding("refused", f"the certificate {begun}: mend the clock, or send a new request to the hub"))
    else:
        words = f"the certificate is good for {left:.0f} days"
        found.append(Finding("note", f"{words}: send a new request") if left < SOON else Finding("ok", words))
    if mode := (startup / "client.key").stat().st_mode & 0o077:
        found.append(
            Finding(
                "refused", f"the private key can be read by others (mode {mode:o}): chmod 600 {startup / 'client.key'}"
            )
        )
    way = reach(startup, settings["host"], settings["port"], settings["hub"])
    where = f"{settings['host']}:{settings['port']}"
    found.append(
        Finding("refused", way.fault)
        if way.fault
        else Finding("ok", f"the hub at {where} takes this site's certificate")
    )
    if way.hub_clock is not None:
        found.append(clock(time.time(), way.hub_clock))
    return found
