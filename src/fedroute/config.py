"""A config file as checked models: every key known, every value in range, every message with the key and the mend."""

import dataclasses
import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from fedroute.errors import InputError
from fedroute.federation.spec import HubSpec
from fedroute.robust import Robust
from fedroute.router.spec import RouterSpec
from fedroute.weighting import Weighting

LATER = {
    "privacy": "there is no privacy transform in this version, and none is applied: take the part `privacy` out",
}
EXAMPLES = {
    "federation": "federation: {source: bundled, name: digits}",
    "model": "model: {name: mlp}",
    "algorithm": "algorithm: {name: fedavg}",
}


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _ruled(value: Any) -> Any:
    return {"rule": value} if isinstance(value, str) else value


def _kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class Training(Part):
    """`training:` how a run is trained. Rounds and epochs are counts; lr is that of the clients."""

    rounds: int = Field(50, ge=1)
    local_epochs: int | None = Field(None, ge=1)  # 1 where local_steps is not given either
    local_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(32, ge=1)
    lr: float = Field(0.05, gt=0)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(0.0, ge=0)
    schedule: str | dict[str, Any] = "constant"  # see optim.Schedule
    clients_per_round: float = Field(1.0, gt=0)  # a share, or a number where it is over 1
    sampling: Literal["all", "uniform", "weighted", "stratified", "loss"] = "uniform"
    weighting: Weighting | None = None  # the algorithm's own where not given
    robust: Annotated[Robust | None, BeforeValidator(_ruled)] = None  # a rule in the place of the weighted mean
    server_optimizer: str | dict[str, Any] = "sgd"  # see optim.server_optimizer
    server_lr: float = Field(1.0, gt=0)
    quorum: float = Field(0.5, ge=0, le=1)  # the share of the chosen that must answer; at least one
    update_bound: float = Field(1e6, gt=0)  # an update with a larger value is left out, with its client and the reason
    evaluate_every: int | None = Field(None, ge=1)  # rounds; None: spaced so that it adds at most 30 % to a run
    checkpoint_every: int | None = Field(None, ge=1)  # rounds; None: spaced likewise, and at the end
    alone: bool = True  # also train every client alone at the same budget, for the ledger

    @model_validator(mode="after")
    def _together(self) -> Self:
        """Options that would be ignored are refused."""
        if self.local_epochs and self.local_steps:
            raise ValueError("local_epochs and local_steps are both given; give one of them")
        if self.optimizer != "sgd" and (self.momentum or self.nesterov):
            raise ValueError(f"momentum and nesterov belong to optimizer: sgd; {self.optimizer} has none")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum, such as momentum: 0.9")
        if self.clients_per_round > 1 and self.clients_per_round % 1:
            raise ValueError(f"clients_per_round: {self.clients_per_round} is over 1 and so a number: give a whole one")
        if self.sampling == "all" and self.clients_per_round != 1:
            raise ValueError("sampling: all takes every client; leave clients_per_round out, or take sampling: uniform")
        return self


class Engine(Part):
    """`engine:` what computes the rounds. workers: processes, by default one a core. timeout: seconds after which a
    client of engine workers is given up; by default it may take as long as it needs."""

    name: Literal["auto", "sequential", "stacked", "workers", "transport"] = "auto"
    workers: int | None = Field(None, ge=1)
    timeout: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.timeout and self.name != "workers":
            raise ValueError(f"timeout belongs to name: workers; {self.name} cannot give up a client that hangs")
        return self


class Config(Part):
    """A whole config. `federation`, `model` and `algorithm` are checked by the parts of fedroute that they name."""

    federation: Annotated[dict[str, Any], BeforeValidator(_named)]
    model: Annotated[dict[str, Any], BeforeValidator(_named)]
    algorithm: Annotated[dict[str, Any], BeforeValidator(_named)]
    training: Training = Training()
    router: Annotated[RouterSpec | None, BeforeValidator(_kind)] = None
    engine: Annotated[Engine, BeforeValidator(_named)] = Engine()
    hub: HubSpec | None = None  # how a real federation is run; see federation.spec
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _branch(self) -> Self:
        drm = self.router and (self.router.kind == "drm" or "branch" in self.router.input)
        if drm and self.algorithm.get("name") != "feddrm":
            raise ValueError(
                f"router: the branch is trained by algorithm feddrm, and this is {self.algorithm.get('name')}; take "
                "`algorithm: feddrm`, or `router: auto`, which goes with any algorithm"
            )
        return self

    def resolved(self) -> dict[str, Any]:
        """Plain values, complete: every default is filled in. A file of it loads as an equal Config."""
        return self.model_dump(mode="json")


