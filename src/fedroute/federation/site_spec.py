"""DATA.yaml: where a site's own rows lie and how their file is written. Light to import: no torch, no numpy.

What the rows mean (label, features, what counts as missing for all, split) is in the `federation:` part of the hub's
config, the same for every site; a site says only what is its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedroute.data.spec import Value, nearest
from fedroute.errors import InputError, Unreadable
from fedroute.options import fault
from fedroute.words import then

_LINE = "write in it where the data lie: `path: visits.csv`"
_NAMED = "write a YAML file that names it: `path: {path}`"
ELSEWHERE = ("path", "paths")
"""Keys of the `federation:` part that only a site can say; what the hub's config has of them is not used."""


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Whose(Part):
    """Which rows of a file with several clients' are this site's: those with `value` (by default the site's name) in
    `column` (of .npz: the array of that name; of images: the folder `value`)."""

    column: str | None = None
    value: Value | None = None


class DataSpec(Part):
    """path: a file, several, or a pattern, their rows put together; of images a folder `class/file`. Relative paths
    start at the folder of DATA.yaml; variables such as $HOME are filled in. source: as in the config, where this site's
    is written otherwise (one has CSV, another Parquet). delimiter, decimal, header, encoding, and columns, the names in
    a file without a header line: as in the config, which holds where nothing is said here. rename: {name in the file:
    name in the federation}. missing: marks of a missing value that only this site uses, for all columns or by column
    (names of the federation). drop: columns (names of the federation) that this site keeps out of it, such as one that
    no other site has. label_names: {label in the file: label in the federation}, of labels that are written otherwise
    here or misspelt; a label called by its own name is meant as it is. client: which rows are this site's, where the
    file has those of others too. x, y: arrays of .npz. name: of bundled data."""

    source: Literal["csv", "parquet", "images", "npz", "bundled"] | None = None
    path: str | list[str] | None = None
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    decimal: Literal[".", ","] | None = None
    header: bool | None = None
    columns: list[str] | None = None
    encoding: str | None = None
    rename: dict[str, str] = {}
    missing: list[Value] | dict[str, list[Value]] = []
    drop: list[str] = []
    label_names: dict[Value, str] = {}
    client: Whose | None = None
    x: str | None = None
    y: str | None = None
    name: str | None = None


def data_spec(given: Mapping[str, Any]) -> DataSpec:
    """The checked spec. Raises InputError with the key that is wrong and the nearest right one."""
    try:
        return DataSpec(**{str(k): v for k, v in given.items()})
    except ValidationError as e:
        raise InputError("; ".join(map(_say, e.errors()[:3]))) from None


def read_data_spec(path: Path) -> DataSpec:
    """The spec in a file, which may have it below the key `data`. Raises InputError."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as e:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; {_NAMED.format(path=path.name)}") from None
        if isinstance(e, OSError):
            raise Unreadable(f"{path}: cannot be read ({e.strerror}); {_LINE}") from None
        raise InputError(f"{path}: {_no_spec(path, 'is not UTF-8 text: save it as UTF-8')}") from None
    except yaml.YAMLError as e:
        raise InputError(f"{path}: {_no_spec(path, 'is not YAML: ' + ' '.join(str(e).split()))}") from None
    if isinstance(content, dict) and isinstance(content.get("data"), dict):
        content = content["data"]
    if not content and not isinstance(content, str):  # "" in quotes is no comment
        raise InputError(f"{path}: says nothing; {_LINE}")
    if not isinstance(content, dict):
        raise InputError(f"{path}: {_no_spec(path, f'says nothing that is a key and its value; {_LINE}')}")
    try:
        return data_spec(content)
    except InputError as e:
        raise InputError(f"{path}: {e}") from None


def joining_spec(path: Path, federation: Mapping[str, Any]) -> DataSpec:
    """The spec in a file with which a site joins a federation, whose `federation:` part is given. Raises InputError,
    also where it does not say where the data lie; whether they lie there is seen at `check`."""
    if not path.exists():
        raise InputError(f"{path}: not there: write a file that says where this site's data lie, such as "
                         "`path: visits.csv`")  # fmt: skip
    spec = read_data_spec(path)
    if not spec.path and (spec.source or federation.get("source")) != "bundled":
        raise InputError(f"{path}: does not say where the data lie; {_LINE}")
    return spec


def _no_spec(path: Path, fault: str) -> str:
    """Of a file that is no YAML with keys: nothing is to be written into what may be the data themselves."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return fault
    return f"this is the table itself, or no YAML; {_NAMED.format(path=path.name)}"


def _say(err: Any) -> str:
    key = ".".join(str(p) for p in err["loc"])
    if err["type"] == "extra_forbidden":
        model = Whose if err["loc"][0] == "client" else DataSpec
        known, asked = [*model.model_fields], str(err["loc"][-1])
        near = nearest(asked, known)
        return then(f"{key}: no such key{near if near.startswith('; did') else ''}", f"there is {', '.join(known)}")
    if key.startswith("label_names") and isinstance(err["input"], bool):
        return f"{key}: YAML reads yes and no as true and false: put the label in quotes"
    return f"{key}: {err['input']!r} does not fit: {fault(err).removeprefix('Input ').removeprefix('Value error, ')}"
