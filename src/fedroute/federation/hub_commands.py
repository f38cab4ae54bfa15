"""The side of a federation that plans rounds, adds up updates and routes queries."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

Hub = Annotated[Path, typer.Argument(metavar="HUB", help="The hub's folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value to stdout and nothing else.")]
Until = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait until it is up.")]
Foreground = Annotated[bool, typer.Option("--foreground", help="Stay here, for systemd or a container.")]
NewRun = Annotated[
    bool, typer.Option("--new-run", help="Begin a new run; the one that is there is kept under another name.")
]


def init(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="The config of the run.")],
    out: Annotated[Path, typer.Option(help="The hub's folder.")],
    name: Annotated[
        str, typer.Option(help="The host name or address that sites dial; it stands in the hub's certificate.")
    ] = "localhost",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The one port that sites must reach.")] = 8002,
    gateway: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Also answer routed queries here, such as 127.0.0.1:8080.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who may ask the gateway: made by `fedroute token`.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="a.b=c", help="Replaces a value of the config; may be repeated."),
    ] = None,
) -> None:
    """Make a federation: its CA, the hub's certificate, the config."""
    from fedroute.config import load
    from fedroute.federation.gateway_file import asked_at
    from fedroute.federation.hub_config import checked_config
    from fedroute.federation.onboarding import init_hub, shown

    if gateway or tokens:
        asked_at(out, {}, gateway, tokens)
    made, notes = checked_config(load(config, overrides or ()))
    for text in notes:
        print(f"note: {text}")
    hub = init_hub(made, out, name, port, gateway=gateway, tokens=tokens)
    print(f"hub: {out}, for sites that dial {name}:{port}")
    print(f"CA's fingerprint: {shown(hub.settings()['fingerprint'])}")
    print(f"guard {hub.ca / 'rootCA.key'}: with it sites are let in")
    print(f"next: fedroute site approve REQUEST.zip --hub {out}, for each site; then fedroute hub start {out}")


def start(hub: Hub, patience: Until = 20.0, foreground: Foreground = False, new_run: NewRun = False) -> None:
    """Start the hub and the run; what is there is gone on with."""
    from fedroute.federation.folders import HubFolder
    from fedroute.federation.lives import begin, hub_is_up

    begin(HubFolder.at(hub), foreground, patience, hub_is_up, new_run)


def stop(hub: Hub) -> None:
    """Stop the hub after its last whole round; `start` goes on."""
    from fedroute.federation.folders import HubFolder
    from fedroute.federation.lives import end

    print(end(HubFolder.at(hub)))


def status(hub: Hub, as_json: Json = False) -> None:
    """How the hub stands, and who is here."""
    from fedroute.federation.folders import HubFolder
    from fedroute.federation.lives import hub_status, hub_words

    found = hub_status(HubFolder.at(hub))
    print(json.dumps(found, ensure_ascii=False) if as_json else hub_words(found))


def wait(hub: Hub) -> None:
    """Wait until the run has ended."""
    from fedroute.federation.folders import HubFolder
    from fedroute.federation.lives import wait_for_run

    at = HubFolder.at(hub)
    wait_for_run(at, lambda text: print(text, file=sys.stderr))
    print(f"report: {at.run / 'report.html'}")


COMMANDS = (init, start, stop, status, wait)
