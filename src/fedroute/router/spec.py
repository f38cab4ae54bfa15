"""What the `router:` part of a config may say, as a checked model. Light to import: no torch, no numpy."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from fedroute.data.spec import nearest
from fedroute.errors import InputError

Kind = Literal["auto", "drm", "softmax", "lda", "ridge", "cells", "ratio", "aggregator"]
Rule = Literal[
    "auto",
    "density",
    "posterior",
    "arrival",
    "consensus",
    "mixture",
    "top_mixture",
    "joint",
    "consensus_global",
    "mixture_global",
    "top_mixture_global",
]
INPUTS = ("deep", "style", "histogram", "columns", "branch", "layer:NAME")
MOST = 100_000  # random features


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _given(fits: Callable[[Any], bool], wanted: str) -> BeforeValidator:
    """A check whose message says what is wanted; without it each reading of a value would have an error of its own."""

    def check(value: Any) -> Any:
        if not fits(value):
            raise ValueError(f"{value!r} does not fit; give {wanted}")
        return value

    return BeforeValidator(check)


def _shares(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(_number(v) and 0 < v <= 1 for v in value.values())


def _inputs(value: Any) -> Any:
    """A list of known inputs, or "auto"."""
    if value == "auto":
        return value
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{value!r} does not fit; give auto, or a list of {', '.join(INPUTS)}")
    for name in names:
        if name not in INPUTS[:-1] and not (name.startswith("layer:") and name != "layer:"):
            raise ValueError(f"no input {name!r}{nearest(name, ('auto', *INPUTS))}")
    if len(set(names)) < len(names):
        raise ValueError(f"{names} names an input twice; leave one out")
    return names


class RouterSpec(BaseModel):
    """`router:` which client answers a query from outside. Everything `auto` is chosen on validation rows, and said.

    kind: how q(client | query) is fitted after the last round: softmax, lda, ridge, cells (client and label jointly),
      ratio (each client against a common reference), aggregator (over what router and heads say); drm is the branch
      that algorithm feddrm trains along.
    input: what it reads of a query: deep (what the head is given), style (statistics of an image), histogram
      (its shades), layer:NAME (moments of a layer), columns (of a table, and which are missing), branch (feddrm's), or
      several of them.
    random_features: how many random Fourier features of the input; 0: the input itself.
    rule: what is made of the posterior and the answers of the clients (`fedroute.router.rules`).
    arrival: the share of queries that come from each client's population: as in training, uniform, or by name.
    abstain: the share of known queries that may be turned away as unlike any client; null: none ever is.
    common: whether the global model, where there is one, is one more voice.
    capacity: the largest share of the queries that a client takes; those not named take any."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    kind: Kind = "auto"
    input: Annotated[Literal["auto"] | list[str], BeforeValidator(_inputs)] = "auto"
    random_features: Annotated[
        Literal["auto"] | int,
        _given(
            lambda v: v == "auto" or (_number(v) and v in range(MOST + 1)), f"auto, or a whole number from 0 to {MOST}"
        ),
    ] = "auto"
    rule: Rule = "auto"
    arrival: Annotated[
        Literal["train", "uniform"] | dict[str, float],
        _given(
            lambda v: v in ("train", "uniform") or (_shares(v) and abs(sum(v.values()) - 1) < 1e-3),
            "train, uniform, or the share of each client's queries, which sum to 1, as {north: 0.7, south: 0.3}",
        ),
    ] = "train"
    abstain: Annotated[
        float | None,
        _given(lambda v: v is None or (_number(v) and 0 < v < 1), "a share above 0 and below 1, such as 0.05, or null"),
    ] = 0.05
    common: bool = True
    capacity: Annotated[
        dict[str, float] | None,
        _given(lambda v: v is None or _shares(v), "shares above 0 and at most 1 by client, as {north: 0.5}, or null"),
    ] = None

    @model_validator(mode="after")
    def _together(self) -> Self:
        """Options that would be ignored are refused."""
        if self.kind == "drm" and self.input not in ("auto", ["branch"]):
            raise ValueError("kind: drm reads feddrm's branch and nothing else; leave `input` out")
        if self.kind == "drm" and self.random_features not in ("auto", 0):
            raise ValueError("kind: drm is trained as it is; leave `random_features` out")
        return self

    def check_clients(self, clients: Iterable[str], name: str = "the federation") -> None:
        """Raises InputError where `arrival` or `capacity` name a client that is not there, or where the limits of all
        clients together would leave queries over."""
        known = list(clients)
        for key in ("arrival", "capacity"):
            given = getattr(self, key)
            for c in given if isinstance(given, dict) else ():
                if c not in known:
                    raise InputError(f"router.{key}: {name} has no client {c!r}{nearest(c, known)}")
        limits = self.capacity or {}
        if known and all(c in limits for c in known) and sum(limits.values()) < 1:
            raise InputError(
                f"router.capacity: all clients together take {sum(limits.values()):g} of the queries; leave one "
                "without a limit, or raise the limits to 1 in sum"
            )
