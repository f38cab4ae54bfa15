"""A run's state on disk: safetensors for weights, JSON for the rest, whole or not there at all.

checkpoint/
  00000012-0/               rounds done, and a count where a round was saved more than once
    server.safetensors      the server's tree
    private-0.safetensors   the clients' trees; clients that share one (those not trained yet) have it once
    state.json              everything else of the state, and how the tensors nest
    SHA256SUMS              of the files above, as the tool `sha256sum -c` reads it

A checkpoint is written into a folder of another name, synced, and renamed: a kill at any moment leaves the last one
as it was. The last two are kept, and share no file. No pickles.
"""

import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedroute.core import BY_TRAINING
from fedroute.durable import sync_folder, write, writing
from fedroute.errors import InputError
from fedroute.quarantine import Quarantined
from fedroute.tensor_file import form_of, raw, read_tensors, tree_of, write_tensors
from fedroute.tree import Tree, Weights

if TYPE_CHECKING:
    from fedroute.config import Training
    from fedroute.core import Algorithm
    from fedroute.data.federation import Federation
    from fedroute.rounds import State

SCHEMA = 1
KEPT = 2
TENSORS_A_FILE = 200_000  # the header of a safetensors file is limited to 100 MB
CLIENTS, MOST_NAMED = "clients", 5
SAMPLE_BYTES = 1 << 26  # of a federation's data that go into its fingerprint
MEASURES = {"evaluate_every", "checkpoint_every", "alone"}  # parts of `training` that do not change the weights
NAME = re.compile(r"\d{8,}-\d+")
WORKING = ".writing"


class _Torn(Exception):
    """A checkpoint that cannot be what was written."""


def save(folder: Path, state: "State", fingerprint: Mapping[str, str]) -> Path:
    """Writes a checkpoint of `state` under `folder` and removes all but it and the one before. Returns its folder.

    Raises RunFailed where the disk is full; the checkpoints that were there are then untouched."""
    working = folder / WORKING
    with writing(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(working, ignore_errors=True)
            working.mkdir()
            _write_state(working, state, fingerprint)
            sync_folder(working)
            final = _free_name(folder, state.round)
            working.rename(final)
            sync_folder(folder)
        except OSError:
            shutil.rmtree(working, ignore_errors=True)
            raise
    before = [p for p in _checkpoints(folder) if _order(p) < _order(final)]
    for p in folder.iterdir():
        if p.is_dir() and p not in (final, *before[1 - KEPT :]):
            shutil.rmtree(p, ignore_errors=True)
    return final


def load_newest(
    folder: Path,
    fingerprint: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda text: None,
    put_aside: bool = False,
) -> "State | None":
    """The state of the newest whole checkpoint under `folder`, or None where there is none.

    fingerprint: of what the caller is about to train; None: no comparison. `say` hears of every torn checkpoint;
    put_aside: those are renamed, so that none counts as "the one before" when the next is saved.
    Raises InputError where the checkpoint is another run's or a newer fedroute's."""
    for path in reversed(_checkpoints(folder)):
        try:
            document = _verified(path)
            _compare(path, document["fingerprint"], fingerprint)
            return _read_state(path, document)
        except _Torn as e:
            say(f"{path}: this checkpoint is torn ({e}); taking the one before")
            if put_aside:
                path.rename(path.with_name(f"torn-{path.name}"))
    return None


def fingerprint(federation: "Federation", algorithm: "Algorithm", training: "Training", seed: int) -> dict[str, str]:
    """What decides the weights of a run, part by part, so that a checkpoint of another run is refused by naming it.

    Of a federation whose rows hold more than 64 MB, evenly spaced rows are hashed. The engine is not part of it.
    CLIENTS decides nothing: it says whose rows are others, where those of the federation are."""
    f, task = federation, algorithm.task
    stride = max(1, f.x.numel() * f.x.element_size() // SAMPLE_BYTES)
    names = (f.clients, f.labels, f.columns) + ((f.newcomers,) if f.newcomers else ())
    data = _hash([f.x[::stride], f.y, *f.train, *f.validation, *f.test], repr(names))
    shapes = [(k, tuple(v.shape), str(v.dtype), task.roles[k], k in task.trainable) for k, v in task.init().items()]
    options = training.model_dump(mode="json", exclude=MEASURES)
    own = {k.name: getattr(algorithm, k.name) for k in dataclasses.fields(algorithm) if k.name not in BY_TRAINING}
    return {
        "federation": f"{f.name}, {len(f.clients)} clients, {len(f.x)} rows, {data}",
        CLIENTS: json.dumps(_by_client(f, stride), ensure_ascii=False),
        "model": f"{type(task.module).__name__}, {len(shapes)} tensors, {_hash([], repr((shapes, task.module)))}",
        "algorithm": f"{type(algorithm).__qualname__}({', '.join(f'{k}={v!r}' for k, v in own.items())})",
        **{f"training.{k}": json.dumps(v, sort_keys=True) for k, v in options.items()},
        "seed": str(seed),
    }


def _by_client(f: "Federation", stride: int) -> dict[str, str]:
    """client -> a hash of its own rows, of those of a table as they were read; {} where there are no rows here."""
    rows = f.x if f.hashes is None else f.hashes
    if not len(rows):
        return {}
    parts = zip(f.clients, f.train, f.validation, f.test, strict=True)
    own = {c: torch.cat(p).sort().values for c, *p in parts}
    return {c: _hash([rows[at if f.hashes is not None else at[::stride]], f.y[at]], "") for c, at in own.items()}


def _hash(tensors: Iterable[Tensor], text: str) -> str:
    h = hashlib.sha256(text.encode())
    for t in tensors:
        h.update(f"{t.dtype} {tuple(t.shape)}".encode())
        h.update(raw(t))
    return h.hexdigest()[:12]


def _order(path: Path) -> tuple[int, int]:
    done, _, count = path.name.partition("-")
    return int(done), int(count)


def _checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if NAME.fullmatch(p.name)), key=_order)


