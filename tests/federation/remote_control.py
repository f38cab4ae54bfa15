"""What runs in the processes of the tests: a hub whose transport is worked from outside over a socket, and sites that
echo."""

import base64
import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedroute.federation.transport import Handler, Payload, Refused, Transport, TransportError

SAY = Callable[[str], None]


def echo(folder: Path, say: SAY) -> Handler:
    """A site that says back what it hears; `sleep` first, `fail` by words, `break` by an error of its own."""

    def handler(method: str, payload: Payload) -> Payload:
        if method == "fail":
            raise Refused("the words of the site")
        if method == "break":
            raise ZeroDivisionError("secret of the site")
        if method in ("sleep", "query"):
            time.sleep(float(str(payload.get("seconds", 0))))
        if method == "who":
            return {"pid": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]}
        if method == "large":
            return {"data": bytes(int(str(payload["bytes"])))}
        return payload

    return handler


def serve(folder: Path, transport: Transport, stop: threading.Event, say: SAY) -> None:
    """Answers one JSON line a connection at FOLDER/control: what to call, or "nodes", or "changes"."""
    changes: list[tuple[str, bool]] = []
    transport.on_change(lambda node, here: changes.append((node, here)))

    class Line(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked = json.loads(self.rfile.readline())
            self.wfile.write(json.dumps(reply(asked)).encode() + b"\n")

    def reply(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["do"] == "nodes":
            return {"nodes": transport.nodes()}
        if asked["do"] == "changes":
            return {"changes": changes}
        begun = time.perf_counter()
        try:
            got = transport.call(asked["node"], asked["method"], unpacked(asked["payload"]), asked["timeout"])
        except TransportError as e:
            return {"error": type(e).__name__, "words": str(e), "s": time.perf_counter() - begun}
        return {"reply": packed(got), "s": time.perf_counter() - begun}

    path = folder / "control"
    path.unlink(missing_ok=True)
    with socketserver.ThreadingUnixStreamServer(str(path), Line) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stop.wait()
        server.shutdown()


def ask(path: Path, **what: Any) -> dict[str, Any]:
    """The other end of `serve`."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(300)
        s.connect(str(path))
        s.sendall(json.dumps(what).encode() + b"\n")
        with s.makefile("rb") as f:
            if not (line := f.readline()):
                raise ConnectionResetError("it ended in the middle of its answer")
            found: dict[str, Any] = json.loads(line)
            return found


def packed(payload: Payload) -> dict[str, Any]:
    return {k: {"bytes": base64.b64encode(v).decode()} if isinstance(v, bytes) else v for k, v in payload.items()}


def unpacked(payload: dict[str, Any]) -> Payload:
    return {k: base64.b64decode(v["bytes"]) if isinstance(v, dict) else v for k, v in payload.items()}
