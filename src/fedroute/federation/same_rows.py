"""Whether a site's rows are still those that were agreed on. What tells is a hash; it stays at the site."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedroute.durable import write
from fedroute.errors import InputError
from fedroute.federation.agreed import check
from fedroute.federation.agreement import Agreement, own_federation
from fedroute.federation.form import differs
from fedroute.federation.own_rows import Prepared, SiteData
from fedroute.federation.site_spec import DataSpec

AGREED, ROWS = "agreed.json", "rows.sha256"
CHANGED = (
    "the data have changed since the agreement: put them back, or let the hub begin a new run (`fedroute hub start "
    "--new-run`)"
)


def rows_sha256(p: Prepared) -> str:
    """Of a site's rows as agreed: of columns by name, labels, times and parts, as they are read, before statistics of
    anybody come in. The same for the same rows in the same order, in whatever file they stand."""
    h = hashlib.sha256()

    def add(name: str, array: "torch.Tensor | np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None") -> None:
        if array is None:
            return
        made = np.ascontiguousarray(array.numpy() if isinstance(array, torch.Tensor) else array)
        h.update(f"{name} {made.dtype} {made.shape} ".encode())
        h.update(made.reshape(-1).view(np.uint8).data)

    for name, values in {"x": p.x, "y": p.y, "time": p.time}.items():
        add(name, values)
    for name, rows in zip(("train", "validation", "test"), p.parts, strict=True):
        add(name, rows)
    for name in () if p.table is None else p.table.column_names:
        column = p.table[name]
        if str(column.type) == "double":
            values = column.to_numpy()  # a gap is NaN, of whatever bits
            add(name, np.where(np.isnan(values), np.nan, values))
        else:
            h.update(f"{name} {json.dumps(column.to_pylist(), ensure_ascii=False)} ".encode())
    return h.hexdigest()


def still_the_same(folder: Path, p: Prepared, client: str) -> None:
    """folder: of this federation at this site, which keeps the hash of the rows that were agreed on first.

    Raises InputError where these are others."""
    found, file = rows_sha256(p), folder / ROWS
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(file, found + "\n")
    elif file.read_text(encoding="utf-8").strip() != found:
        raise InputError(f"{client}: {CHANGED}")


def changed(site: Path, given: Mapping[str, Any], source: DataSpec, base: Path, client: str, file: str) -> str | None:
    """Whether the rows are those that this site has agreed on last, without a process of it: "" where they are, else
    what is to be said; None where it has agreed on nothing yet, or by another `federation:` part than it is given now,
    or by another version of fedroute. site: its folder; the rest as in `SiteData.read`."""
    try:
        agreed = check(json.loads((site / AGREED).read_text(encoding="utf-8")))
        agreement, folder = Agreement.model_validate_json(agreed["data"]), site / "runs" / agreed["federation"]
    except (OSError, ValueError, KeyError, InputError):
        return None
    if not (folder / ROWS).exists() or differs(given, agreement.spec):
        return None
    try:
        data = SiteData.read(source, base, agreement.spec, client, file)
        own_federation(data, agreement)
        still_the_same(folder, data.prepared(agreement.form), client)
    except InputError:  # whatever it is, rows as agreed do not raise it
        return CHANGED
    return ""
