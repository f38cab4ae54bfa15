"""What a replication is: a published setting, the runs of it, and the numbers it stands beside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fedroute.data.federation import Federation

Kind = Literal["personal", "global", "alone"]


class Published(NamedTuple):
    """A number somebody else reports, in percent. checked: "verified" was read at the source that is named, "recalled"
    is from memory and must be looked up before it is quoted."""

    value: float
    source: str
    checked: Literal["verified", "recalled"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One method of a setting. algorithm: as in a config. training: what differs from the setting's training. reports:
    which of its models stand in the table, each with the published numbers (none where nobody gives one). grid: options
    of algorithm ("algorithm") and training ("training") of which the best is taken by the validation rows of the first
    seed, never by test rows."""

    name: str
    algorithm: Mapping[str, Any]
    reports: Mapping[Kind, tuple[Published, ...]]
    training: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[Mapping[str, Mapping[str, Any]], ...] = ({},)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """name: of this part of a replication. federation(seed): each seed draws its own split, or its own data.
    training: the budget all arms share; quick: what a trial run changes in it. measure: over clients, each counting
    once ("mean") or by its test rows ("weighted", which is all right answers over all rows). differs: in what our run
    is not the published one. pairs: arms whose difference is taken seed by seed, as "arm/kind". redrawn: whether seeds
    draw wholly new data, and not another split of the same rows. engine: by name; convolutions on a CPU are faster one
    client after the other."""

    name: str
    about: str
    federation: Callable[[int], Federation]
    model: Mapping[str, Any]
    training: Mapping[str, Any]
    quick: Mapping[str, Any]
    arms: tuple[Arm, ...]
    differs: tuple[str, ...]
    measure: Literal["mean", "weighted"] = "weighted"
    pairs: tuple[tuple[str, str], ...] = ()
    seeds: int = 3
    redrawn: bool = False
    engine: str = "stacked"
