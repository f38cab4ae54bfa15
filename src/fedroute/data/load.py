"""load_federation(): from the `federation:` part of a config to clients with training, validation and test rows."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.data.hashes import row_hashes
from fedroute.data.no_config import instead
from fedroute.data.rows import Names, Rows
from fedroute.data.shift import apply, relabel
from fedroute.data.spec import Registry, Table, check
from fedroute.data.table import TableSchema
from fedroute.errors import InputError

_READERS = {
    "parquet": "tables", "csv": "tables", "images": "images", "npz": "arrays", "bundled": "bundled",
}  # fmt: skip
MANY = 20  # clients, above which it is odd that most have a single row


def load_federation(spec: Mapping[str, Any] | Path | str, seed: int = 0, base: Path | None = None) -> Federation:
    """spec: the `federation:` part of a config, a YAML file that has one, or "bundled:NAME" ("registry:NAME").
    seed: draws splits, partition, shift and concept. base: where relative paths start, the YAML file's folder or the
    current one by default.

    Raises InputError for whatever is wrong with spec or data, with file, column, client and the mend."""
    found, base = read_spec(spec, base)
    checked = checked_source(found)
    reader: Callable[..., Rows] = import_module(f"fedroute.data.sources.{_READERS[checked.source]}").read
    rows = reader(checked) if checked.source == "bundled" else reader(checked, base)
    return build(rows, checked, seed)


def checked_source(spec: Mapping[str, Any]) -> Any:
    """The `federation:` part checked, a known set by its description. Raises InputError."""
    checked = check(spec)
    if isinstance(checked, Registry):
        from fedroute.data.registry import description

        checked = check(description(checked.name) | (checked.model_extra or {}))
    return checked


def read_spec(spec: Mapping[str, Any] | Path | str, base: Path | None = None) -> tuple[dict[str, Any], Path]:
    """The `federation:` part as a dict, and where its relative paths start."""
    if isinstance(spec, Mapping):
        return dict(spec), base or Path.cwd()
    text = str(spec)
    source, colon, name = text.partition(":")
    if colon and source in ("bundled", "registry"):
        return {"source": source, "name": name}, base or Path.cwd()
    import yaml

    path = Path(text)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        words = instead(path) or f"cannot be read ({reason}); give a YAML file or bundled:digits"
        raise InputError(f"{path}: {words}") from None
    except yaml.YAMLError as e:
        if words := instead(path):
            raise InputError(f"{path}: {words}") from None
        raise InputError(f"{path}: is not YAML: {' '.join(str(e).split())}") from None
    part = content.get("federation") if isinstance(content, dict) else None
    if isinstance(part, str):
        return read_spec(part, base or path.parent)
    if not isinstance(part, dict):
        words = instead(path) or "has no `federation:` part; add `federation: {source: ..., ...}`"
        raise InputError(f"{path}: {words}")
    return part, base or path.parent


def read_seed(federation: str, seed: int | None = None) -> int:
    """The seed of what `read_spec` reads: that of the YAML file, 0 where it says none; `seed` where that is given.
    Raises InputError for one that is no seed."""
    if seed is None and not federation.startswith(("bundled:", "registry:")):
        import yaml

        content = yaml.safe_load(Path(federation).read_text(encoding="utf-8-sig"))
        seed = 0 if (found := content.get("seed")) is None else found
    seed = 0 if seed is None else seed
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed: {seed!r} is no whole number from 0; give one, such as 0")
    return seed


def build(rows: Rows, spec: Any, seed: int) -> Federation:
    """Rows as read to a federation: clients by name or made, labels coded, rows split, the table encoded, shifts
    applied."""
    if rows.client is None and spec.partition is None:
        raise InputError(
            f"{rows.name}: whose row is whose? Name the column (`client: ...`), give a file per client "
            "(`paths: {name: file}`), or let clients be made: `partition: {method: dirichlet, clients: 10}`"
        )
    if rows.client is not None and spec.partition is not None:
        raise InputError(f"{rows.name}: the rows have clients already; leave out `partition` or the clients")
    if isinstance(rows.label, Names):
        y, labels = torch.from_numpy(rows.label.codes), rows.label.kinds
    else:
        y, labels = torch.from_numpy(rows.label.astype("float32")), ()
    if len(y) == 0:
        raise InputError(f"{rows.name}: no rows with a label and a client are left; look at the file and the label")
    notes = list(rows.notes)
    if rows.client is not None:
        there = set(rows.client.codes.tolist())
        if empty := [c for i, c in enumerate(rows.client.kinds) if i not in there]:
            notes.append(f"clients without a usable row, left out: {', '.join(empty)}")
        sizes = np.bincount(rows.client.codes)
        single, clients = int((sizes == 1).sum()), int((sizes > 0).sum())
        if clients > MANY and single > clients / 2:
            column = getattr(spec, "client", None)
            named = f"federation.client: {column!r} makes" if column else "there are"
            notes.append(f"{named} {clients} clients, {single} of them of a single row: is it the id of a patient and "
                         "not of a site? Name the column that says where a row comes from")  # fmt: skip
    time = None if rows.time is None else torch.from_numpy(rows.time)
    if spec.split.by == "time" and time is None:
        raise InputError(f"{rows.name}: federation.split.by is time; name the time column: `time: ...`")
    x = torch.zeros(len(y), 0) if rows.x is None else rows.x
    client = None if rows.client is None else rows.client.objects().tolist()
    fed = Federation.from_arrays(
        x, y, client, partition=spec.partition, name=rows.name, labels=labels, split=spec.split, seed=seed, time=time,
        notes=notes,
    )  # fmt: skip
    if spec.newcomers is not None:
        fed = fed.with_newcomers(spec.newcomers, seed)
        late = ", ".join(fed.clients[i] for i in fed.newcomers)
        fed = _noted(fed, f"newcomers, which take no part in training: {late}")
    if rows.table is not None:
        fed = _encoded(fed, rows.table, spec)
    everything = [torch.cat(parts) for parts in zip(fed.train, fed.validation, fed.test, strict=True)]
    if spec.shift:
        fed = _noted(
            replace(fed, x=apply(fed.x, spec.shift, everything, fed.clients, seed)),
            f"feature shift: {spec.shift.method}, level {spec.shift.level}",
        )
    if spec.concept:
        new, chosen = relabel(fed.y, spec.concept, everything, fed.clients, fed.labels, seed)
        fed = _noted(replace(fed, y=new), f"concept shift: labels change places at {', '.join(chosen)}")
    return fed


def _encoded(fed: Federation, table: Any, spec: Table) -> Federation:
    train: Tensor = torch.cat([rows for i, rows in enumerate(fed.train) if i not in fed.newcomers])
    own = dict(zip(fed.clients, fed.train, strict=True)) if spec.statistics == "client" else None
    marks = spec.missing if isinstance(spec.missing, dict) else dict.fromkeys(table.column_names, spec.missing)
    schema = TableSchema.fit(table, train, own, marks, optional=spec.missing_columns == "fill")
    names = [fed.clients[i] for i in fed.owner().tolist()] if own else None
    pooled = schema.encode(table) if own else None
    fed = replace(fed, x=schema.encode(table, names), columns=schema.columns, table=schema, pooled=pooled,
                  hashes=row_hashes(table))  # fmt: skip
    for note in table_notes(schema, own is not None):
        fed = _noted(fed, note)
    return fed


def table_notes(schema: TableSchema, own: bool) -> list[str]:
    """What encoding a table did, for the user. own: by statistics of each client."""
    whose = "each client alone" if own else "all clients together (federated)"
    said = [
        f"table: {len(schema.numeric)} numeric and {len(schema.categorical)} categorical columns; scaled, and gaps "
        f"filled by median or most frequent name, by the training rows of {whose}"
    ]
    return said + ([f"missing values, filled and flagged: {', '.join(schema.flags)}"] if schema.flags else [])


def _noted(fed: Federation, note: str) -> Federation:
    return replace(fed, notes=(*fed.notes, note))
