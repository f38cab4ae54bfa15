"""A federation on this machine: a hub and four sites as processes of their own, with certificates, from nothing to a
ledger and a routed query. `python up.py`, and `python down.py` ends it.

Every line that begins with $ is a command that somebody would give at the hub or at a hospital."""

import argparse
import csv
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
FEDROUTE = [sys.executable, "-c", "from fedroute.cli import main; main()"]
HEART = Path(os.environ.get("FEDROUTE_DATA", "no-folder")) / "heart4"
PATIENT = {"age": 58, "sex": 1, "cp": "4", "trestbps": 150, "chol": 270, "fbs": 0, "restecg": "2", "thalach": 111,
           "exang": 1, "oldpeak": 0.8, "slope": "1", "ca": 0, "thal": "7"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "federation", help="the folder of all of it")
    parser.add_argument("--once", action="store_true", help="what has been started is ended by whoever asks for this")
    given = parser.parse_args()
    out: Path = given.out
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out}: not empty; `python down.py --remove` ends what runs there and removes it")
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    config, data, query = heart() if HEART.is_dir() else digits()
    hub, port, gateway = out / "hub", free_port(), f"127.0.0.1:{free_port()}"
    fedroute("hub", "init", config, "--out", hub, "--name", "localhost", "--port", port, "--gateway", gateway)
    for name, where in data.items():  # at each hospital, but for `approve`
        (out / f"{name}.yaml").write_text(where, encoding="utf-8")
        fedroute("site", "request", name, "--org", name, "--out", out / name)
        fedroute(
            "site", "approve", out / name / f"{name}.request.zip", "--hub", hub, "--out", out / f"{name}.signed.zip"
        )
        fedroute("site", "join", out / f"{name}.signed.zip", "--request", out / name, "--data", out / f"{name}.yaml")
    fedroute("hub", "start", hub)
    fedroute("site", "check", out / next(iter(data)))
    for name in data:
        fedroute("site", "start", out / name)
    for name in data:  # no site sends an update before its owner has seen what would leave, and agreed
        fedroute("site", "accept", out / name, quiet=name != next(iter(data)))
    fedroute("hub", "wait", hub)
    ledger(hub / "run" / "clients.csv")
    ask(f"http://{gateway}/v1/predict", query)
    ends = "" if given.once else "; `python down.py` ends it"
    print(f"\n{time.monotonic() - began:.0f} s; report: {hub / 'run' / 'report.html'}{ends}")


def heart() -> tuple[Path, dict[str, str], object]:
    sites = ("cleveland", "hungarian", "switzerland", "va")
    return HERE / "heart.yaml", {s: f"path: {HEART / f'processed.{s}.data'}\n" for s in sites}, PATIENT


def digits() -> tuple[Path, dict[str, str], object]:
    from sklearn.datasets import load_digits

    sites = ("archive", "bank", "clinic", "school")
    scan = (load_digits().images[0] / 16).round(4).tolist()
    return HERE / "digits.yaml", dict.fromkeys(sites, "source: bundled\nname: digits\n"), scan


def fedroute(*words: object, quiet: bool = False) -> None:
    if not quiet:
        print("$ fedroute " + shlex.join(map(str, words)), flush=True)
    done = subprocess.run([*FEDROUTE, *map(str, words)], stdout=subprocess.DEVNULL if quiet else None, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def ledger(file: Path) -> None:
    columns = ("client", "train", "test", "personal", "global", "alone", "better_off")
    with file.open(encoding="utf-8") as f:
        rows = [columns, *([row[c][:5] if c in columns[3:6] else row[c] for c in columns] for row in csv.DictReader(f))]
    for row in rows:
        print("  ".join(f"{v:12}" for v in row))


def ask(url: str, query: object) -> None:
    """A query from outside: the hub picks the hospital, and the hospital's own model answers."""
    body = json.dumps({"query": query}).encode()
    print(f"$ curl {url} -d {shlex.quote(body.decode()[:100])}")
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        print(json.dumps(json.load(reply), indent=1)[:1500])


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


if __name__ == "__main__":
    main()