def load(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """The config in a YAML file, with `overrides` such as "training.lr=0.1" (values as YAML).

    Relative paths in it start at its folder; ${NAME} in a path is filled in from the environment. Data are not read.
    Raises InputError: file, key, and the mend; one line for each thing that is wrong."""
    path = Path(path)
    document = _read(path)
    given = [_override(text) for text in overrides]
    for keys, value in given:
        _set(document, keys, value)
    where = {".".join(keys): f"--set {'.'.join(keys)}" for keys, _ in given}
    return from_dict(document, str(path), path.absolute().parent, where)


def from_dict(
    document: Mapping[str, Any],
    file: str = "config",
    folder: Path | None = None,
    where: Mapping[str, str] | None = None,
) -> Config:
    """The config in a mapping. `file` names it in messages; relative paths start at `folder` (the current one where
    not given); `where`: keys that were set elsewhere, and the name of that place. Raises InputError."""
    document = {k: v for k, v in document.items() if v is not None}
    for part, words in LATER.items():
        if part in document:
            raise InputError(f"{file}: {part}: {words}")
    engine = document.get("engine")
    if (engine.get("name") if isinstance(engine, Mapping) else engine) == "ray":
        raise InputError(f"{file}: engine.name: there is no ray engine in this version; take auto")
    try:
        config = Config.model_validate(document)
    except ValidationError as e:
        raise InputError("\n".join(explain(e, Config, file, where or {}))) from None
    federation = _placed(config.federation, file, folder or Path.cwd())
    try:
        parts = {
            "federation": _federation(federation),
            "model": _model(config.model),
            "algorithm": _algorithm(config.algorithm),
            "training": _training(config.training),
        }
    except InputError as e:
        raise InputError(f"{file}: {e}") from None
    return config.model_copy(update=parts)


# the parts that others check


def _federation(spec: dict[str, Any]) -> dict[str, Any]:
    from fedroute.data.spec import check

    return check(spec).model_dump(mode="json", exclude_none=True)


def _model(spec: dict[str, Any]) -> dict[str, Any]:
    """The name is checked here, the options where the model is built: what fits depends on the data."""
    from fedroute.models import MODELS

    if spec.get("name") not in MODELS:
        raise InputError(f"model.name: no model {spec.get('name')!r}; {nearest(str(spec.get('name')), MODELS)}")
    known = MODELS[spec["name"]].options
    for key in spec:
        if key not in (*known, "name"):
            raise InputError(f"model.{key}: unknown key of {spec['name']}; {nearest(key, known)}")
    return _plain({"name": spec["name"]} | {k: v for k, v in known.items() if v is not None} | spec)


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in spec.items()}


def _training(training: Training) -> Training:
    from fedroute.optim import schedule, server_optimizer

    server = _named(training.server_optimizer)
    if "name" not in server:
        raise InputError("training.server_optimizer.name: missing; write for example `server_optimizer: adam`")
    complete = {
        "schedule": dataclasses.asdict(schedule(training.schedule)),
        "server_optimizer": {"name": server["name"]} | dataclasses.asdict(server_optimizer(**server)),
    }
    return training.model_copy(update=complete)


def _algorithm(spec: dict[str, Any]) -> dict[str, Any]:
    from fedroute.algorithms import make

    return _plain(make(spec).describe())


# reading


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
        document = yaml.load(text, Loader=_loader())
    except FileNotFoundError:
        raise InputError(f"{path}: not there: name a config file (YAML)") from None
    except OSError as e:
        from fedroute.data.no_config import instead

        words = instead(path) if path.is_dir() else f"not readable: {e.strerror}"
        raise InputError(f"{path}: {words}") from None
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: not a text file in UTF-8 (byte {e.start}): save it as UTF-8") from None
    except yaml.YAMLError as e:
        quote = ' (write "${NAME}/..." in quotes)' if re.search(r"[:,\[{]\s*\$\{", text) else ""
        raise InputError(f"{path}{_mark(e)}{quote}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: no config: it has the parts {', '.join(Config.model_fields)}, each as `part: ...`")
    for part in ("federation", "model", "algorithm", "router", "engine"):
        if isinstance(document.get(part), str):
            document[part] = _shorthand(part, document[part])
    return document


def _shorthand(part: str, text: str) -> dict[str, Any]:
    if part == "federation":
        source, _, name = text.partition(":")
        return {"source": source, "name": name} if name else {"source": text}
    return _kind(text) if part == "router" else {"name": text}


def _mark(e: Any) -> str:
    """ ":LINE: what is wrong" of a YAML error."""
    mark = getattr(e, "problem_mark", None) or getattr(e, "context_mark", None)
    problem = getattr(e, "problem", None) or str(e).splitlines()[0]
    mend = " (indent with spaces)" if "\\t" in problem else ""
    return f", line {mark.line + 1}: {problem}{mend}" if mark else f": {problem}"


