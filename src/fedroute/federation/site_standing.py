"""How a site stands, as its owner is told: its own fault, the way to the hub, and what the hub said last of its run."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from fedroute.federation.twins import REPLACED, TWINS

SOONEST, LONGEST = 5.0, 60.0  # seconds between two looks at a fault of its own; doubled each time it is still there
ANEW = (
    "where the cause was here and is mended, start this site anew (`fedroute site stop`, `fedroute site start`): then "
    "the hub tries again"
)
STALE = 2.0  # seconds after a call of the hub in which it may still say how it stood before


class SiteStanding:
    """keep: is given what state.json is to say, at each change; from any thread. Of what the hub says only what is
    newer than its last call, and than the connection, is kept."""

    def __init__(self, keep: Callable[..., None]) -> None:
        self._keep, self._called = keep, -STALE
        self.hub, self.words, self.fault, self.odd, self.told = False, "", "", "", dict[str, str]()

    def is_in(self) -> None:
        """It is admitted, and so connected."""
        self.connected(True)

    def connected(self, here: bool, words: str = "") -> None:
        """words: where it is not, why."""
        told = self.told if here or self.told.get("words") in (TWINS, REPLACED) else {}
        self._set(hub=here, words=words, told=told)

    def called(self, fault: str, odd: str = "") -> None:
        """The hub asks for more than a sign of life, so that it goes on, whatever it said before. fault: for which this
        site refuses to take part; "" where it does not. odd: what it has seen in its data that may keep the sites from
        an agreement."""
        self._called = time.monotonic()
        self._set(fault=fault, odd=odd, told={} if _failed(self.told) else self.told)

    def has(self, fault: str) -> None:
        """What it found by itself."""
        self._set(fault=fault)

    def keep_looking(self, look: Callable[[], str], wait: Callable[[float], object] = time.sleep) -> None:
        """Looks what its own fault is, at once and then, while there is one, again and again: data may come
        back when the hub asks no more. Does not return."""
        self.has(look())
        pause = SOONEST
        while True:
            wait(pause)
            pause = min(2 * pause, LONGEST) if self.fault else SOONEST
            if self.fault:
                self.has(look())

    def heard(self, told: Mapping[str, Any], asked: float) -> None:
        """What the hub says of how it stands: phase and words. asked: when that was asked for (time.monotonic)."""
        now = {k: str(told.get(k) or "") for k in ("phase", "words")}
        if not (_failed(now) and asked - self._called < STALE):
            self._set(told=now)

    def _set(self, **now: Any) -> None:
        if any(getattr(self, k) != v for k, v in now.items()):
            vars(self).update(now)
            own = {"words": self.words, "fault": self.fault, "odd": self.odd}
            self._keep(admitted=True, hub=self.hub, hub_says=self.told, **own)


def _failed(told: Mapping[str, str]) -> bool:
    return told.get("phase") == "failed"


def words_on(found: Mapping[str, Any]) -> list[str]:
    """What of all that `site status` says, the newest alone where two could contradict each other. found: state.json,
    and asked, whether a manifest waits for the owner."""
    hub, lines = found.get("hub_says") or {}, list[str]()
    if fault := found.get("fault"):
        lines.append(f"it refuses to take part: {fault}")
    elif hub.get("phase") == "failed":
        why = "the hub's run cannot go on; its keeper sees why in `fedroute hub status`"
        lines += [f"{why}; {ANEW}", hub.get("words") or ""]
        if odd := found.get("odd"):
            lines.append(f"what was seen here when the hub asked last, and is not told there: {odd}")
    else:
        if found["asked"]:
            lines.append("the hub waits for its owner: `fedroute site manifest`, then `fedroute site accept`")
        lines.append(hub.get("words") or "")
    return [text for text in (*lines, found.get("words")) if text]
