"""Which files a path means."""

import glob
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedroute.data.spec import nearest
from fedroute.errors import InputError, Unreadable

AT_SITES = "each site's own"  # in the place of a path, in the config of a hub
NO_PATH = (
    "gives neither `path` (one file with all rows) nor `paths` (one file per client). In the config of a hub there is "
    "none, for each site's DATA.yaml says where its rows lie: for rows that are here write a config with `path`"
)


def resolve(text: str, base: Path, key: str = "path") -> Path:
    """One file or folder that exists. Raises InputError where it does not, with the nearest name beside it."""
    if Path(text).name == AT_SITES:
        raise InputError(f"federation: {NO_PATH}")
    path = _place(text, base, key)
    if not path.exists():
        near = nearest(path.name, sorted(p.name for p in path.parent.iterdir())) if path.parent.is_dir() else ""
        raise Unreadable(f"federation.{key}: no file {str(path)!r}{near or '; its folder is not there either'}")
    return path


def listed(path: str | Sequence[str], base: Path) -> list[tuple[str | None, Path]]:
    """The files of `path:`: one, several, or a pattern; sorted by name within a pattern."""
    given = [path] if isinstance(path, str) else path
    return [(None, p) for text in given for p in _matching(text, base, "path")]


def by_client(paths: Mapping[str, str] | str, base: Path) -> list[tuple[str | None, Path]]:
    """(client, file) of `paths:`, sorted by client, so that the order of listing never matters."""
    if isinstance(paths, Mapping):
        return sorted((str(c), resolve(p, base, f"paths.{c}")) for c, p in paths.items())
    files = _matching(paths, base, "paths")
    named = [(p.name.removesuffix(".gz").rpartition(".")[0] or p.name, p) for p in files]
    if len({c for c, _ in named}) < len(named):
        twice = next(c for c, _ in named if sum(c == d for d, _ in named) > 1)
        raise InputError(f"federation.paths: two files are named {twice!r}; give `paths: {{client: file, ...}}`")
    return sorted(named)


def _matching(text: str, base: Path, key: str) -> list[Path]:
    if not any(sign in text for sign in "*?["):
        return [resolve(text, base, key)]
    found = sorted(Path(p) for p in glob.glob(str(_place(text, base, key)), recursive=True))
    found = [p for p in found if p.is_file() and not p.name.startswith(".")]
    if not found:
        raise Unreadable(f"federation.{key}: no file matches {str(_place(text, base, key))!r}")
    return found


def _place(text: str, base: Path, key: str) -> Path:
    if text.startswith("registry:"):
        from fedroute.data.registry import locate

        return locate(*text.removeprefix("registry:").partition("/")[::2])
    filled = os.path.expandvars(text)
    if unset := re.findall(r"\$\{?(\w+)\}?", filled):
        raise InputError(f"federation.{key}: {text!r} needs the environment variable {unset[0]}, which is not set")
    path = Path(filled).expanduser()
    beside = base / path
    return beside if path.is_absolute() or beside.exists() or not path.exists() else path
