"""What the `federation:` part of a config may say, as checked models. Light to import: no torch, no numpy.

Every source takes `split`, `partition` (for data without natural clients), `shift` and `concept`. An unknown key is
an error that names the nearest known one."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from fedroute.errors import InputError
from fedroute.options import fault

Level = Literal["low", "mid", "high"]
Value = str | int | float | bool


def both_sides(value: Any) -> Any:
    """Height and width from one number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value, value]
    if isinstance(value, list) and len(value) == 1:
        raise ValueError(f"give height and width, [{value[0]}, {value[0]}]")
    return value


Sides = Annotated[list[Annotated[int, Field(ge=1)]], BeforeValidator(both_sides)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Split(Part):
    """Fractions of each client's rows. by: "label" (stratified where labels are classes) or "time" (the newest rows
    are the test part, those before them the validation part)."""

    validation: float = Field(0.15, ge=0, lt=1)
    test: float = Field(0.25, ge=0, lt=1)
    by: Literal["label", "time"] = "label"

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError("validation + test leave nothing to train on; their sum must be below 1")
        return self


class Iid(Part):
    """Rows dealt at random, equally."""

    method: Literal["iid"] = "iid"
    clients: int = Field(10, ge=1)


class Dirichlet(Part):
    """Each class is dealt in proportions drawn from Dirichlet(alpha): small alpha, few classes per client."""

    method: Literal["dirichlet"] = "dirichlet"
    clients: int = Field(10, ge=1)
    alpha: float = Field(0.3, gt=0)
    minimum: int | None = Field(None, ge=0)  # rows per client; None: 10, or as many as there are for everybody


class Shards(Part):
    """Rows sorted by label and cut into equal shards; each client gets `shards` of them."""

    method: Literal["shards"] = "shards"
    clients: int = Field(10, ge=1)
    shards: int = Field(2, ge=1)


class Classes(Part):
    """Each client gets `classes` classes; those who share a class share its rows equally."""

    method: Literal["classes"] = "classes"
    clients: int = Field(10, ge=1)
    classes: int = Field(2, ge=1)


class Quantity(Part):
    """Rows dealt at random, sizes drawn from Dirichlet(alpha): small alpha, few large clients."""

    method: Literal["quantity"] = "quantity"
    clients: int = Field(10, ge=1)
    alpha: float = Field(0.5, gt=0)
    minimum: int | None = Field(None, ge=0)


class Time(Part):
    """Rows sorted by time and cut into equal stretches, one per client."""

    method: Literal["time"] = "time"
    clients: int = Field(10, ge=1)


Partition = Annotated[Iid | Dirichlet | Shards | Classes | Quantity | Time, Field(discriminator="method")]


class Shift(Part):
    """A feature shift of images, another for each client (see `shift.py` for the values). clients: those it is
    applied to, all by default."""

    method: Literal["colour", "brightness", "gamma", "hue", "saturation", "rotation", "noise", "blur"]
    level: Level = "high"
    clients: list[str] | None = None


class Concept(Part):
    """A concept shift: some clients call things by other names. clients: which, or their share; labels: those that
    change places among themselves, all by default."""

    clients: list[str] | Annotated[float, Field(gt=0, le=1)] = 0.5
    labels: list[str] | None = None


class Source(Part):
    """newcomers: clients that never train, by name, or their share: what the others trained must serve them."""

    split: Split = Split()
    partition: Partition | None = None
    shift: Shift | None = None
    concept: Concept | None = None
    newcomers: list[str] | Annotated[float, Field(gt=0, lt=1)] | None = None


class Table(Source):
    """What Parquet and CSV share. path: a file, several, or a pattern, their rows put together; paths: one file per
    client, {name: file}, or a pattern whose file stems are the names. Relative paths start at the config's folder;
    `$FEDROUTE_DATA` and other variables are filled in; `registry:SET/FILE` is a file of a known public set.

    label: the column to predict, as classes by name, or
      positive: two classes by a comparison, ">0", or by the names that count as yes, [dead, dependent];
      bands: classes by ascending limits, [12, 35.4]: up to 12, up to 35.4, more;
      label_as: number: a number to regress.
    label_names: what the classes are called, {0: cat, 1: dog} or [cat, dog]; or which labels are others misspelt,
      {Ill: ill, wel: well}: these are merged and the rest stays. Labels that differ only in case or blanks are an
      error until it says so (in quotes what YAML takes for true or false: {"Yes": "yes"}); a label of one client that
      is a letter or two away from another gets a note.
    features: columns to use, all but client, label and time by default; drop: columns not to use; categorical:
    columns of numbers that are names. missing: further marks of a missing value, for all columns, [-9, unknown],
    or by column, {chol: [0]}. missing_columns: a feature that a client's file lacks is an error or is filled and
    flagged. statistics: filling and scaling by the training rows of all clients, or of each client alone.
    image: a column of JPEG or PNG bytes, or of raw bytes of `shape` [H, W] or [C, H, W]; size: [H, W] to resize to; one
    number is height and width."""

    path: str | list[str] | None = None
    paths: dict[str, str] | str | None = None
    client: str | None = None
    label: str
    time: str | None = None
    positive: str | list[Value] | None = None
    bands: list[float] | None = None
    label_as: Literal["classes", "number"] = "classes"
    label_names: dict[Value, str] | list[str] | None = None
    features: list[str] | None = None
    drop: list[str] = []
    categorical: list[str] = []
    missing: list[Value] | dict[str, list[Value]] = []
    missing_columns: Literal["error", "fill"] = "error"
    statistics: Literal["federated", "client"] = "federated"
    image: str | None = None
    shape: Annotated[Sides, Field(min_length=2, max_length=3)] | None = None
    size: Annotated[Sides, Field(min_length=2, max_length=2)] | None = None


class Parquet(Table):
    source: Literal["parquet"]


class Csv(Table):
    """delimiter, decimal and header are found by looking where not given. columns: names, for files without a header
    line. encoding: of the files that are not UTF-8 (a file that is UTF-8 is read so); a byte order mark is understood.
    A .gz file is unpacked."""

    source: Literal["csv"]
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    decimal: Literal[".", ","] | None = None
    header: bool | None = None
    columns: list[str] | None = None
    encoding: str | None = None


class Images(Source):
    """A folder of images, `client/class/file`, or `class/file` with a partition. size: [H, W] to resize to, or one
    number for both; colour: "auto" is RGB where any image has colour; label_names: as for tables."""

    source: Literal["images"]
    path: str
    layout: Literal["client/class/file", "class/file"] = "client/class/file"
    size: Annotated[Sides, Field(min_length=2, max_length=2)] | None = None
    colour: Literal["auto", "rgb", "grey"] = "auto"
    label_names: dict[Value, str] | list[str] | None = None


class Npz(Source):
    """A NumPy .npz file; x, y, client: the names of its arrays. x: (R, F) numbers, or images (R, H, W), (R, H, W, C)
    or (R, C, H, W); y: (R,) labels; client: (R,) names, by default the array `client` where there is no partition."""

    source: Literal["npz"]
    path: str
    x: str = "x"
    y: str = "y"
    client: str | None = None
    label_names: dict[Value, str] | list[str] | None = None


class Bundled(Source):
    """Data that come with the dependencies. digits: six offices that scan handwritten digits each in its own way; with
    a partition the plain digits are dealt instead."""

    source: Literal["bundled"]
    name: Literal["digits"] = "digits"


class Registry(BaseModel):
    """A known public set by name; other keys replace those of its own description."""

    model_config = ConfigDict(extra="allow", frozen=True)
    source: Literal["registry"]
    name: str


Spec = Annotated[Parquet | Csv | Images | Npz | Bundled | Registry, Field(discriminator="source")]
_SPEC: TypeAdapter[Parquet | Csv | Images | Npz | Bundled | Registry] = TypeAdapter(Spec)
_PARTITION: TypeAdapter[Partition] = TypeAdapter(Partition)
_SOURCES: dict[str, type[BaseModel]] = {
    "parquet": Parquet, "csv": Csv, "images": Images, "npz": Npz, "bundled": Bundled, "registry": Registry,
}  # fmt: skip
_METHODS: dict[str, type[BaseModel]] = {
    "iid": Iid, "dirichlet": Dirichlet, "shards": Shards, "classes": Classes, "quantity": Quantity, "time": Time,
}  # fmt: skip
_MODELS: dict[str, type[BaseModel]] = {**_SOURCES, **_METHODS, "split": Split, "shift": Shift, "concept": Concept}


def nearest(name: str, known: Iterable[str]) -> str:
    """ ", did you mean 'x'?" for the nearest of the known names, or what there is."""
    names = [str(k) for k in known]
    if close := get_close_matches(name, names, 1, 0.6) or [k for k in names if k.lower() == name.lower()]:
        return f"; did you mean {close[0]!r}?"
    return f"; there is {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}" if names else ""


def check(spec: Mapping[str, Any]) -> Parquet | Csv | Images | Npz | Bundled | Registry:
    """The checked spec; {name: "bundled:digits"} is short for source and name. Raises InputError with the key that is
    wrong and the nearest right one."""
    source, colon, name = str(spec.get("name")).partition(":")
    if colon and "source" not in spec:
        spec = {**spec, "source": source, "name": name}
    try:
        return _SPEC.validate_python(dict(spec))
    except ValidationError as e:
        raise InputError("; ".join(_say(err) for err in e.errors()[:3])) from None


def partition_of(value: Partition | Mapping[str, Any]) -> Partition:
    """A partition as a checked model, also from a dict such as {method: dirichlet, alpha: 0.3}. Raises InputError."""
    if isinstance(value, Part):
        return value
    try:
        return _PARTITION.validate_python(dict(value))
    except ValidationError as e:
        raise InputError(
            "; ".join(_say({**err, "loc": ("", "partition", *err["loc"])}) for err in e.errors())
        ) from None


def _say(err: Any) -> str:
    loc = [str(p) for p in err["loc"]]
    tags = {*_SOURCES, *_METHODS} if loc[1:2] == ["partition"] else set(_SOURCES)  # pydantic puts the tag in the path
    key = ".".join(["federation", *(p for p in loc if p and p not in tags)])
    kind = err["type"]
    if kind == "extra_forbidden":
        model = next((_MODELS[p] for p in reversed(loc[:-1]) if p in _MODELS), Source)
        return f"{key}: no such key{nearest(loc[-1], model.model_fields)}"
    if kind == "union_tag_not_found":
        tag = err["ctx"]["discriminator"].strip("'")
        known = list(_SOURCES if tag == "source" else _METHODS)
        return f"{key}.{tag}: not given; it is one of {', '.join(known)}"
    if kind == "union_tag_invalid":
        tag = err["ctx"]["discriminator"].strip("'")
        known = [t.strip(" '") for t in err["ctx"]["expected_tags"].split(",")]
        return f"{key}.{tag}: no {err['ctx']['tag']!r}{nearest(str(err['ctx']['tag']), known)}"
    if kind == "missing":
        return f"{key}: not given, and it must be"
    return f"{key}: {err['input']!r} does not fit: {fault(err).removeprefix('Input ').removeprefix('Value error, ')}"
