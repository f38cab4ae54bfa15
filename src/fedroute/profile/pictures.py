"""The numbers behind the three pictures that are looked at before aggregating: labels, features, time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroute.profile.feature import Telling
from fedroute.profile.sample import Sample
from fedroute.profile.time import Drift

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def pictures(drawn: Sample, told: Telling, shown: Ints, moved: Floats, drift: Drift | None) -> dict[str, Any]:
    """labels: (N, K) shares; features: of the features `shown` the difference of each client from all, at the same
    mix of labels, in deviations, and how far its values would have to move (`moved`, (N, len(shown))); time: means of
    stretches."""
    share = drawn.known / np.maximum(drawn.known.sum(1), 1)[:, None]
    found: dict[str, Any] = {
        "labels": {"labels": list(drawn.labels), "shares": _lists(share)},
        "features": {
            "features": [drawn.features[j] for j in shown], "difference": _lists(told.shift[:, shown]),
            "wasserstein": _lists(moved),
        },
        "time": None,
    }  # fmt: skip
    if drift is not None:
        found["time"] = {
            "at": _lists(drift.at), "axes": _lists(drift.series.T), "shares": _lists(drift.mix.T),
            "edges": _lists(drift.edges),
        }  # fmt: skip
    return found


def _lists(v: Floats) -> Any:
    return np.round(v, 4).tolist()
