"""The commands of the gateway. Light to import: the command line pays for every command that there is."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedroute.errors import InputError
from fedroute.service.addresses import HERE, is_url


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run with a router.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8080,
    tokens: Annotated[Path | None, typer.Option(metavar="FILE", help="Who may ask: made by `fedroute token`.")] = None,
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM; with --key it is HTTPS.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM, of the certificate.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Requests a second of a token, or an address.")] = None,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="SQLite, a line for each answer; by default DIR/audit.sqlite.")
    ] = None,
    no_audit: Annotated[bool, typer.Option("--no-audit", help="Keep none.")] = False,
    audit_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A secret, by which a keyed hash of each query is kept.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="Serve this client's own model alone, at POST /v1/answer.")
    ] = None,
    away: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A client that is not asked.")] = None,
    site: Annotated[
        list[str] | None, typer.Option(metavar="NAME=URL", help="Where a client's own gateway is; may be repeated.")
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1024, help="Of a request.")] = 8 << 20,
    max_queries: Annotated[int, typer.Option(min=1, help="Of a batch.")] = 1024,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests that are worked on at once.")] = 256,
    queue: Annotated[int, typer.Option(min=0, help="Requests that wait beyond that; more are refused.")] = 1024,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds for a request.")] = 10.0,
) -> None:
    """Answer routed queries over HTTP, each by the model of the client that should."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as e:
        raise InputError(f"serve needs {e.name}: pip install 'fedroute[serve]'") from None
    from fedroute.service.running import serve_in_thread, until_told
    from fedroute.service.settings import Settings
    from fedroute.service.started import app_of_run

    if no_audit and (audit or audit_key):
        raise InputError("--no-audit and --audit, --audit-key: give one or the other")
    settings = Settings(
        tokens=tokens, rate=rate, audit=None if no_audit else audit or folder / "audit.sqlite", audit_key=audit_key,
        most_bytes=max_bytes, most_queries=max_queries, concurrency=concurrency, queue=queue, timeout=timeout,
        addresses=_addresses(site or []),
    )  # fmt: skip
    app, what = app_of_run(folder, settings, client=client, away=away or [])
    running = serve_in_thread(app, host, port, certificate=certificate, key=key, grace=timeout + 5)
    if tokens is None and host not in HERE:
        say(f"anybody who reaches {host} may ask: --tokens FILE changes that")
    print(f"fedroute: serving {what} on {running.url}", flush=True)
    until_told(running, say)
    if trouble := app.state.desk.audit.trouble:
        from fedroute.errors import RunFailed

        raise RunFailed(trouble)


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; stands in the audit.")],
    tokens: Annotated[Path, typer.Option(metavar="FILE", help="The file of tokens, made where there is none.")],
    remove: Annotated[bool, typer.Option("--remove", help="Nobody may ask with it any more.")] = False,
) -> None:
    """Make a token with which to ask a gateway. It is printed once, and kept nowhere but as a hash."""
    from fedroute.service.access import make_token, remove_token

    if remove:
        remove_token(tokens, name)
        say(f"{tokens}: {name} is removed")
    else:
        print(make_token(tokens, name))


def say(text: str) -> None:
    print(f"fedroute: {text}", file=sys.stderr, flush=True)


def _addresses(given: list[str]) -> dict[str, str]:
    found: dict[str, Any] = {}
    for pair in given:
        name, _, url = pair.partition("=")
        if not name or not is_url(url):
            raise InputError(f"--site {pair}: give NAME=URL, such as north=https://gateway.north.org")
        found[name] = url
    return found
