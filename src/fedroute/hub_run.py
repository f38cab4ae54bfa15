"""The run of a hub, whose clients' models and rows are at their sites: what cannot be done with its folder, and what to
do instead. Light to import."""

import json
import re
from pathlib import Path

AGREED, GUIDE = "agreement.json", "guide.safetensors"
RUN = re.compile(r"run(-\d+)?")  # what the folder of a hub's run is called, and those of the runs before


def hub_of(folder: Path) -> Path | None:
    """The hub's folder, where `folder` is one or holds the run of one (of a run that was copied out of it: the folder
    above); else None."""
    above = folder.absolute().parent
    if _is_hub(folder):
        return folder
    if (folder / AGREED).exists() or (RUN.fullmatch(folder.name) and _is_hub(above)):
        return above
    return None


def _is_hub(folder: Path) -> bool:
    try:
        found = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("kind") == "hub"


def no_models(folder: Path, hub: Path) -> str:
    """Why no query can be answered from that folder, and who answers it."""
    run = folder if (folder / AGREED).exists() else folder / "run"
    words = f"{folder}: the run of a federation between organisations, whose models stay at the sites"
    if (run / "summary.json").exists() and not (run / GUIDE).exists():
        return (f"{words}, and it was made without a router: stop the hub, put `router: auto` into "
                f"{hub / 'federation.yaml'}, then `fedroute hub start {hub} --new-run`")  # fmt: skip
    return (f"{words}: ask the hub's gateway, as in `curl -s http://HOST:PORT/v1/predict -H 'content-type: "
            f"application/json' -d '{{\"query\": {{...}}}}'`, or with `fedroute.service.Client(URL)`; `fedroute hub "
            f"status {hub}` says where it is; where there is none, stop the hub, put `\"gateway\": \"127.0.0.1:8080\"` "
            f"into {hub / 'settings.json'}, and start it")  # fmt: skip


def goes_on(folder: Path, hub: Path) -> str:
    """How it is gone on with."""
    return f"{folder}: the run of a hub, and only that goes on with it: `fedroute hub start {hub}`"
