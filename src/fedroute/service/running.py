"""A gateway that runs: in a thread of another program, or as the command `fedroute serve`."""

import signal
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from fedroute.errors import InputError, RunFailed

WAIT = 30.0  # seconds in which a server must have started


@dataclass(eq=False)
class Running:
    """A gateway in a thread. url: where it listens."""

    url: str
    port: int
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        """Takes no more requests, answers those that are open, closes the audit, and returns when that is done."""
        self.server.should_exit = True
        self.thread.join()


def serve_in_thread(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    grace: float = 15.0,
) -> Running:
    """Begins to serve, and returns once it does. port 0: any that is free. certificate, key: PEM files; then it is
    HTTPS and nothing else. grace: seconds that open requests have at the end.

    Raises InputError where the address cannot be had, or certificate and key are not of each other; then the app is
    closed."""
    try:
        check_certificate(certificate, key)
        taken = _socket(host, port)
    except InputError:
        app.state.close()
        raise
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, lifespan="on",
        timeout_graceful_shutdown=round(grace), timeout_keep_alive=75, ws="none",
        ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, name="fedroute-gateway", daemon=True)
    thread.start()
    waited = threading.Event()
    while not server.started and thread.is_alive():
        waited.wait(0.01)
    if not server.started:
        raise RunFailed("the gateway did not start; the log above says why")
    actual = taken.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return Running(f"{'https' if certificate else 'http'}://{shown}:{actual}", actual, server, thread)


def until_told(running: Running, say: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C, then ends cleanly."""
    told = threading.Event()
    before = {s: signal.signal(s, lambda *_: told.set()) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not told.wait(0.5):
            if not running.thread.is_alive():
                raise RunFailed("the gateway ended by itself; the log above says why")
        say("ending: open requests are answered first")
        running.stop()
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _socket(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise InputError(f"--port: {port} is no port; give a number from 0 (any that is free) to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle on: 40 ms
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, port))
    except OSError as e:
        why = (e.strerror or str(e)).lower()
        raise InputError(
            f"--host {host} --port {port}: {why}; take another, or --port 0 for any that is free"
        ) from None
    return taken


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raises InputError unless they are a certificate and its own key, or both None."""
    if (certificate is None) != (key is None):
        raise InputError("certificate and key belong together: give both, or neither")
    if certificate is None or key is None:
        return
    for path in (certificate, key):
        if not path.is_file():
            raise InputError(f"{path}: no such file; give certificate and key as PEM files")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as e:
        raise InputError(
            f"{certificate}, {key}: cannot be used ({e}); give a PEM certificate and its own key"
        ) from None
