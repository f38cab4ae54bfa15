"""Starting and stopping a hub or a site, and how it stands, for the command line."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedroute.errors import InputError, RunFailed
from fedroute.federation import supervise
from fedroute.federation.accepting import is_open
from fedroute.federation.asking import LEFT
from fedroute.federation.folders import Folder, HubFolder, SiteFolder
from fedroute.federation.kit import need_nvflare
from fedroute.federation.leaving import UNHEARD, left_words
from fedroute.federation.ports import bound_at, fault_at, one_port, port_words
from fedroute.federation.site_standing import words_on
from fedroute.federation.state_file import read_state
from fedroute.federation.twins import REPLACED, TWINS

UNSAID = 5.0  # seconds that the first word of the hub is waited for by who is admitted
PROCESS_LOG = "process.log"  # what the processes print


def begin(folder: Folder, foreground: bool, wait: float, ready: Callable[[Folder], str], new_run: bool = False) -> None:
    """Starts it under a supervisor, or in the foreground becomes that; waits until it is ready and says so. new_run: a
    hub begins a run, and that which is there is kept under another name.

    Raises InputError where it runs already, its port is taken or a hub's config is wrong, RunFailed where it is not
    ready in time."""
    need_nvflare()
    startable(folder)
    if isinstance(folder, HubFolder):
        from fedroute.federation.hub_config import checked_start
        from fedroute.federation.run_before import put_aside

        for text in checked_start(folder, new_run):
            print(f"note: {text}")
        if new_run and (kept := put_aside(folder)):
            print(f"the run before is kept in {kept}")
    if foreground:
        raise SystemExit(supervise.supervise(folder.root))
    log = _size(folder.log), _size(folder.root / PROCESS_LOG)
    supervise.start(folder.root)
    end, said = time.monotonic() + wait, ""
    while time.monotonic() < end:
        if words := ready(folder):
            print(words)
            return
        if (why := str(read_state(folder.root).get("words") or "")) and why != said:
            print(f"not yet: {why}", file=sys.stderr)
            said = why
        time.sleep(0.1)
    if not wait:
        print("started")
        return
    heard = "\n".join(filter(None, (last_words(folder.log, log[0]), last_words(folder.root / PROCESS_LOG, log[1]))))
    raise RunFailed(
        f"started, and not up after {wait:g} s: {said or 'why is not known yet'}\n{heard}\n"
        f"it goes on trying; `fedroute {folder.kind()} status` says, and `stop` ends it"
    )


def startable(folder: Folder) -> None:
    """Raises InputError where it runs already, or its port is another program's: before anything is written."""
    if supervise.Running(folder.root).alive:
        raise InputError(f"{folder.root}: it runs already; `stop` ends it")
    if not isinstance(folder, HubFolder):
        return
    settings = folder.settings()
    if fault := one_port(settings["port"], settings.get("gateway")):
        raise InputError(f"{folder.settings_file}: gateway {settings['gateway']}: {fault}")
    if fault := fault_at(bound_at(settings["host"]), settings["port"]):
        raise InputError(port_words(fault, folder.settings_file))


def last_words(file: Path, since: int, lines: int = 6) -> str:
    """The last lines of what was appended after so many bytes."""
    if not file.exists():
        return ""
    with file.open("rb") as f:
        f.seek(since if since <= _size(file) else 0)
        return "\n".join(f"  {line}" for line in f.read().decode("utf-8", "replace").splitlines()[-lines:])


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def end(folder: Folder) -> str:
    return "stopped" if supervise.stop(folder.root) else "it was not running"


def hub_is_up(folder: Folder) -> str:
    settings, state = folder.settings(), read_state(folder.root)
    if not state.get("up") or (settings.get("gateway") and "gateway" not in state and not state.get("words")):
        return ""
    gateway = f"; {state['gateway']}" if state.get("gateway") else ""
    words = f"\n{state['words']}" if state.get("words") else ""
    return f"the hub is up: sites dial {settings['host']}:{settings['port']}{gateway}{words}"


def site_is_in(folder: Folder) -> str:
    settings, state = folder.settings(), read_state(folder.root)
    gateway = _own_gateway(folder)
    if not state.get("admitted") or (settings.get("gateway") and not gateway and not state.get("fault")):
        return ""
    if state.get("hub_says") == {} and time.time() - float(state["at"]) < UNSAID:
        return ""  # whether another process runs under this name the hub says in its first answer
    words = f"{settings['name']} is admitted by the hub {settings['host']}:{settings['port']}"
    twin = (state.get("hub_says") or {}).get("words")
    return "\n".join([words + (f"; {gateway}" if gateway else ""), *([twin] if twin in (TWINS, REPLACED) else [])])