def _free_name(folder: Path, done: int) -> Path:
    same = [_order(p)[1] for p in _checkpoints(folder) if _order(p)[0] == done]
    return folder / f"{done:08d}-{max(same, default=-1) + 1}"


# writing


def _write_state(folder: Path, state: "State", fingerprint: Mapping[str, str]) -> None:
    sums: dict[str, str] = {}
    server: Weights = {}
    form = form_of(state.server, "", server)
    sums["server.safetensors"] = write_tensors(folder / "server.safetensors", server)
    document = {
        "schema": SCHEMA,
        "fingerprint": dict(fingerprint),
        "torch": torch.__version__,
        "state": {k: v for k, v in vars(state).items() if k not in ("server", "privates")},
        "server": form,
        "privates": _write_privates(folder, state.privates, sums),
    }
    text = json.dumps(document, default=_plain).encode()
    write(folder / "state.json", text)
    sums["state.json"] = hashlib.sha256(text).hexdigest()
    write(folder / "SHA256SUMS", "".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    raise TypeError(f"a state may hold trees of tensors and plain JSON values, not {type(value).__name__}")


def _write_privates(folder: Path, privates: Mapping[int, Tree], sums: dict[str, str]) -> dict[str, Any]:
    """Each distinct tree once. {"forms": [nesting], "trees": [[file, prefix, place of its form, clients]]}."""
    clients: dict[tuple[str, ...], list[int]] = {}
    leaves: dict[tuple[str, ...], tuple[str, Weights]] = {}
    for client, tree in privates.items():
        tensors: Weights = {}
        form = json.dumps(form_of(tree, "", tensors))
        key = (form, *map(str, map(id, tensors.values())))
        clients.setdefault(key, []).append(client)
        leaves[key] = form, tensors
    forms: dict[str, int] = {}
    trees: list[list[object]] = []
    batch: Weights = {}
    file = 0
    for number, (key, (form, tensors)) in enumerate(leaves.items()):
        if batch and len(batch) + len(tensors) > TENSORS_A_FILE:
            sums[f"private-{file}.safetensors"] = write_tensors(folder / f"private-{file}.safetensors", batch)
            batch, file = {}, file + 1
        batch |= {f"{number}/{name}": t for name, t in tensors.items()}
        place = forms.setdefault(form, len(forms))
        trees.append([f"private-{file}.safetensors", str(number), place, clients[key]])
    sums[f"private-{file}.safetensors"] = write_tensors(folder / f"private-{file}.safetensors", batch)
    return {"forms": [json.loads(form) for form in forms], "trees": trees}


# reading


def _verified(path: Path) -> dict[str, Any]:
    """The checked state.json of a checkpoint whose files all have their checksum. Raises _Torn."""
    try:
        lines = (path / "SHA256SUMS").read_text().splitlines()
        sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        if "state.json" not in sums:
            raise _Torn("SHA256SUMS is cut off")
        for name, digest in sums.items():
            with (path / name).open("rb") as f:
                if hashlib.file_digest(f, "sha256").hexdigest() != digest:
                    raise _Torn(f"{name} is not what was written")
        document: dict[str, Any] = json.loads((path / "state.json").read_text())
    except PermissionError as e:
        raise InputError(f"{e.filename}: may not be read: give this user the right to") from e
    except OSError as e:
        raise _Torn(f"{Path(e.filename or path).name}: {e.strerror}") from e
    except ValueError as e:
        raise _Torn(str(e)) from e
    if document.get("schema") != SCHEMA:
        raise InputError(
            f"{path}: a checkpoint of schema {document.get('schema')}, this fedroute reads {SCHEMA}: "
            "resume with the version that wrote it"
        )
    return document


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What differs between what two runs are, in words; "" where nothing does."""
    differ = [k for k in dict.fromkeys([*was, *now]) if was.get(k) != now.get(k)]
    words = "; ".join(f"{k} was {was.get(k, 'not given')}, is {now.get(k, 'not given')}" for k in differ[:3])
    return words + (f"; and {len(differ) - 3} more" if len(differ) > 3 else "")


def _whose(was: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Whose rows are others, where both say; "" where nobody's are."""
    before, after = (json.loads(of.get(CLIENTS, "{}")) for of in (was, now))
    if not before or not after:
        return ""
    changed = [c for c in after if c in before and before[c] != after[c]]
    found = {"the rows of {} have changed": changed, "{} came": [c for c in after if c not in before],
             "{} went": [c for c in before if c not in after]}  # fmt: skip
    words = [text.format(_named(clients)) for text, clients in found.items() if clients]
    return f" ({'; '.join(words)})" if words else ""


def _named(clients: Sequence[str]) -> str:
    more = f" and {len(clients) - MOST_NAMED} more" if len(clients) > MOST_NAMED else ""
    return ", ".join(clients[:MOST_NAMED]) + more


def _compare(path: Path, was: Mapping[str, str], now: Mapping[str, str] | None) -> None:
    """Raises InputError naming what differs, and whose data."""
    if now is None:
        return
    deciding = ({k: v for k, v in of.items() if k != CLIENTS} for of in (was, now))
    if words := differences(*deciding):
        raise InputError(
            f"{path}: the checkpoint of another run: {words}{_whose(was, now)}. "
            "Resume with the data and config it was started with, or start anew in another folder"
        )


def _read_state(path: Path, document: dict[str, Any]) -> "State":
    from fedroute.rounds import State

    read: dict[str, Weights] = {}
    privates: dict[int, Tree] = {}
    for file, prefix, form, clients in document["privates"]["trees"]:
        if file not in read:
            read[file] = read_tensors(path / file)
        tree = tree_of(document["privates"]["forms"][form], read[file], f"{prefix}/")
        privates |= dict.fromkeys(clients, tree)
    rest: dict[str, Any] = document["state"]
    rest["quarantined"] = [Quarantined(*row) for row in rest["quarantined"]]
    known = {f.name for f in dataclasses.fields(State)}
    return State(
        server=tree_of(document["server"], read_tensors(path / "server.safetensors")),
        privates=dict(sorted(privates.items())),
        **{k: v for k, v in rest.items() if k in known},
    )
