"""What the hub makes of a site's word that it is there: two processes under one name, and what it says back."""

import time
from collections.abc import Mapping
from typing import Any

from fedroute.federation.transport import Payload

TWINS = "two processes run under this name and take turns: was its folder copied? stop one of them"
REPLACED = (
    "another process under this name was connected until this one came: was its folder copied? then stop one of them"
)
CANNOT = "the run cannot go on: "
WITHIN = 120.0  # seconds after which processes that took turns are forgotten
SHOWN = 15.0  # seconds for which it is told that one replaced another: it may have ended in a way that nobody saw


class Twins:
    """Sites of which two processes take turns: one that was replaced by another came back."""

    def __init__(self) -> None:
        self._before = dict[str, dict[str, float]]()  # site -> process that was replaced -> when
        self._seen, self._replaced = dict[str, float](), dict[str, float]()

    def came(self, name: str, old: str, new: str) -> bool:
        """A process of this site replaces another; whether two take turns, where that has not been said lately."""
        now, before = time.monotonic(), self._before.setdefault(name, {})
        before[old] = self._replaced[name] = now
        if now - before.pop(new, -WITHIN) >= WITHIN:
            return False
        fresh = self.notes().get(name) != TWINS
        self._seen[name] = now
        return fresh

    def notes(self) -> dict[str, str]:
        """site -> TWINS, of those of which two were there lately, or REPLACED, where another may be there."""
        now = time.monotonic()
        found = {name: REPLACED for name, when in list(self._replaced.items()) if now - when < SHOWN}
        return found | {name: TWINS for name, when in list(self._seen.items()) if now - when < WITHIN}


def told_to(name: str, state: Mapping[str, Any], since: float = 0.0, note: str = "") -> Payload:
    """What a site is told of how the hub stands: the phase of the run, and of the reason why it does not go on the
    lines that begin with its name. What is said of others is for the hub's keeper. since: when the site came, in
    seconds since 1970: what the run failed of before that is tried again. note: how the site is connected."""
    if state.get("phase") == "failed" and float(state.get("failed_at") or since) < since:
        return {"phase": "", "words": note}
    if note:
        return {"phase": str(state.get("phase") or ""), "words": note}
    lines = [line.removeprefix(CANNOT) for line in str(state.get("words") or "").splitlines()]
    own = [line for line in lines if line.startswith((f"{name}:", f"{name} "))]
    return {"phase": str(state.get("phase") or ""), "words": "\n".join(own)[:2000]}
