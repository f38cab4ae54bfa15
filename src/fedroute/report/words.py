"""Numbers and sentences of the report."""

import math
from collections.abc import Sequence
from typing import Any

from fedroute.words import noun

MINUS = "\N{MINUS SIGN}"


class Unit:
    """How the headline metric is written: in percent for accuracy, else with three decimals."""

    def __init__(self, metric: str):
        self.metric = metric
        self.percent = metric in ("accuracy", "macro_f1")
        self.higher = metric not in ("loss", "log_loss", "ece")

    def number(self, value: float | None, sign: bool = False) -> str:
        """Without the sign of percent, for tables."""
        if value is None:
            return "n/a"
        value, digits = (100 * value, 1) if self.percent else (value, 3)
        value = round(value, digits) + 0.0  # and no -0.0
        text = f"{value:{'+' if sign and value else ''}.{digits}f}"
        return text.replace("-", MINUS)

    def __call__(self, value: float | None, sign: bool = False) -> str:
        return self.number(value, sign) + ("\N{NO-BREAK SPACE}%" if self.percent and value is not None else "")

    def gain(self, value: float | None) -> str:
        """A difference: of percents in points."""
        return self.number(value, True) + (" points" if self.percent and value is not None else "")

    def interval(self, pair: Sequence[float] | None, sign: bool = False) -> str:
        return "" if not pair else f"[{self.number(pair[0], sign)}, {self.number(pair[1], sign)}]"


def count(n: int, one: str, many: str | None = None) -> str:
    return f"{whole(n)} {noun(n, one, many)}"


def whole(n: float) -> str:
    """1234567 -> 1 234 567, with narrow spaces."""
    return f"{n:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def size(n: float) -> str:
    """Bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:.0f} B" if unit == "B" else f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.4g} TB"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def listed(names: Sequence[str], most: int = 4) -> str:
    """a, b and c; of more than `most` the first and how many more."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def headline(clients: Sequence[dict[str, Any]], rows: int) -> str:
    """Who gained and who lost, in one sentence."""
    by = {v: [c["name"] for c in clients if c.get("better_off") == v] for v in ("yes", "no", "unclear")}
    compared = sum(len(names) for names in by.values())
    if not clients:
        return "This run has no ledger yet, so who gained cannot be said."
    if not compared:
        return "No client was compared with training alone, so who gained cannot be said."
    few = len(clients) <= 6
    said = []
    if by["yes"]:
        who = listed(by["yes"]) if few else f"{len(by['yes'])} of {compared} clients"
        every = len(by["yes"]) == compared and compared > 1
        said.append(
            f"All {compared} clients are better off than alone"
            if every
            else f"{who} {_is(by['yes'])} better off than alone"
        )
    if by["no"]:
        who = listed(by["no"]) if few or len(by["no"]) <= 3 else count(len(by["no"]), "client")
        said.append(f"{who} {_is(by['no'])} worse off" + ("" if by["yes"] else " than alone"))
    elif by["yes"] and len(by["yes"]) < compared:
        said.append("nobody is shown to be worse off")
    if not said:
        tell = f"the differences are within what {count(rows, 'test row')} can tell"
        if compared == 1:
            return f"Whether {by['unclear'][0]} is better off than alone is not shown: {tell}."
        return f"None of the {compared} clients is shown to be better or worse off than alone: {tell}."
    if by["unclear"]:
        n = len(by["unclear"])
        who = listed(by["unclear"]) if few else count(n, "client")
        said.append(f"for {who} the difference is within the noise")
    return "; ".join(said) + "."


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about as many as asked for."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    step = 10 ** math.floor(math.log10(raw))
    step *= next(m for m in (1, 2, 5, 10) if m * step >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
