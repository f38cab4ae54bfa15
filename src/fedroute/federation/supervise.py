"""The supervisor of a hub or a site: starts its process, starts it anew when it ends, and ends with all it started.

    python -m fedroute.federation.supervise FOLDER

process.json holds the supervisor's and the process' ids. Whether one runs is told by a lock that both hold open, never
by an id that another process may have got since."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedroute.durable import write
from fedroute.errors import InputError, RunFailed
from fedroute.federation.folders import HubFolder, SiteFolder
from fedroute.federation.said import say_to
from fedroute.federation.settling import settle

FIRST, LONGEST = 0.5, 30.0  # seconds before a process is started anew; doubled each time one lived shorter than LONGEST
GRACE = 15.0  # seconds that a process has to end by itself


def command(folder: Path, settings: Mapping[str, Any]) -> list[str]:
    """NVFLARE's long-lived process of a hub or a site."""
    kit, org = folder / "kit", settings["org"]
    if settings["kind"] == "hub":
        module, file, name = "server.server_train", "fed_server.json", []
    else:
        module, file, name = "client.client_train", "fed_client.json", [f"uid={settings['name']}"]
    return [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{module}", "-m", str(kit), "-s", file, "--set",
            "secure_train=true", *name, f"org={org}", "config_folder="]  # fmt: skip


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """One thread a process by default, as the engines of a simulation compute: same sums, same weights."""
    threads = str(settings.get("threads", 1))
    paths = [str(Path(p).absolute()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return os.environ | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MALLOC_ARENA_MAX": "4",
        "PYTHONPATH": os.pathsep.join(paths),
    }


class Running:
    """What is known of the processes of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alive = _locked(folder)
        self.told = _told(folder) if self.alive else {}

    @property
    def process(self) -> int | None:
        """The id of the hub's or site's own process."""
        return self.told.get("process")

    @property
    def supervisor(self) -> int | None:
        found = self.told.get("supervisor")
        return found if found and exists(found) else None


def start(folder: Path) -> None:
    """Starts the supervisor in a session of its own and returns. Raises InputError where one runs already."""
    if Running(folder).alive:
        raise InputError(f"{folder}: it runs already; `stop` ends it")
    (folder / "process.json").unlink(missing_ok=True)
    with (folder / "process.log").open("ab") as log:
        begun = subprocess.Popen(
            [sys.executable, "-m", "fedroute.federation.supervise", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder,
            env=os.environ | {"PYTHONPATH": environment({})["PYTHONPATH"]},
        )  # fmt: skip
    for _ in range(1200):
        if Running(folder).process:
            return
        if begun.poll() is not None:
            break
        time.sleep(0.05)
    raise RunFailed(f"{folder}: the supervisor did not start; {folder / 'process.log'} says why")


def stop(folder: Path) -> bool:
    """Ends supervisor and process, and waits for their end; whether there was one."""
    running = Running(folder)
    if not running.alive:
        return False
    group, supervisor, left = running.told.get("group"), running.supervisor, True
    if supervisor:
        os.kill(supervisor, signal.SIGTERM)
    end = time.monotonic() + GRACE + 5.0
    while _locked(folder):
        if group and left and not (supervisor and exists(supervisor)):
            left = False  # a supervisor that was killed leaves its process behind
            _signal_group(group, signal.SIGTERM)
        if group and time.monotonic() > end:
            _signal_group(group, signal.SIGKILL)
        time.sleep(0.05)
    return True


def supervise(folder: Path) -> int:
    """Runs until it is told to end. 1 where another one does so already."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not _take(lock):
        print(f"{folder}: it runs already", file=sys.stderr)
        return 1
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: over.set())
    (folder / "state.json").unlink(missing_ok=True)
    say = say_to(folder / "log.txt")
    settings = _settled(folder)
    wait, restarts = FIRST, 0
    while not over.is_set():
        begun = time.monotonic()
        process = subprocess.Popen(
            command(folder, settings), stdin=subprocess.DEVNULL, env=environment(settings), cwd=folder, pass_fds=(lock,)
        )
        write(folder / "process.json", json.dumps({
            "supervisor": os.getpid(), "process": process.pid, "group": os.getpgid(0), "restarts": restarts,
            "since": time.time(),
        }))  # fmt: skip
        say(f"process {process.pid} started" + (f", start {restarts + 1}" if restarts else ""))
        while process.poll() is None and not over.wait(0.1):
            pass
        if over.is_set():
            _end(process)
            say(f"process {process.pid} was told to end, and has")
            break
        wait = FIRST if time.monotonic() - begun > LONGEST else min(2 * wait, LONGEST) if restarts else FIRST
        restarts += 1
        say(f"process {process.pid} ended by itself ({_how(process.returncode)}); it is started anew in {wait:g} s")
        over.wait(wait)
    return 0


def _settled(folder: Path) -> dict[str, Any]:
    """The settings, once the kit fits them."""
    settings: dict[str, Any] = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    at = HubFolder(folder) if settings["kind"] == "hub" else SiteFolder(folder)
    settle(at)
    return at.settings()


def _take(lock: int) -> bool:
    """The lock, for which whoever asks whether something runs may hold it for a moment."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit {code}"


def _told(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "process.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _locked(folder: Path) -> bool:
    try:
        lock = os.open(folder / ".lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # so that two who ask at once do not see each other
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def exists(process: int) -> bool:
    """Whether it runs: one that has ended and whose end nobody has asked for does not."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # no /proc
        return True
    return state != "Z"


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1])))
