"""The numbers of a profile that an advice rests on, read from its JSON form, so that a saved profile will do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PRESENT = ("mild", "clear", "strong")
KINDS = ("label", "feature", "quantity", "time", "concept")


@dataclass(frozen=True, kw_only=True)
class ClientFacts:
    """rows: different ones, of all parts; labels: rows of each; flags: as the profile has them; weight: its share of
    all rows, copies counted; copies: rows that are copies of others; nearly: whether most of these are not exact."""

    name: str
    rows: int
    copies: int
    labels: Mapping[str, int]
    flags: tuple[str, ...]
    weight: float
    nearly: bool = False

    @property
    def one_class(self) -> bool:
        return "one_class" in self.flags or "nearly_one_class" in self.flags

    @property
    def tiny(self) -> bool:
        return "tiny" in self.flags or "empty" in self.flags


@dataclass(frozen=True, kw_only=True)
class Facts:
    """strength: by kind, 0 where the verdict is none or unknown; verdict: by kind. classes: labels there are; mix: mean
    effective number of labels of a client over that; rows: of the median client, different ones. own, others: how much
    of the labels features tell by a client's own means and by the others' (0 chance, 1 all), None where the profile
    does not say. names: of the top diagnosis' parts."""

    clients: tuple[ClientFacts, ...]
    classes: int
    strength: Mapping[str, float]
    verdict: Mapping[str, str]
    mix: float
    rows: float
    own: float | None
    others: float | None
    parts: tuple[str, ...]
    sick: tuple[Mapping[str, Any], ...]

    def present(self, kind: str) -> bool:
        return self.verdict[kind] in PRESENT


def facts_of(profile: Any) -> Facts:
    """From a `Profile`, or from what `fedroute profile --json` prints."""
    row: Mapping[str, Any] = profile if isinstance(profile, Mapping) else profile.row()
    skew = row["skew"]
    clients = tuple(_client(c) for c in row["clients"])
    classes = max(1, len(row["labels"]))
    return Facts(
        clients=clients,
        classes=classes,
        strength={k: float(skew[k]["strength"]) if skew[k]["verdict"] in PRESENT else 0.0 for k in KINDS},
        verdict={k: str(skew[k]["verdict"]) for k in KINDS},
        mix=float(skew["label"].get("effective_classes", classes)) / classes,
        rows=_median([c.rows for c in clients if c.rows]),
        own=skew["concept"].get("own"),
        others=skew["concept"].get("others"),
        parts=tuple(row.get("parts", ())),
        sick=tuple(row.get("sick", ())),
    )


def _client(c: Mapping[str, Any]) -> ClientFacts:
    return ClientFacts(
        name=c["name"],
        rows=int(c["effective_rows"]),
        copies=int(c["rows"]) - int(c["effective_rows"]),
        labels=dict(c["labels"]),
        flags=tuple(c["flags"]),
        weight=float(c.get("weight", 0.0)),
        nearly=c["duplicates"]["near"] > c["duplicates"]["exact"],
    )


def _median(values: list[int]) -> float:
    v = sorted(values)
    return (v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2 if v else 0.0
