"""`python -m benchmarks.service.served KIND PORT [DIR]`: what is asked, in a process of its own on one core."""

import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any


def application(kind: str, folder: Path) -> Any:
    """empty: FastAPI that answers {}; run: the gateway of a run directory; live: of a hub with in-process sites."""
    if kind == "empty":
        from fastapi import FastAPI

        app = FastAPI()

        @app.post("/")
        async def nothing() -> dict[str, str]:
            return {}

        app.state.close = lambda: None
        return app
    from fedroute import Router
    from fedroute.federation.inprocess import InProcess
    from fedroute.router.guide import Guide
    from fedroute.service.answers import Live, Own
    from fedroute.service.gateway import make_app
    from fedroute.service.serving import Service
    from fedroute.service.settings import Settings

    audit = Settings(audit=Path(tempfile.mkdtemp()) / "audit.sqlite")
    if kind == "run":
        return make_app(Service.of_run(folder), audit)
    router = Router.load(folder)
    transport = InProcess({c: Site(Own.of(router, c).apart()) for c in router.clients})
    transport.start()
    return make_app(Service(Guide.of(router), Live(transport, router.clients)), audit)


class Site:
    """Answers queries."""

    def __init__(self, own: Any):
        self.own = own

    def __call__(self, method: str, payload: Any) -> Any:
        from safetensors.torch import load, save

        return {"p": save({"p": self.own.answer(load(payload["x"])["x"])}), "version": 1}


def main() -> None:
    import torch

    from fedroute.service.running import serve_in_thread

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    kind, port, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    running = serve_in_thread(application(kind, folder), port=port)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    print(running.url, flush=True)
    ended.wait()
    running.stop()


if __name__ == "__main__":
    main()
