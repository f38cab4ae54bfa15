"""Which values are missing where: columns that a client lacks, and columns that are filled in unequally."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ABSENT = 0.95  # of a column's values missing at a client, from which on it is as good as not there
ALPHA = 1e-4


@dataclass(frozen=True)
class Column:
    """share: of values missing over all clients; by_client: (N,); unequal: whether random clients of the same sizes
    would not show such differences; absent: numbers of the clients that lack it though others have it."""

    name: str
    share: float
    by_client: Floats
    unequal: bool
    absent: tuple[int, ...]

    def row(self, clients: tuple[str, ...]) -> dict[str, Any]:
        order = np.argsort(-self.by_client, kind="stable")
        return {
            "column": self.name, "share": round(self.share, 4), "unequal": self.unequal,
            "most": {"client": clients[order[0]], "share": round(float(self.by_client[order[0]]), 4)},
            "least": {"client": clients[order[-1]], "share": round(float(self.by_client[order[-1]]), 4)},
            "absent_at": [clients[i] for i in self.absent],
        }  # fmt: skip


def measure(share: Floats, n: Ints, columns: tuple[str, ...]) -> tuple[Column, ...]:
    """share: (N, C) of missing values, which with n, (N,) rows, is all that a client sends for it. Columns with gaps,
    the most unequal first. Unequal: a chi-square test of equal shares, p < ALPHA."""
    found = list[Column]()
    there = n > 0
    for j, name in enumerate(columns):
        gaps = share[:, j] * n
        whole = float(gaps.sum() / max(int(n.sum()), 1))
        if whole == 0:
            continue
        expected = n * whole
        p = 1.0
        if 0 < whole < 1 and there.sum() > 1:
            squares = (gaps - expected)[there] ** 2 / (expected * (1 - whole))[there]
            p = float(chi2.sf(squares.sum(), int(there.sum()) - 1))
        lacking = there & (share[:, j] >= ABSENT)
        absent = tuple(np.flatnonzero(lacking).tolist()) if not lacking[there].all() else ()
        found.append(Column(name, whole, share[:, j], p < ALPHA, absent))
    spread = [float(c.by_client[there].max() - c.by_client[there].min()) for c in found]
    return tuple(c for _, c in sorted(zip(spread, found, strict=True), key=lambda s: (-s[0], s[1].name)))
