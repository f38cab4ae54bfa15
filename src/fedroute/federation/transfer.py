"""Large trees in pieces: each piece a small message, so that queries pass between them, and after a break it goes on
from where the other side is. What is carried is known by its SHA-256: that is its name, and its check."""

import hashlib
import os
import tempfile
import threading
from pathlib import Path

from fedroute.durable import sync_folder, writing
from fedroute.federation.patience import Caller
from fedroute.federation.transport import Payload, Refused

CHUNK = 4 << 20  # bytes of a piece
MOST = 64 << 30  # bytes of one transfer that is taken at all
PARTIAL = ".part"


class Spool:
    """A folder of transfers, each a file named by the SHA-256 of its bytes; those not complete end with `.part`.

    A half one survives a restart. most: bytes that a transfer may have. Thread safe."""

    def __init__(self, folder: Path, most: int = MOST):
        self.folder, self.most, self._lock = folder, most, threading.RLock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, id: str) -> Path:
        """Where a complete transfer lies. Raises Refused for a name that is none."""
        if len(id) != 64 or set(id) - set("0123456789abcdef"):
            raise Refused("a transfer is named by the 64 digits of its SHA-256")
        return self.folder / id

    def have(self, id: str) -> int:
        """Bytes that are here."""
        with self._lock:
            path = self.path(id)
            for p in (path, self._partial(path)):
                if p.exists():
                    return p.stat().st_size
            return 0

    def complete(self, id: str) -> Path:
        """Raises Refused where it is not here, or not whole."""
        path = self.path(id)
        if not path.exists():
            raise Refused(f"transfer {id[:12]} is not here: send it first")
        return path

    def add(self, data: bytes) -> str:
        """Takes what is whole already; its name."""
        id = hashlib.sha256(data).hexdigest()
        self.put(id, 0, len(data), data)
        return id

    def take(self, file: Path, id: str) -> None:
        """Takes a file of this folder, whose name this is from now on."""
        file.replace(self.path(id))

    def put(self, id: str, offset: int, size: int, data: bytes) -> int:
        """Takes a piece, where it is the next one; the bytes that are here then. The last one's checksum is looked at:
        what is not what its name says is thrown away. Raises Refused."""
        if not 0 <= size <= self.most:
            raise Refused(f"a transfer of {size:,} bytes; at most {self.most:,} are taken here")
        with self._lock, writing(self.folder):
            path = self.path(id)
            if path.exists():
                return path.stat().st_size
            partial = self._partial(path)
            have = partial.stat().st_size if partial.exists() else 0
            if offset != have:
                return have
            if have + len(data) > size:
                raise Refused(f"transfer {id[:12]}: more bytes than the {size:,} that were said")
            with partial.open("ab") as f:
                f.write(data)
                have = f.tell()
                if have == size:
                    f.flush()
                    os.fsync(f.fileno())
            if have == size:
                with partial.open("rb") as f:
                    if hashlib.file_digest(f, "sha256").hexdigest() != id:
                        partial.unlink()
                        raise Refused(f"transfer {id[:12]}: its bytes are not those of its name; send it anew")
                partial.replace(path)
                sync_folder(self.folder)
            return have

    def get(self, id: str, offset: int, length: int) -> tuple[bytes, int]:
        """(a piece, the size of all). Raises Refused where it is not here."""
        path = self.complete(id)
        with path.open("rb") as f:
            f.seek(max(0, offset))
            return f.read(min(max(0, length), CHUNK)), path.stat().st_size

    def drop(self, id: str) -> None:
        with self._lock:
            path = self.path(id)
            path.unlink(missing_ok=True)
            self._partial(path).unlink(missing_ok=True)

    def keep(self, ids: set[str]) -> None:
        """Drops all that is complete but these."""
        with self._lock:
            for p in self.folder.iterdir():
                if p.name.removesuffix(PARTIAL) not in ids and len(p.name.removesuffix(PARTIAL)) == 64:
                    p.unlink(missing_ok=True)

    def handle(self, method: str, payload: Payload) -> Payload:
        """The site's side of `push` and `pull`: the methods have, put, get, drop."""
        id = str(payload.get("id"))
        match method:
            case "have":
                return {"have": self.have(id)}
            case "put":
                data = payload.get("data")
                if not isinstance(data, bytes):
                    raise Refused("put: data are bytes")
                return {"have": self.put(id, number(payload, "offset"), number(payload, "size"), data)}
            case "get":
                data, size = self.get(id, number(payload, "offset"), number(payload, "length"))
                return {"data": data, "size": size}
            case _:
                self.drop(id)
                return {}

    @staticmethod
    def _partial(path: Path) -> Path:
        return path.with_name(path.name + PARTIAL)


def number(payload: Payload, key: str) -> int:
    """A count in a payload. Raises Refused where it is none."""
    value = payload.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(f"{key}: {value!r} is no count")
    return value


def push(caller: Caller, source: bytes | Path, id: str, chunk: int = CHUNK) -> int:
    """Brings all bytes of `source`, whose SHA-256 is `id`, to the other side; the bytes that were sent now. What is
    there already is not sent again. Raises Away, Late when the caller's patience ends, and Refused."""
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    have, sent = _count(caller.ask("have", {"id": id})), 0
    while have < size or not size:
        data = _piece(source, have, chunk)
        reply = caller.ask("put", {"id": id, "offset": have, "size": size, "data": data})
        now = _count(reply)
        if now == have and size:
            raise Refused(f"{caller.node} does not take the bytes after {have:,}")
        sent, have = sent + len(data), now
        if not size:
            break
    return sent


def pull(caller: Caller, id: str, size: int, to: Path, chunk: int = CHUNK) -> Path:
    """Fetches the transfer `id` of `size` bytes into the folder `to`; its file. Raises Away, Late when the caller's
    patience ends, and Refused, also where the bytes are not those of the name."""
    spool = Spool(to)
    have = spool.have(id)
    while have < size or not spool.path(id).exists():
        reply = caller.ask("get", {"id": id, "offset": have, "length": chunk})
        data, says = reply.get("data"), reply.get("size")
        if not isinstance(data, bytes) or says != size or (not data and size):
            raise Refused(f"{caller.node}: a piece of transfer {id[:12]} is not what was asked for")
        have = spool.put(id, have, size, data)
    return spool.path(id)


def spooled(folder: Path | None = None) -> "tempfile.TemporaryDirectory[str]":
    """A folder for transfers that end with this process. One that is under way while it is removed is no fault."""
    return tempfile.TemporaryDirectory(prefix="fedroute-", dir=folder, ignore_cleanup_errors=True)


def _piece(source: bytes | Path, offset: int, length: int) -> bytes:
    if isinstance(source, bytes):
        return source[offset : offset + length]
    with source.open("rb") as f:
        f.seek(offset)
        return f.read(length)


def _count(reply: Payload) -> int:
    return number(reply, "have")
