"""A client's side of a federation, whose data and private weights stay where they are."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedroute.errors import RunFailed

Site = Annotated[Path, typer.Argument(metavar="FOLDER", help="The site's folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value to stdout and nothing else.")]


def request(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name in the federation.")],
    org: Annotated[str, typer.Option(help="The organisation, for the certificate: letters, digits and _.")],
    out: Annotated[Path, typer.Option(help="The site's folder; the private key is made in it and never leaves it.")],
) -> None:
    """At the site, first: make a private key, and a request to send to the hub."""
    from fedroute.federation import onboarding

    sent, key = onboarding.request(name, org, out)
    print(f"send to the hub: {sent}")
    print(f"key's fingerprint, to read out to the hub: {key}")


def approve(
    asked: Annotated[Path, typer.Argument(metavar="REQUEST.zip", help="What the site sent.")],
    hub: Annotated[Path, typer.Option(help="The hub's folder.")],
    out: Annotated[Path | None, typer.Option(help="The zip for the site; by default NAME.signed.zip here.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also where the name has another key already.")] = False,
) -> None:
    """At the hub: sign a site's request."""
    from fedroute.federation import onboarding
    from fedroute.federation.folders import HubFolder

    done = onboarding.approve(asked, HubFolder.at(hub), out, again)
    print(f"signed: {done.name} of {done.org}, whose key has the fingerprint {done.key}")
    print("compare it with what the site reads out; whoever has that key is this client from now on")
    print(f"send to the site: {done.signed}")
    print(f"CA's fingerprint, to read out to the site: {done.ca}")


def join(
    signed: Annotated[Path, typer.Argument(metavar="SIGNED.zip", help="What the hub sent back.")],
    folder: Annotated[Path, typer.Option("--request", help="The site's folder, in which the request was made.")],
    data: Annotated[Path, typer.Option(help="A file that says where this site's data lie.")],
    fingerprint: Annotated[
        str | None, typer.Option(help="The CA's, as the hub read it out; another one is refused.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Dial this instead of the hub's own address.")
    ] = None,
) -> None:
    """At the site: what the hub sent back, this site's key and its data become a site that can start."""
    from fedroute.federation import onboarding
    from fedroute.federation.folders import SiteFolder

    found = onboarding.join(signed, SiteFolder.at(folder), data, fingerprint, address)
    if not fingerprint:
        print(f"CA's fingerprint: {found}: compare it with what the hub reads out before you start")
    print(f"next: fedroute site check {folder}, then fedroute site start {folder}")


def check(folder: Site, as_json: Json = False) -> None:
    """A dry run: data, certificate, clock, and the way to the hub; nothing leaves."""
    from fedroute.federation.examine import examine
    from fedroute.federation.folders import SiteFolder

    found = examine(SiteFolder.at(folder))
    if as_json:
        print(json.dumps([f._asdict() for f in found], ensure_ascii=False))
    else:
        print("\n".join(f"{f.level:8} {f.text}" for f in found))
    if bad := [f for f in found if f.level == "refused"]:
        raise RunFailed(f"{len(bad)} of {len(found)} would keep this site out")


def manifest(folder: Site, as_json: Json = False) -> None:
    """What would leave this site, tensor by tensor, and what it tells of its data."""
    from fedroute.federation.accepting import manifest_of, told
    from fedroute.federation.folders import SiteFolder

    found = manifest_of(SiteFolder.at(folder))
    print(json.dumps(found, ensure_ascii=False) if as_json else told(found))


def accept(folder: Site) -> None:
    """Accept the manifest as it stands; another one would ask anew."""
    from fedroute.federation import accepting
    from fedroute.federation.folders import SiteFolder

    print(accepting.accept(SiteFolder.at(folder)))


def start(
    folder: Site,
    accept_manifest: Annotated[
        bool, typer.Option("--accept-manifest", help="Accept whatever the hub's manifest says, now and later.")
    ] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait until the hub has admitted it.")] = 30.0,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay here, for systemd or a container.")] = False,
    gateway: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Also answer who asks this site alone, now and later; `off` ends that."),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who may ask the gateway: made by `fedroute token`.")
    ] = None,
) -> None:
    """Start the site; it goes on until `stop`, through faults of network, hub and its own process."""
    from fedroute.federation.folders import SiteFolder
    from fedroute.federation.gateway_file import asked_at
    from fedroute.federation.leaving import to_be_in
    from fedroute.federation.lives import begin, site_is_in, startable

    site = SiteFolder.at(folder)
    site.to_join()
    to_be_in(site)
    startable(site)
    if accept_manifest:
        site.keep(**site.settings() | {"accept": "any"})
    if gateway or tokens:
        site.keep(**site.settings() | asked_at(site.root, site.settings(), gateway, tokens))
    begin(site, foreground, wait, site_is_in)


def stop(folder: Site) -> None:
    """Stop the site; its private weights stay, and `start` goes on with them."""
    from fedroute.federation.folders import SiteFolder
    from fedroute.federation.lives import end

    print(end(SiteFolder.at(folder)))


def status(folder: Site, as_json: Json = False) -> None:
    """How the site stands."""
    from fedroute.federation.folders import SiteFolder
    from fedroute.federation.lives import site_status, site_words

    found = site_status(SiteFolder.at(folder))
    print(json.dumps(found, ensure_ascii=False) if as_json else site_words(found))


def leave(
    folder: Site,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait until the hub has heard it.")] = 60.0,
) -> None:
    """Leave the federation for good, and stop once the hub has heard it; data and private weights stay here. A run that
    was begun goes on without it."""
    from fedroute.federation.folders import SiteFolder
    from fedroute.federation.leaving import leave_for_good

    print(leave_for_good(SiteFolder.at(folder), wait))


COMMANDS = (request, approve, join, check, manifest, accept, start, stop, status, leave)
