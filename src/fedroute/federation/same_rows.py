"""Whether a site's rows are still those that were agreed on. What tells is a hash; it stays at the site."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedroute.data.federation import Federation
from fedroute.durable import write
from fedroute.errors import InputError, Unreadable
from fedroute.federation.agreed import check
from fedroute.federation.agreement import Agreement, own_federation
from fedroute.federation.form import differs
from fedroute.federation.own_rows import Prepared, SiteData
from fedroute.federation.site_spec import DataSpec
from fedroute.federation.transport import Refused

AGREED, ROWS = "agreed.json", "rows.sha256"
CHANGED = (
    "the data have changed since the agreement: put them back, or let the hub begin a new run (`fedroute hub start "
    "--new-run`)"
)
NOT_NOW = "the data cannot be read at this site now"  # what a hub that hears it may ask again
OTHERS = "the rows are not those that were agreed on"


class Unfit(Refused):
    """The rows agreed on are not there. What it says tells nothing of them; own: the same for the owner alone, with the
    file."""

    def __init__(self, e: InputError, where: str = ""):
        away, why = isinstance(e, Unreadable), str(e)
        self.own = f"{NOT_NOW}: {why}" if away else f"{why if where in why else f'{where}: {why}'}: {CHANGED}"
        super().__init__(NOT_NOW if away else CHANGED)


def as_agreed(data: SiteData, agreement: Agreement, folder: Path) -> Federation:
    """The rows, where they are those of the agreement. folder: of this federation at this site, which keeps the hash of
    the rows that were agreed on first. Raises Unfit where they are others, InputError where none were agreed on."""
    try:
        own = own_federation(data, agreement)
        still_the_same(folder, data.prepared(agreement.form))
    except InputError as e:
        if (folder / ROWS).exists():
            raise Unfit(e, data.where) from None
        raise
    return own


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


def still_the_same(folder: Path, p: Prepared) -> None:
    """folder: as for `as_agreed`. Raises InputError where these are others."""
    found, file = rows_sha256(p), folder / ROWS
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(file, found + "\n")
    elif file.read_text(encoding="utf-8").strip() != found:
        raise InputError(OTHERS)


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
        as_agreed(data, agreement, folder)
    except Unfit as e:
        return e.own
    except InputError as e:  # whatever it is, rows as agreed do not raise it
        return Unfit(e).own
    return ""
