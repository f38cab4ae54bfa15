"""Starting and stopping a hub or a site, and how it stands, for the command line."""

import time
from collections.abc import Callable
from typing import Any

from fedroute.durable import write
from fedroute.errors import RunFailed
from fedroute.federation import supervise
from fedroute.federation.accepting import is_open
from fedroute.federation.folders import Folder, HubFolder, SiteFolder
from fedroute.federation.kit import need_nvflare
from fedroute.federation.state_file import read_state


def begin(folder: Folder, foreground: bool, wait: float, ready: Callable[[Folder], str]) -> None:
    """Starts it under a supervisor, or in the foreground becomes that; waits until it is ready and says so."""
    need_nvflare()
    (folder.root / "state.json").unlink(missing_ok=True)
    if foreground:
        raise SystemExit(supervise.supervise(folder.root))
    supervise.start(folder.root)
    end = time.monotonic() + wait
    while time.monotonic() < end:
        if words := ready(folder):
            print(words)
            return
        time.sleep(0.1)
    state = read_state(folder.root)
    if wait:
        why = state.get("words") or f"its log is {folder.log}"
        print(f"started, and not up after {wait:g} s: {why}\nit goes on trying; `fedroute {folder.kind()} status` says")
    else:
        print("started")


def end(folder: Folder) -> str:
    return "stopped" if supervise.stop(folder.root) else "it was not running"


def leave_for_good(site: SiteFolder) -> str:
    """Words on it. The site's process is started anew, to say so at the hub."""
    site.to_join()
    write(site.root / "left", time.strftime("%Y-%m-%d %H:%M:%S\n"))
    name = site.settings()["name"]
    if supervise.stop(site.root):
        supervise.start(site.root)
        return f"{name} has left, and says so when the hub asks; `fedroute site stop` when the hub has heard it"
    return f"{name} has left; the hub hears of it when the site is started again, and takes it for away until then"


def hub_is_up(folder: Folder) -> str:
    settings = folder.settings()
    if not read_state(folder.root).get("up"):
        return ""
    gateway = f"; routed queries at http://{settings['gateway']}" if settings.get("gateway") else ""
    return f"the hub is up: sites dial {settings['host']}:{settings['port']}{gateway}"


def site_is_in(folder: Folder) -> str:
    settings = folder.settings()
    if not read_state(folder.root).get("admitted"):
        return ""
    return f"{settings['name']} is admitted by the hub {settings['host']}:{settings['port']}"


def wait_for_run(hub: HubFolder, say: Callable[[str], None]) -> None:
    """Until the run has ended; `say` hears of each step. Raises RunFailed where it cannot go on, or the hub ends."""
    last = ""
    while True:
        if not supervise.Running(hub.root).alive:
            raise RunFailed(f"{hub.root}: the hub is not running: `fedroute hub start {hub.root}`")
        state = read_state(hub.root)
        if words := state.get("words"):
            raise RunFailed(f"{words}\nit is tried again when a site comes")
        if state.get("phase") == "done":
            return
        if state.get("phase") and (now := f"{state['phase']}: round {state['round']} of {state['rounds']}") != last:
            say(now)
            last = now
        time.sleep(0.3)


def hub_status(hub: HubFolder) -> dict[str, Any]:
    """running, process, restarts, host, port, and what the hub itself says: up, phase, round, rounds, sites."""
    settings = hub.settings()
    return _running(hub) | {k: settings[k] for k in ("host", "port")} | _state(hub)


def site_status(site: SiteFolder) -> dict[str, Any]:
    """running, process, restarts, name, joined, asked (whether a manifest waits for its owner), and what the site
    itself says: admitted, hub (whether it is connected now), words (what may be wrong)."""
    own = {"name": site.settings()["name"], "joined": site.joined, "asked": is_open(site)}
    return _running(site) | own | _state(site)


def hub_words(found: dict[str, Any]) -> str:
    if not found["running"]:
        return "the hub is not running"
    lines = [f"the hub is running (process {found['process']}, started anew {found['restarts']} times) and "
             + ("up" if found.get("up") else "not up yet")]  # fmt: skip
    if phase := found.get("phase"):
        lines.append(f"{phase}: round {found.get('round')} of {found.get('rounds')}")
    lines += [f"  {s['client']}: {'here' if s['here'] else 'away'}, {s['state']}" for s in found.get("sites", [])]
    if words := found.get("words"):
        lines.append(words)
    return "\n".join(lines)


def site_words(found: dict[str, Any]) -> str:
    name = found["name"]
    if not found["joined"]:
        return f"{name} has not joined yet"
    if not found["running"]:
        return f"{name} is not running"
    how = "connected with the hub" if found.get("hub") else "not connected with the hub"
    stands = f"{name} is running (process {found['process']}, started anew {found['restarts']} times), {how}"
    if found["asked"]:
        stands += "\nthe hub waits for its owner: `fedroute site manifest`, then `fedroute site accept`"
    return stands + (f"\n{found['words']}" if found.get("words") else "")


def _running(folder: Folder) -> dict[str, Any]:
    running = supervise.Running(folder.root)
    if running.alive and not running.supervisor:
        raise RunFailed(f"{folder.root}: its supervisor was killed: `fedroute {folder.kind()} stop`, then `start`")
    return {"running": running.alive, "process": running.process, "restarts": running.told.get("restarts", 0)}


def _state(folder: Folder) -> dict[str, Any]:
    return read_state(folder.root) if supervise.Running(folder.root).alive else {}
