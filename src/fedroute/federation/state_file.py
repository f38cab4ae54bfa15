"""state.json of a hub or a site: how it stands, for `status`."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from fedroute.durable import write


def write_state(folder: Path, **state: Any) -> None:
    """Replaces the state. A full disk must not end a process over it."""
    with contextlib.suppress(OSError, RuntimeError):
        write(folder / "state.json", json.dumps(state | {"at": time.time()}))


def read_state(folder: Path) -> dict[str, Any]:
    """The state, {} where there is none."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
