"""One thing that was found in the data: whose it is, how bad, in one sentence, and the mend."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedroute.said import Said, say

Severity = Literal["severe", "warning", "note"]
ORDER: tuple[Severity, ...] = ("severe", "warning", "note")
SHOWN = 100  # row numbers that a finding's JSON has


@dataclass(frozen=True, kw_only=True)
class Finding:
    """kind: a few words, the same for the same trouble. client: whose data; None where it is all clients'. others: the
    clients it is about besides. column: the column; rows: numbers of rows of the federation, ascending (they stay with
    the client; the profile shows the first hundred to it). sentence, mend: in English, `.zh` in
    Chinese. number: how many or how strong, `unit` says of what.
    severe: results or advice would be wrong; warning: look at it; note: good to know."""

    kind: str
    client: str | None
    severity: Severity
    sentence: Said
    mend: Said
    number: float
    unit: str = "rows"
    column: str | None = None
    others: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()

    def row(self) -> dict[str, Any]:
        """As JSON says it."""
        return {
            "kind": self.kind, "client": self.client, "others": list(self.others), "column": self.column,
            "number": self.number, "unit": self.unit, "severity": self.severity,
            "sentence": str(self.sentence), "mend": str(self.mend), "rows": list(self.rows[:SHOWN]),
        }  # fmt: skip

    def languages(self) -> dict[str, dict[str, str]]:
        """What `row` says in English, by language, "en" and "zh"."""
        return {
            "sentences": {"en": str(self.sentence), "zh": self.sentence.zh},
            "mends": {"en": str(self.mend), "zh": self.mend.zh},
        }


def worst_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Severe before warnings before notes; within, by kind, client and column."""
    return tuple(
        sorted(findings, key=lambda f: (ORDER.index(f.severity), f.kind, f.client or "", f.column or "", f.others))
    )


def percent(share: float) -> str:
    """ "0.4 %", "12 %": a share for people."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def listed(names: Sequence[str], most: int = 4) -> Said:
    """ "a, b and c", "a, b, c, d and 12 more"; "a、b、c、d 和另外 12 个"."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    more = f" 和另外 {len(names) - most} 个" if len(names) > most else ""
    return say(
        " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown), "、".join(names[:most]) + more
    )
