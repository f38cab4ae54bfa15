"""Who is too small, who has one label alone, and which labels are seen by whom."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
TINY = 30  # different rows to train on, below which a model of one's own hardly learns
NEARLY = 0.9  # share of one label from which on a client has nearly that label alone
USUAL = 0.8  # share of it over all clients, beyond which that says nothing about the client
EXPECTED = 10  # rows that a label would have at a client, for it to be missed
DOMINATES = 0.5


@dataclass(frozen=True)
class Coverage:
    """holders: (K,) clients with rows of each label; flags: per client: empty, tiny, one_class, nearly_one_class,
    missing_labels, dominates; lacking: per client the labels it would have ten rows or more of if it were as the
    others."""

    holders: Ints
    flags: tuple[tuple[str, ...], ...]
    lacking: tuple[tuple[int, ...], ...]

    def row(self, labels: tuple[str, ...]) -> dict[str, Any]:
        return {
            "clients_with_label": dict(zip(labels, self.holders.tolist(), strict=True)),
            "labels_of_one_client": [k for k, n in zip(labels, self.holders, strict=True) if n == 1],
            "clients": {f: sum(f in of for of in self.flags) for f in FLAGS},
        }  # fmt: skip


FLAGS = ("empty", "tiny", "one_class", "nearly_one_class", "missing_labels", "dominates")


def measure(known: Ints, classes: bool) -> Coverage:
    """known: (N, K) different rows of each label, all that a client sends for it; classes: whether labels are
    classes."""
    n, k = known.sum(1), known.shape[1]
    total = known.sum(0)
    flags, lacking = list[tuple[str, ...]](), list[tuple[int, ...]]()
    for i in range(len(known)):
        mine = list[str]()
        others = (total - known[i]) / max(int(total.sum() - n[i]), 1)
        missed: tuple[int, ...] = ()
        if n[i] == 0:
            mine.append("empty")
        elif n[i] < TINY:
            mine.append("tiny")
        if classes and k > 1 and n[i] > 0:
            most = int(known[i].argmax())
            if known[i, most] == n[i]:
                mine.append("one_class")
            elif known[i, most] >= NEARLY * n[i] and others[most] < USUAL:
                mine.append("nearly_one_class")
            missed = tuple(np.flatnonzero((known[i] == 0) & (others * n[i] >= EXPECTED)).tolist())
            if missed:
                mine.append("missing_labels")
        if len(known) > 2 and n[i] > DOMINATES * n.sum():
            mine.append("dominates")
        flags.append(tuple(mine))
        lacking.append(missed)
    return Coverage((known > 0).sum(0), tuple(flags), tuple(lacking))
