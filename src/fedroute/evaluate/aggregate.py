"""One number per client into the few that describe them all."""

import math
from collections.abc import Sequence
from typing import Any

KINDS = ("personal", "global", "alone")  # the models that a client is measured with
KEYS = ("mean", "weighted", "worst", "worst_client", "worst_tenth", "std", "measured", "undefined")


def aggregate(
    values: Sequence[float | None], rows: Sequence[int], names: Sequence[str], *, higher: bool = True
) -> dict[str, Any]:
    """{mean, weighted, worst, worst_client, worst_tenth, std, measured, undefined} over the clients with a value.

    values: one per client, None where undefined; rows: the rows it was measured on. mean: of clients, each counting
    once; weighted: by rows; worst_tenth: the mean of the worst tenth of clients, at least one; std: the spread between
    clients (over N, not N - 1); measured, undefined: how many clients have a value and how many have none. higher:
    whether higher is better. Of clients that are equally bad the first by name is the worst. All None but the counts
    where no client has a value."""
    found = [(v, n, c) for v, n, c in zip(values, rows, names, strict=True) if v is not None]
    if not found:
        return dict.fromkeys(KEYS) | {"measured": 0, "undefined": len(values)}
    mean = math.fsum(v for v, _, _ in found) / len(found)
    weight = sum(n for _, n, _ in found)
    order = sorted(found, key=lambda e: (e[0] if higher else -e[0], e[2]))
    tenth = order[: math.ceil(len(order) / 10)]
    return {
        "mean": mean,
        "weighted": math.fsum(v * n for v, n, _ in found) / weight if weight else None,
        "worst": order[0][0],
        "worst_client": order[0][2],
        "worst_tenth": math.fsum(v for v, _, _ in tenth) / len(tenth),
        "std": math.sqrt(math.fsum((v - mean) ** 2 for v, _, _ in found) / len(found)),
        "measured": len(found),
        "undefined": len(values) - len(found),
    }
