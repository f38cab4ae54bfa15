"""What to give, where a folder or a data file was given in the place of a YAML file that says what the data are."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from fedroute.data.sources.files import AT_SITES, NO_PATH
from fedroute.data.sources.images import ENDINGS

MOST = 10_000  # files of a folder that are looked at
KINDS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".npz": "npz"}


def instead(path: Path) -> str:
    """What is wrong with it, and the mend; "" where it is neither a folder nor a data file."""
    if not path.is_dir():
        kind = _kind(path)
        return f"holds data and says nothing of them: {_written(kind, path, 'path')}" if kind else ""
    try:
        files = sorted(p for p in path.iterdir() if p.is_file())
    except OSError as e:
        return f"is a folder that cannot be looked into ({e.strerror}); give a YAML file or bundled:digits"
    configs = [p for p in files if p.suffix in (".yaml", ".yml")]
    if found := next((p for p in configs if _says_where(p)), None):
        return f"is a folder: give a YAML file in it, such as {found}"
    kinds = {kind: p.suffix for p in files if (kind := _kind(p))}
    if kinds:
        kind, ending = next(iter(kinds.items()))
        return f"is a folder: {_written(kind, path / f'*{ending}', 'paths')}"
    if configs:
        return f"is a folder, and {configs[0]} says not where rows lie: it {NO_PATH}"
    if any(p.suffix.lower() in ENDINGS for p in islice(path.rglob("*"), MOST)):
        return f"is a folder: {_written('images', path, 'path')}"
    return "is a folder without a YAML file or data of its own; give a YAML file or bundled:digits"


def _kind(path: Path) -> str | None:
    """The source that reads such a file."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return KINDS.get(plain.suffix.lower())


def _written(kind: str, path: Path, key: str) -> str:
    if key == "paths" and kind == "npz":
        key, path = "path", path.with_name("FILE.npz")
    tables = ", label: COLUMN" if kind in ("csv", "parquet") else ""
    owner = ", client: COLUMN" if tables and key == "path" else ""
    return f"write a YAML file that does, such as `federation: {{source: {kind}, {key}: {path}{owner}{tables}}}`"


def _says_where(path: Path) -> bool:
    """Whether it is a config with rows that are here."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    part: Any = content.get("federation") if isinstance(content, dict) else None
    if isinstance(part, str):
        return True
    given: Iterable[Any] = (part.get(k) for k in ("path", "paths", "name")) if isinstance(part, dict) else ()
    return any(v is not None and v != AT_SITES for v in given)
