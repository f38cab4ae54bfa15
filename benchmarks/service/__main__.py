"""`python -m benchmarks.service [DIR]`: the gateway in a process of its own on one core, asked from here.

DIR: a run with a router; without it one is trained, on heart4 where FEDROUTE_DATA has it, on a made table otherwise.
What is compared is measured in turns in one run: a call of an empty FastAPI application, a bare forward pass of one
client's model, a routed answer of the run directory, and one through a transport. Beside the time on the clock stands
the processor's time in the process that serves, which other work on the machine moves less. Prints one JSON object.

`python -m benchmarks.service --live` asks a real federation instead: see `live`."""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS, WARM = 600, 60
BATCHES = (64, 256, 1024)


def main() -> None:
    if sys.argv[1:] == ["--live"]:
        from benchmarks.service.live import measured

        print(json.dumps(measured(), indent=1))
        return
    import torch

    from fedroute import Router
    from fedroute.evaluate.predict import predict

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else trained(Path(scratch))
        router = Router.load(folder)
        rows = queries(router)
        x = router.encode(rows[:1])
        with Served("empty") as empty, Served("run", folder) as run, Served("live", folder) as live:
            body = json.dumps({"query": rows[0]})
            found = in_turns({
                "empty_call": lambda: empty.post("/", body),
                "forward_pass": lambda: predict(router.models.task, router.models.personal[0], x),
                "route": lambda: run.post("/v1/route", body),
                "predict": lambda: run.post("/v1/predict", body),
                "predict_live": lambda: live.post("/v1/predict", body),
            })  # fmt: skip
            processor = {
                "empty_call": processor_ms(empty, lambda: empty.post("/", body)),
                "route": processor_ms(run, lambda: run.post("/v1/route", body)),
                "predict": processor_ms(run, lambda: run.post("/v1/predict", body)),
                "predict_live": processor_ms(live, lambda: live.post("/v1/predict", body)),
            }
            many = {str(n): per_second(run, rows, n) for n in BATCHES}
    bare = found["empty_call"]["p50"] + found["forward_pass"]["p50"]
    told = {
        "run": str(folder.name), "clients": len(router.clients), "rule": router.rule, "milliseconds": found,
        "above_bare_ms": {k: round(found[k]["p50"] - bare, 3) for k in ("route", "predict", "predict_live")},
        "processor_ms": processor,
        "predictions_per_second_by_batch": many,
        "held": {
            "predict p50 within 2 ms of an empty call and a forward pass": found["predict"]["p50"] - bare < 2,
            "live p50 under 5 ms": found["predict_live"]["p50"] < 5,
            "1,000 routed predictions a second in batches on one core": max(many.values()) >= 1000,
        },
    }  # fmt: skip
    print(json.dumps(told, indent=1))


class Served:
    """An application in a process of its own, on one core."""

    def __init__(self, kind: str, folder: Path | None = None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "benchmarks.service.served", kind, str(port), str(folder or "")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout
        if not self.process.stdout.readline():
            raise SystemExit(f"{kind} did not start")
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def post(self, path: str, body: str) -> bytes:
        self.connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {data.decode()}")
        return data

    def seconds(self) -> float:
        """Of the processor, until now; 0 where the system does not say."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        if not stat.exists():
            return 0.0
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


def in_turns(calls: dict[str, Callable[[], Any]]) -> dict[str, dict[str, float]]:
    """name -> {p50, p95}, in ms; every call in every turn, so that what else the machine does falls on all."""
    took: dict[str, list[float]] = {k: [] for k in calls}
    for _ in range(CALLS + WARM):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            took[name].append((time.perf_counter() - start) * 1e3)
    kept = {k: sorted(v[WARM:]) for k, v in took.items()}
    return {k: {"p50": round(statistics.median(v), 3), "p95": round(v[int(0.95 * len(v))], 3)} for k, v in kept.items()}


def processor_ms(served: Served, call: Callable[[], Any]) -> float:
    """Of one call, in the process that serves."""
    call()
    before = served.seconds()
    for _ in range(CALLS):
        call()
    return round((served.seconds() - before) / CALLS * 1e3, 3)


def per_second(run: Served, rows: list[dict[str, Any]], n: int) -> int:
    """Routed answers a second, in batches of n, one after the other for two seconds or more."""
    body = json.dumps({"queries": [rows[i % len(rows)] for i in range(n)]})
    run.post("/v1/predict/batch", body)
    start, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < 2:
        run.post("/v1/predict/batch", body)
        done += n
    return round(done / spent)


def queries(router: Any) -> list[dict[str, Any]]:
    """Of a table: near its middle, each otherwise."""
    table = router.form.table
    if table is None:
        raise SystemExit("this benchmark is of tables: give the run of one")
    s = table.federated
    return [
        {c: round(s.mean[k] + s.scale[k] * ((7 * i + k) % 11 - 5) / 10, 3) for k, c in enumerate(table.numeric)}
        | {c: names[i % len(names)] for c, names in table.categorical.items()}
        for i in range(50)
    ]


def trained(scratch: Path) -> Path:
    from fedroute.config import from_dict
    from fedroute.jobs import start

    federation: dict[str, Any] = {"source": "registry", "name": "heart4"}
    if "FEDROUTE_DATA" not in os.environ:
        from tests.service.conftest import wards

        (scratch / "wards.csv").write_text(wards())
        federation = {"source": "csv", "path": str(scratch / "wards.csv"), "client": "ward", "label": "ill"}
    config = {
        "federation": federation, "model": {"name": "mlp", "hidden": [32]}, "algorithm": "fedrod",
        "engine": "sequential", "router": "auto",
        "training": {"rounds": 15, "local_epochs": 1, "lr": 0.05, "alone": False},
    }  # fmt: skip
    start(from_dict(config), scratch / "run", progress=lambda *_: None, log=lambda text: None)
    return scratch / "run"


if __name__ == "__main__":
    main()
