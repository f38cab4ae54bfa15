"""A dataclass made from a part of a config: every key known, every value of the right type and in range."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from fedroute.errors import InputError

T = TypeVar("T")


def from_options(cls: type[T], options: Mapping[str, Any], where: str, without: Iterable[str] = ()) -> T:
    """`cls(**options)`. Types and ranges are those of the fields' annotations, such as
    `Annotated[float, Field(ge=0)]`; `without`: fields that a config may not set. `where` is the part of the config
    ("algorithm") for messages. Raises InputError, which names the key and the mend."""
    hints = get_type_hints(cls, include_extras=True)
    known: dict[str, Any] = {
        f.name: (hints[f.name], ... if f.default is MISSING else f.default)
        for f in fields(cls)  # type: ignore[arg-type]
        if f.name not in without
    }
    for key in options:
        if key not in known:
            raise InputError(f"{where}.{key}: unknown key; {nearest(key, known)}")
    config = ConfigDict(strict=True, allow_inf_nan=False, protected_namespaces=())
    try:  # YAML knows lists where fields are tuples
        checked = create_model(cls.__name__, __config__=config, **known)(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        )
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        given = list(first["input"]) if isinstance(first["input"], tuple) else first["input"]
        raise InputError(f"{where}.{key}: {fault(first)}, but it is {given!r}") from None
    return cls(**{k: getattr(checked, k) for k in options})


def fault(error: Mapping[str, Any]) -> str:
    """What pydantic says of one value, in the words of YAML, in which every sequence is a list."""
    given = error["input"]
    if error["type"] in ("tuple_type", "list_type"):
        return "Input should be a list" + (f" such as [{given}]" if isinstance(given, str | int | float) else "")
    return re.sub(r"^Tuple\b", "List", str(error["msg"]))


def nearest(name: str, known: Iterable[str]) -> str:
    """The mend for a name that is not known: the nearest one that is, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, 1)
    return f"did you mean {close[0]}?" if close else f"take one of {', '.join(names)}" if names else "there are none"
