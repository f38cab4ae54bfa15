"""The peers' virtual environment, and what machine and versions a result belongs to."""

import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REQUIREMENTS = (("peers.txt", ()), ("peers-no-deps.txt", ("--no-deps",)))


def peers_python(cache: Path, install: bool) -> Path | None:
    """The interpreter that has the peers, made if it may be; None where there is none and it may not or cannot be made.

    It is made again when the requirements have changed.
    """
    home = cache / "peers"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = "".join((HERE / name).read_text() for name, _ in REQUIREMENTS)
    stamp = home / "installed.txt"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    if not install:
        return None
    print(f"installing the peers into {home} (once) ...", file=sys.stderr, flush=True)
    venv.create(home, with_pip=True, clear=True)
    for name, flags in REQUIREMENTS:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *flags, "-r", HERE / name]
        if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
            return None
    stamp.write_text(wanted)
    return python


def machine() -> dict[str, object]:
    info: dict[str, object] = {
        "cpu": platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
    }
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return info
    fields = dict(part for line in lines if len(part := [p.strip() for p in line.split(":", 1)]) == 2)
    flags = fields.get("flags", "").split()
    info["cpu"] = fields.get("model name", info["cpu"])
    info["flags"] = [f for f in flags if f.startswith(("avx", "amx", "fma", "sse4"))]
    info["load"] = os.getloadavg()
    return info


def commit() -> str:
    """The commit measured, with a `+` where the tree differs from it; empty outside a repository."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], check=False, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    head = git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if head and git("status", "--porcelain") else "")
