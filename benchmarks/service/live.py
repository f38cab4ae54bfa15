"""The gateway of a real federation: a hub and two sites in processes of their own on this machine, with certificates.

Single queries over HTTP, one after the other: while nothing else happens, and while the sites train. Prints numbers."""

import http.client
import json
import random
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS, WARM = 300, 30
SITES = ("north", "south")
ROUNDS, LONG = 5, 2000  # of the run that is waited for, and of the one during which is asked
CONFIG: dict[str, Any] = {
    "federation": {"source": "csv", "label": "ill", "split": {"validation": 0.2, "test": 0.2}},
    "model": {"name": "mlp", "hidden": [32]}, "algorithm": "fedrod", "router": "auto",
    "hub": {"sites": [*SITES]},
}  # fmt: skip


def measured() -> dict[str, Any]:
    """{idle, training}: {p50, p95} in ms of one query, and how many were answered by another than the chosen site."""
    from fedroute.federation import supervise

    root, port, gateway = Path(tempfile.mkdtemp()), free_port(), free_port()
    try:
        joined(root, port, gateway)
        for name in ("hub", *SITES):
            supervise.start(root / name)
        until(lambda: state(root).get("phase") == "done", root)
        idle = asked(gateway)
        # the same federation goes on with many more rounds; the guide of the first run stays in force
        supervise.stop(root / "hub")
        guide = (root / "hub" / "run" / "guide.safetensors").read_bytes()
        shutil.rmtree(root / "hub" / "run")
        (root / "hub" / "run").mkdir()
        (root / "hub" / "run" / "guide.safetensors").write_bytes(guide)
        config(root / "hub" / "federation.yaml", LONG)
        (root / "hub" / "state.json").unlink(missing_ok=True)
        supervise.start(root / "hub")
        until(lambda: state(root).get("phase") == "training" and state(root)["round"] > 1, root)
        training = asked(gateway)
        return {
            "sites": len(SITES),
            "milliseconds": {"idle": idle, "training": training},
            "still": state(root)["phase"],
        }
    finally:
        for name in ("hub", *SITES):
            if (root / name).exists():
                supervise.stop(root / name)
        shutil.rmtree(root, ignore_errors=True)


def joined(root: Path, port: int, gateway: int) -> None:
    """The folders of the hub and of both sites."""
    from fedroute.config import from_dict
    from fedroute.federation import onboarding
    from fedroute.federation.folders import SiteFolder

    given = from_dict(CONFIG | {"training": training(ROUNDS)})
    hub = onboarding.init_hub(given, root / "hub", "localhost", port, gateway=f"127.0.0.1:{gateway}")
    for name in SITES:
        (root / f"{name}.csv").write_text(table(name), encoding="utf-8")
        (root / f"{name}.yaml").write_text(f"path: {name}.csv\n", encoding="utf-8")
        request, _ = onboarding.request(name, "org", root / name)
        signed = onboarding.approve(request, hub, root / f"{name}.zip").signed
        site = SiteFolder.at(root / name)
        onboarding.join(signed, site, root / f"{name}.yaml")
        site.keep(**site.settings() | {"accept": "any"})


def training(rounds: int) -> dict[str, Any]:
    return {"rounds": rounds, "local_epochs": 2, "batch_size": 16, "lr": 0.05, "alone": False}


def config(file: Path, rounds: int) -> None:
    import yaml

    from fedroute.config import from_dict

    file.write_text(yaml.safe_dump(from_dict(CONFIG | {"training": training(rounds)}).resolved()), encoding="utf-8")


def table(name: str) -> str:
    """400 rows of four numbers and a label; the sites' rows lie apart."""
    made, lines, shift = random.Random(name), ["a,b,c,d,ill"], float(SITES.index(name))
    for _ in range(400):
        x = [made.gauss(shift, 1.0) for _ in range(4)]
        lines.append(",".join(f"{v:.3f}" for v in x) + (",yes" if x[0] + x[1] > 2 * shift else ",no"))
    return "\n".join(lines) + "\n"


def asked(gateway: int) -> dict[str, Any]:
    """Of CALLS single queries, from when the gateway is ready."""
    end = time.monotonic() + 60
    while not ready(gateway):
        if time.monotonic() > end:
            raise SystemExit("the gateway is not ready within 60 s")
        time.sleep(0.1)
    connection, made, took, fallback = http.client.HTTPConnection("127.0.0.1", gateway), random.Random(1), [], 0
    for i in range(WARM + CALLS):
        body = json.dumps({"query": {c: round(made.gauss(0.5, 1.0), 3) for c in "abcd"}})
        began = time.perf_counter()
        connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {told}")
        if i >= WARM:
            took.append((time.perf_counter() - began) * 1e3)
            fallback += told["fallback"]
    connection.close()
    took.sort()
    return {
        "p50": round(statistics.median(took), 3),
        "p95": round(took[int(0.95 * len(took))], 3),
        "fallbacks": fallback,
    }


def ready(gateway: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", gateway, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def state(root: Path) -> dict[str, Any]:
    from fedroute.federation.state_file import read_state

    return read_state(root / "hub")


def until(what: Callable[[], bool], root: Path, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds:g} s:\n{(root / 'hub' / 'log.txt').read_text()[-2000:]}")
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
