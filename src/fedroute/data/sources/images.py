"""A folder of images, one folder per client and class."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedroute.data.labels import called
from fedroute.data.rows import Names, Rows
from fedroute.data.sources.decode import decode
from fedroute.data.sources.files import resolve
from fedroute.data.spec import Images
from fedroute.errors import InputError, Unreadable
from fedroute.words import count

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})


def read(spec: Images, base: Path) -> Rows:
    """x: (R, C, H, W) uint8. Endings in any case; hidden and other files are passed over, unreadable images counted
    and left out. Raises InputError for a folder of another layout or without images."""
    rows, where = as_written(spec, base)
    assert isinstance(rows.label, Names)
    notes = list(rows.notes)
    label = called(rows.label, spec.label_names, where, rows.client, notes)
    return replace(rows, label=label, notes=tuple(notes))


def as_written(spec: Images, base: Path) -> tuple[Rows, Callable[[int], str]]:
    """The rows with their labels as the folders are called, and the place of a row."""
    root = resolve(spec.path, base)
    if not root.is_dir():
        raise InputError(f"federation.path: {str(root)!r} is a file; the source images wants a folder {spec.layout}")
    depth = spec.layout.count("/") + 1
    found, other = list[Path](), Counter[str]()
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if any(p.startswith((".", "__MACOSX")) for p in parts) or not path.is_file():
            continue
        if path.suffix.lower() not in ENDINGS:
            other[path.suffix.lower() or path.name] += 1
        elif len(parts) != depth:
            mend = "class/file" if len(parts) == 2 else "client/class/file"
            raise InputError(f"{path}: stands {len(parts) - 1} folders below {root} and the layout is {spec.layout}; "
                             f"move it, or say `layout: {mend}`")  # fmt: skip
        else:
            found.append(path)
    if not found:
        raise Unreadable(f"{root}: has no images ({', '.join(sorted(ENDINGS))}) as {spec.layout}")
    x, good, notes = decode(found, len(found), lambda i: str(found[i]), spec.size, spec.colour)
    if other:
        passed = count(other.total(), "file that is no image was", "files that are no images were")
        notes.append(f"{passed} passed over ({', '.join(sorted(other))})")
    kept = [p for p, g in zip(found, good.tolist(), strict=True) if g]
    client = None if depth == 2 else Names.of([p.parent.parent.name for p in kept])
    names = Names.of([p.parent.name for p in kept])
    name, x = root.absolute().name, x if good.all() else x[good]
    rows = Rows(name=name, x=x, label=names, client=client, notes=tuple(notes))
    return rows, lambda row: str(kept[row])
