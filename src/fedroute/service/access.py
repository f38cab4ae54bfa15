"""Who may ask, and how often."""

import hashlib
import json
import os
import secrets
import threading
import time
from collections import OrderedDict
from pathlib import Path

from fedroute.durable import write
from fedroute.errors import InputError
from fedroute.options import nearest
from fedroute.service.refusal import Refusal

KNOWN = 10_000  # askers that are remembered by the rate limit
LOOK = 1.0  # seconds after which the file of tokens is looked at again


def make_token(path: Path, name: str) -> str:
    """A new token of this name, whose hash is put into the file; the token itself is nowhere but in what is returned.
    It has 256 random bits, so that a plain SHA-256 of it tells nothing.

    Raises InputError where the name is taken or no name, or the file is none of tokens."""
    if not name or not name.isprintable() or len(name) > 100:
        raise InputError(f"token: {name!r} is no name; give one to 100 letters")
    known = _read(path) if path.exists() else {}
    if name in known:
        raise InputError(f"token: {path} has a token {name!r} already; take another name, or remove it there first")
    token = secrets.token_urlsafe(32)
    _write(path, known | {name: _hash(token)})
    return token


def remove_token(path: Path, name: str) -> None:
    """Nobody may ask with it any more; a gateway that runs notices within seconds. Raises InputError where there is
    none of that name."""
    known = _read(path)
    if name not in known:
        raise InputError(f"token: {path} has no token {name!r}; {nearest(name, known)}")
    _write(path, {k: v for k, v in known.items() if k != name})


class Tokens:
    """The tokens in a file, which may change while a gateway runs. path: None: anybody may ask."""

    def __init__(self, path: Path | None):
        self.path = path
        self._names = {} if path is None else self._by_hash(path)
        self._stamp, self._looked = self._of_file(), time.monotonic()

    def who(self, authorization: str | None) -> str:
        """The name of the token in an Authorization header; "" where anybody may ask. Raises Refusal, 401."""
        if self.path is None:
            return ""
        self._look()
        kind, _, token = (authorization or "").partition(" ")
        name = self._names.get(_hash(token.strip())) if kind.lower() == "bearer" else None
        if name is None:
            why = "this token is not known" if authorization else "a token is needed"
            raise Refusal(401, why, "send the header Authorization: Bearer TOKEN, with a token of `fedroute token`")
        return name

    def _look(self) -> None:
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        if (stamp := self._of_file()) != self._stamp:
            assert self.path is not None
            try:
                self._names, self._stamp = self._by_hash(self.path), stamp
            except InputError:  # half-written, or gone: those that were known stay until it can be read
                return

    def _of_file(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path) if self.path else None
        except OSError:
            found = None
        return (found.st_mtime_ns, found.st_ino) if found else (0, 0)

    def _by_hash(self, path: Path) -> dict[str, str]:
        return {digest: name for name, digest in _read(path).items()}


class Rate:
    """So many requests a second of each asker, twice as many at once (a token bucket). rate: None: no limit."""

    def __init__(self, rate: float | None):
        self.rate, self.burst = rate, 2 * max(1.0, rate or 1.0)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # asker -> (requests left, when that was)
        self._lock = threading.Lock()

    def take(self, asker: str, now: float | None = None) -> None:
        """Counts a request. now: seconds of a clock that never goes back. Raises Refusal, 429."""
        if self.rate is None:
            return
        now = time.monotonic() if now is None else now
        with self._lock:
            left, then = self._left.pop(asker, (self.burst, now))
            left = min(self.burst, left + (now - then) * self.rate)
            taken = left >= 1
            self._left[asker] = (left - taken, now)
            if len(self._left) > KNOWN:
                self._left.popitem(last=False)
        if not taken:
            wait = (1 - left) / self.rate
            raise Refusal(429, f"more than {self.rate:g} requests a second", f"ask again in {wait:.2g} s",
                          retry=wait)  # fmt: skip


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _read(path: Path) -> dict[str, str]:
    """{name: SHA-256 of its token}."""
    mend = "make one with `fedroute token NAME --tokens FILE`"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        known = found["tokens"]
        if not all(isinstance(k, str) and isinstance(v, str) and len(v) == 64 for k, v in known.items()):
            raise TypeError
    except OSError as e:
        raise InputError(f"{path}: the file of tokens cannot be read ({e.strerror}); {mend}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: is no file of tokens; {mend}") from None
    return dict(known)


def _write(path: Path, known: dict[str, str]) -> None:
    try:
        write(path, json.dumps({"tokens": known}, indent=1) + "\n")
        path.chmod(0o600)
    except OSError as e:
        raise InputError(f"{path}: cannot be written ({e.strerror}); name a file in a folder that there is") from None
