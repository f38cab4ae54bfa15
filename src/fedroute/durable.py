"""Files that are whole or not there at all, and a full disk said in words."""

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from fedroute.errors import InputError, RunFailed

FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file may not grow",
}
BROKEN = {errno.EROFS: "the disk is read-only", errno.EIO: "the disk does not answer"}


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a write error of the file system, within the block, into RunFailed with one line that names `path`."""
    try:
        yield
    except OSError as e:
        words = (FULL | BROKEN).get(e.errno or 0)
        if words is None:
            raise
        raise RunFailed(f"{path}: not written: {words}{_free(path) if e.errno in FULL else ''}") from e


@contextlib.contextmanager
def taking(folder: Path) -> Iterator[None]:
    """Turns an error of the file system, while a folder is taken for a run, into one line: InputError where no run can
    be there, RunFailed where the disk is full."""
    with writing(folder):
        try:
            yield
        except OSError as e:
            if e.errno in FULL:
                raise
            why = (e.strerror or str(e)).lower()
            raise InputError(f"{folder}: cannot be used ({why}): name another folder or mend its rights") from e


def _free(path: Path) -> str:
    for folder in path.absolute().parents:
        if folder.exists():
            return f" ({shutil.disk_usage(folder).free / 1e6:.1f} MB free in {folder})"
    return ""


def write(path: Path, data: str | bytes) -> None:
    """`path` gets this content at once: written beside it, synced, renamed over it. Of two threads that write the same
    path the one that ends last stands.

    Raises RunFailed where the disk is full; `path` then is what it was."""
    beside = path.with_name(f".{path.name}.{threading.get_native_id()}.writing")
    with writing(path):
        try:
            with beside.open("wb") as f:
                f.write(data.encode() if isinstance(data, str) else data)
                f.flush()
                os.fsync(f.fileno())
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power loss."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
