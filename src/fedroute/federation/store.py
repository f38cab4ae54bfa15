"""What a site keeps to itself: its private trees, one for each round that it has trained, on its own disk.

private/
  identity.json                    whose weights these are: federation, model, algorithm, client
  00000012-5f0c....safetensors     the tree after round 12, and in its name the beginning of its SHA-256

Each file is written beside, synced and renamed. Another identity is refused; a torn file is found by its name.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedroute.durable import sync_folder, write, writing
from fedroute.errors import InputError
from fedroute.federation import wire
from fedroute.tensor_file import form_of, read_tensors, tree_of, write_tensors
from fedroute.tree import Tree

NAME = re.compile(r"(\d{8,})-([0-9a-f]{16})\.safetensors")
PARTS = ("federation", "model", "algorithm", "client")


class Found(NamedTuple):
    """A private tree. version: the round after which it was stored, 0 for the one that a client begins with; said:
    what the owner and the hub should hear where it is not the one that was asked for."""

    version: int
    tree: Tree
    said: str = ""


class Store:
    """The private trees of one client in one federation.

    identity: federation, model, algorithm and client, as texts. first: makes the tree that the client begins with.
    Raises InputError where the folder holds the weights of another identity."""

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, str],
        first: Callable[[], Tree],
        log: Callable[[str], None] = lambda text: None,
    ):
        self.folder, self.identity, self.first, self.log = folder, dict(identity), first, log
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._take()

    def versions(self) -> list[int]:
        """Those on the disk, ascending."""
        return sorted(self._files())

    def put(self, version: int, tree: Tree) -> None:
        """Keeps the tree as that of a round, also where there is one already.

        Raises RunFailed where the disk is full; what was there is then untouched."""
        if not version > 0:
            raise ValueError("version 0 is the one that the model starts with, and is not stored")
        beside = self.folder / ".writing"
        with self._lock, writing(self.folder):
            tensors: Tree = {}
            form = form_of(tree, "", tensors)
            digest = write_tensors(beside, tensors, {wire.FORM: json.dumps(form)})
            new = self.folder / f"{version:08d}-{digest[:16]}.safetensors"
            old = self._files().get(version)
            beside.replace(new)
            if old and old != new:
                old.unlink(missing_ok=True)
            sync_folder(self.folder)

    def get(self, version: int) -> Found:
        """The tree of a round. Where its file is torn, or is not there, the newest whole one before it, and that is
        said: to `log`, and in what is returned."""
        with self._lock:
            files = self._files()
            for v in sorted((v for v in files if v <= version), reverse=True):
                tree = self._read(files[v])
                if tree is not None:
                    return self._found(version, v, tree)
            return self._found(version, 0, self.first())

    def prune(self, keep: Iterable[int]) -> None:
        """Removes all versions but these and the newest."""
        with self._lock:
            files = self._files()
            for v in sorted(files)[:-1]:
                if v not in keep:
                    files[v].unlink(missing_ok=True)

    def _found(self, asked: int, got: int, tree: Tree) -> Found:
        if asked == got:
            return Found(got, tree)
        which = f"those of round {got} are taken" if got else "it begins anew"
        said = f"{self.identity.get('client', '')}: no whole private weights of round {asked} on its disk: {which}"
        self.log(said)
        return Found(got, tree, said)

    def _files(self) -> dict[int, Path]:
        return {int(m[1]): p for p in self.folder.iterdir() if (m := NAME.fullmatch(p.name))}

    def _read(self, path: Path) -> Tree | None:
        """None where the file is torn, which is said, and it is put aside."""
        match = NAME.fullmatch(path.name)
        assert match
        if not wire.sha256(path).startswith(match[2]):
            aside = path.with_name(f"torn-{path.name}")
            path.replace(aside)
            self.log(f"{path}: this file is torn; it is now {aside.name}, and the version before is taken")
            return None
        return tree_of(wire.form_in(path), read_tensors(path))

    def _take(self) -> None:
        """The folder is this identity's from now on."""
        path = self.folder / "identity.json"
        if path.exists():
            try:
                was = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as e:
                raise InputError(f"{path}: not readable ({e}): move the folder {self.folder} away") from e
            differ = [k for k in PARTS if was.get(k) != self.identity.get(k)]
            if differ:
                k = differ[0]
                raise InputError(
                    f"{self.folder}: holds private weights of another {k}: {was.get(k)!r}, and this is "
                    f"{self.identity.get(k)!r}; move the folder away, or name another one, to begin anew"
                )
            return
        if self._files():
            raise InputError(f"{self.folder}: holds private weights without identity.json: move the folder away")
        write(path, json.dumps(self.identity, indent=1, ensure_ascii=False) + "\n")


class Memory:
    """The same in memory: for sites that a simulation makes, whose state the simulation itself keeps."""

    def __init__(self, first: Callable[[], Tree]):
        self.first, self._trees = first, dict[int, bytes]()

    def versions(self) -> list[int]:
        return sorted(self._trees)

    def put(self, version: int, tree: Tree) -> None:
        self._trees[version] = wire.encode(tree)

    def get(self, version: int) -> Found:
        data = self._trees.get(version)
        return Found(version, wire.decode(data)) if data is not None else Found(0, self.first())

    def prune(self, keep: Iterable[int]) -> None:
        for v in self.versions()[:-1]:
            if v not in keep:
                del self._trees[v]

    def clear(self) -> None:
        self._trees.clear()
