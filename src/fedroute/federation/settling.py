"""At each start a kit is made to fit where its folder lies and what the settings say: a folder may be copied, moved or
restored elsewhere, and host or port be changed in settings.json."""

import json
from pathlib import Path
from typing import Any

from fedroute.durable import write
from fedroute.federation.folders import Folder


def settle(folder: Folder) -> None:
    """Paths inside the folder, in the kit and in settings.json, name it where it is now; the kit has the settings' host
    and port."""
    resources = folder.kit / "local" / "resources.json"
    found = _read(resources)
    before = next((str(c["args"]["folder"]) for c in found["components"] if "folder" in c.get("args", {})), "")
    if before and before != str(folder.root):
        _replace(resources, _moved(found, before, str(folder.root)))
        settings = folder.settings()
        folder.keep(**{k: v for k, v in _moved(settings, before, str(folder.root)).items() if k != "kind"})
    settings = folder.settings()
    if "host" not in settings or "port" not in settings:
        return
    for file in (folder.kit / "startup").glob("fed_[sc]*.json"):
        kit = _read(file)
        for server in kit["servers"]:
            server["service"]["target"] = f"{settings['host']}:{settings['port']}"
            if "admin_port" in server:
                server["admin_port"] = settings["port"]
        _replace(file, kit)


def _moved(found: Any, before: str, now: str) -> Any:
    if isinstance(found, dict):
        return {k: _moved(v, before, now) for k, v in found.items()}
    if isinstance(found, list):
        return [_moved(v, before, now) for v in found]
    if isinstance(found, str) and (found == before or found.startswith(before + "/")):
        return now + found[len(before) :]
    return found


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _replace(file: Path, content: dict[str, Any]) -> None:
    if _read(file) != content:
        write(file, json.dumps(content, indent=1) + "\n")