def wait_for_run(hub: HubFolder, say: Callable[[str], None]) -> None:
    """Until the run has ended; `say` hears of each step. Raises RunFailed where it cannot go on, or the hub ends."""
    last = ""
    while True:
        if not supervise.Running(hub.root).alive:
            raise RunFailed(f"{hub.root}: the hub is not running: `fedroute hub start {hub.root}`")
        state = read_state(hub.root)
        if words := state.get("words"):
            raise RunFailed(words)
        if state.get("phase") == "done":
            return
        if state.get("phase") and (now := f"{state['phase']}: round {state['round']} of {state['rounds']}") != last:
            say(now)
            last = now
        time.sleep(0.3)


def hub_status(hub: HubFolder) -> dict[str, Any]:
    """running, process, restarts, host, port, and what the hub itself says: up, phase, round, rounds, sites, gateway
    (where queries are answered, or why nowhere), words (why it does not go on)."""
    settings = hub.settings()
    return _running(hub) | {k: settings[k] for k in ("host", "port")} | _state(hub)


def site_status(site: SiteFolder) -> dict[str, Any]:
    """running, process, restarts, name, joined, asked (whether a manifest waits for its owner), gateway (HOST:PORT of
    its own) and gateway_says (how that stands; both only where it has one), left (words, only where it has), and what
    the site itself says: admitted, hub (whether it is connected now), words (why it is not), fault (for which it
    refuses to take part), hub_says (phase and words of the hub's run)."""
    settings = site.settings()
    own = {"name": settings["name"], "joined": site.joined, "asked": is_open(site)}
    if settings.get("gateway"):
        own |= {"gateway": settings["gateway"], "gateway_says": _own_gateway(site)}
    if words := left_words(site.root):
        own["left"] = words
    return _running(site) | own | _state(site)


def hub_words(found: dict[str, Any]) -> str:
    if not found["running"]:
        return "the hub is not running"
    lines = [f"the hub is running (process {found['process']}, started anew {found['restarts']} times) and "
             + ("up" if found.get("up") else "not up yet")]  # fmt: skip
    if phase := found.get("phase"):
        lines.append(f"{phase}: round {found.get('round')} of {found.get('rounds')}")
    for s in found.get("sites", []):
        words = str(s.get("words") or "")
        once = s["state"] == LEFT and LEFT in words  # one that has left is not let in, since it has left
        lines.append(f"  {s['client']}: {s['state']}" + (f"; {words}" if words and not once else ""))
    lines += [found[k] for k in ("gateway", "words") if found.get(k)]
    return "\n".join(lines)


def site_words(found: dict[str, Any]) -> str:
    name = found["name"]
    if not found["joined"]:
        return f"{name} has not joined yet"
    if words := found.get("left"):
        if not found["running"]:
            return f"{name} {words}"
        heard = "it runs for nothing more: `fedroute site stop` ends it"
        return f"{name} {words}; {'it runs only to say so at the hub' if UNHEARD in words else heard}"
    if not found["running"]:
        return f"{name} is not running"
    how = "connected with the hub" if found.get("hub") else "not connected with the hub"
    stands = f"{name} is running (process {found['process']}, started anew {found['restarts']} times), {how}"
    gateway = []
    if at := found.get("gateway"):
        gateway = [found.get("gateway_says") or f"its own gateway at {at} has not said yet how it stands"]
    return "\n".join([stands, *gateway, *words_on(found)])


def _own_gateway(folder: Folder) -> str:
    from fedroute.federation.site_gateway import own_gateway

    return own_gateway(folder.root, supervise.Running(folder.root).process)


def _running(folder: Folder) -> dict[str, Any]:
    running = supervise.Running(folder.root)
    if running.alive and not running.supervisor:
        raise RunFailed(f"{folder.root}: its supervisor was killed: `fedroute {folder.kind()} stop`, then `start`")
    return {"running": running.alive, "process": running.process, "restarts": running.told.get("restarts", 0)}


def _state(folder: Folder) -> dict[str, Any]:
    return read_state(folder.root) if supervise.Running(folder.root).alive else {}