def _loader() -> type[Any]:
    """YAML's safe loader, but 1e-3 is a number and a key given twice an error."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: dict[Any, int] = {}
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} was given on line {seen[key.value]} already", key.start_mark
                    )
                seen[key.value] = line
            return super().construct_mapping(node, deep)

    number = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    return Loader


def _override(text: str) -> tuple[list[str], Any]:
    import yaml

    key, equals, value = text.partition("=")
    keys = key.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {text}: not understood: give a key and a value, such as --set training.lr=0.1")
    if keys[0] not in Config.model_fields and keys[0] not in LATER:
        inside = [p for p in ("training", "engine") if keys[0] in _keys(Config.model_fields[p].annotation)]
        mend = f"did you mean {inside[0]}.{key}?" if inside else nearest(keys[0], Config.model_fields)
        raise InputError(f"--set {text}: there is no part {keys[0]}; {mend}")
    try:
        return keys, yaml.load(value, Loader=_loader())
    except yaml.YAMLError as e:
        raise InputError(f"--set {text}: the value is not YAML{_mark(e)}") from None


def _set(document: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    *path, last = keys
    node = document
    for key in path:
        if not isinstance(node.get(key), dict):
            node[key] = _shorthand(key, node[key]) if isinstance(node.get(key), str) else {}
        node = node[key]
    node[last] = value


def _placed(federation: dict[str, Any], file: str, folder: Path) -> dict[str, Any]:
    """The paths of a federation made absolute."""

    def place(text: Any) -> Any:
        if isinstance(text, list):
            return [place(t) for t in text]
        if isinstance(text, dict):
            return {k: place(t) for k, t in text.items()}
        if not isinstance(text, str) or re.match(r"[a-z]{2,}:", text):  # registry:SET/FILE
            return text
        return str(folder / Path(re.sub(r"\$\{(\w+)\}|\$(\w+)", fill, text)).expanduser())

    def fill(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if not os.environ.get(name):
            raise InputError(
                f"{file}: federation.path: the environment variable {name} is not set: "
                f"`export {name}=FOLDER` first, or write the path out"
            )
        return os.environ[name]

    return {k: place(v) if k in ("path", "paths") else v for k, v in federation.items()}


# words


def explain(
    error: ValidationError,
    model: type[BaseModel],
    file: str = "",
    where: Mapping[str, str] | None = None,
    part: str = "",
) -> Iterator[str]:
    """A line for each thing that is wrong: file, key, and what to write instead. `where` maps keys to the place that
    set them, where that is not the file; `part`: that of a config which the model is, where it is not the whole."""
    for e in error.errors(include_url=False):
        loc = [str(k) for k in e["loc"]]
        key = ".".join([part, *loc] if part else loc)
        place = (where or {}).get(key)
        text = _say(e, loc, model)
        if place:
            yield f"{place}: {text}"
        else:
            yield ": ".join(piece for piece in (file, key, text) if piece)


def _say(e: Any, loc: list[str], model: type[BaseModel]) -> str:
    match e["type"]:
        case "extra_forbidden":
            return f"unknown key; {nearest(loc[-1], _keys(_at(model, loc[:-1])))}"
        case "missing":
            example = EXAMPLES.get(loc[0])
            return "missing" + (f"; write for example `{example}`" if example else "")
        case "value_error":
            return str(e["ctx"]["error"])
        case "invalid_key":
            return "keys are words"
    field = _at(model, loc)
    wanted = allowed(field) if isinstance(field, FieldInfo) else e["msg"]
    close = difflib.get_close_matches(str(e["input"]), _choices(field), 1)
    return f"{e['input']!r} does not fit; give {wanted}" + (f" (did you mean {close[0]}?)" if close else "")


def _at(model: type[BaseModel], loc: Iterable[str]) -> Any:
    """The field at a place in a model, or the model itself."""
    found: Any = model
    for key in loc:
        inner = _model_of(found)
        if inner is None or key not in inner.model_fields:
            return found
        found = inner.model_fields[key]
    return found


def _model_of(found: Any) -> type[BaseModel] | None:
    annotation = found.annotation if isinstance(found, FieldInfo) else found
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next((a for a in options if isinstance(a, type) and issubclass(a, BaseModel)), None)


def _keys(found: Any) -> list[str]:
    inner = _model_of(found)
    return list(inner.model_fields) if inner else []


def _choices(found: Any) -> list[str]:
    annotation = getattr(found, "annotation", None)
    return [str(a) for a in get_args(annotation)] if get_origin(annotation) is Literal else []


def allowed(field: FieldInfo) -> str:
    """What a field takes, in words."""
    annotation: Any = field.annotation
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    metadata = field.metadata
    words = []
    for a in options:
        if get_origin(a) is Literal:
            words.append(f"one of {', '.join(map(str, get_args(a)))}")
        elif isinstance(a, type) and issubclass(a, BaseModel):
            words.append(f"the keys {', '.join(a.model_fields)}")
        elif a is not type(None):
            kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
            words.append(kinds.get(a, "keys and values"))
    limits = []
    for m in metadata:
        limits += [f"at least {m.ge}"] if isinstance(m, annotated_types.Ge) else []
        limits += [f"above {m.gt}"] if isinstance(m, annotated_types.Gt) else []
        limits += [f"at most {m.le}"] if isinstance(m, annotated_types.Le) else []
        limits += [f"below {m.lt}"] if isinstance(m, annotated_types.Lt) else []
    return " or ".join(words) + (f", {' and '.join(limits)}" if limits else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """The mend for a name that is not known."""
    names = [str(k) for k in known]
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"take one of {', '.join(names)}"
