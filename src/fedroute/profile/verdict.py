"""How bad, how sure, and what to call it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["label", "feature", "quantity", "time", "concept"]
KINDS: tuple[Kind, ...] = ("label", "feature", "quantity", "time", "concept")
Level = Literal["none", "mild", "clear", "strong", "unknown"]
ALPHA = 0.002  # of each of the five: of a hundred federations without any skew about one is called skewed
LIMITS: dict[Kind, tuple[float, float, float]] = {  # strengths from which on a skew is mild, clear, strong
    "label": (0.04, 0.2, 0.5), "feature": (0.06, 0.2, 0.5), "quantity": (0.2, 0.35, 0.6), "time": (0.06, 0.2, 0.5),
    "concept": (0.05, 0.2, 0.5),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Skew:
    """How clients differ in one respect. strength: 0 (as random clients of the same sizes) to 1 (nothing in common);
    interval: at 95 %; p: of so much by chance, where rows were dealt at random to clients of these sizes;
    verdict: none, mild, clear, strong by `LIMITS`; unknown where it cannot be told.
    numbers: what was measured. sentences: the verdict in words by language, "en" and "zh"."""

    kind: Kind
    strength: float
    interval: tuple[float, float]
    p: float | None
    verdict: Level
    numbers: Mapping[str, Any] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)

    @property
    def present(self) -> bool:
        return self.verdict in ("mild", "clear", "strong")

    def row(self) -> dict[str, Any]:
        """As JSON says it."""
        return {
            "strength": round(self.strength, 4), "interval": [round(v, 4) for v in self.interval],
            "verdict": self.verdict, "p": self.p, "sentence": self.sentences.get("en", ""),
            "sentences": dict(self.sentences), **self.numbers,
        }  # fmt: skip


def level(kind: Kind, strength: float, p: float | None) -> Level:
    """None where chance would do it, or where it is too little to matter."""
    if p is None:
        return "unknown"
    mild, clear, strong = LIMITS[kind]
    if p >= ALPHA or strength < mild:
        return "none"
    return "strong" if strength >= strong else "clear" if strength >= clear else "mild"
