"""What each client sends for the profile: numbers, bytes, and how private that is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedroute.profile import basis, feature, strata, time
from fedroute.profile.sample import FOLDS

NUMBER = 8  # bytes


@dataclass(frozen=True)
class Sent:
    """part: which measure it is for; what, private: in words; bytes: of one client, the most any sends."""

    part: str
    what: str
    bytes: int
    private: str

    def row(self) -> dict[str, Any]:
        return {"part": self.part, "what": self.what, "bytes": self.bytes, "private": self.private}


SUMMED = "only the sum over clients is needed: a secure sum hides each client's"
COUNTS = "counts: a rare label or value may point to a person; send with noise where that matters"


def sent(
    *,
    clients: int,
    labels: int,
    features: int,
    curves: int,
    columns: int,
    missing: bool,
    blocks: int,
    fine: int,
    pairs: int,
) -> tuple[Sent, ...]:
    """Every message of `profile`, for so many clients, labels, features, curves of them, columns, stretches of time (0
    without a time) and pairs told apart of which one client is in at most `pairs`."""
    found = [
        Sent("label, quantity, coverage", "number of rows, rows of each label", NUMBER * (labels + 1), COUNTS),
        Sent("all", f"up to {basis.SENT} quantiles of each feature, one for every {basis.EACH} values at most",
             NUMBER * (basis.SENT + 1) * features, "a quantile is a value or lies between two; tails are coarse"),
        Sent("all", "sum and squares of each feature's scores", NUMBER * 3 * features, SUMMED),
        Sent("feature", "per label and fold number and sum of rows' curves, and one sum of their products",
             NUMBER * (2 * labels * FOLDS * (curves + 1) + 2 * curves**2), SUMMED),
        Sent("feature", "per fold one sum of its rows, each minus its label's mean over all clients",
             NUMBER * 2 * FOLDS * (curves + 1), "one sum over the client's rows: of few rows it says much about each"),
        Sent("feature", f"per feature and label counts in {len(feature.CUTS) + 1} cells",
             NUMBER * features * labels * (len(feature.CUTS) + 1), COUNTS),
        Sent("feature", f"per pair and fold a histogram of scores in {strata.BINS} cells",
             NUMBER * pairs * FOLDS * strata.BINS, "where rows lie along one line between two clients"),
        Sent("concept", "per label and fold number and sum of rows' curves, as they are and aligned",
             2 * NUMBER * labels * FOLDS * (curves + 1), SUMMED + " (the client takes its own off itself)"),
        Sent("concept", "gain of its own means over the others', its deviation, two accuracies; how many of its labels "
             "may be wrong; of each label how many rows the others' means take for each",
             NUMBER * (11 + labels**2), COUNTS),
    ]  # fmt: skip
    if missing:
        found.append(Sent("missing", "share of missing values in each column", NUMBER * columns, "shares"))
    if blocks:
        found += [
            Sent("time", f"{fine} quantiles of its times", NUMBER * fine,
                 "a quantile is the time of a row; of which is not said"),
            Sent("time", "per stretch and label: number, and per fold sums of rows' curves",
                 NUMBER * blocks * labels * FOLDS * (curves + 1) * 2, SUMMED),
            Sent("time", "per fine stretch: number of rows of each label, sums of scores",
                 NUMBER * fine * (labels + time.AXES + 1), SUMMED),
        ]  # fmt: skip
    return tuple(found)


def of_sick(sent: Mapping[str, Mapping[str, int]], private: Mapping[str, str]) -> tuple[Sent, ...]:
    """What `sick` makes clients send: name -> message -> bytes, of which the most any client sends."""
    most = {part: max((m.get(part, 0) for m in sent.values()), default=0) for part in private}
    return tuple(Sent("sick data", part, n, private[part]) for part, n in most.items() if n)
