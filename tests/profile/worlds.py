"""Six synthetic worlds in which it is known how the clients differ, and mixtures of them.

Every world is a federation of ten clients with 300 rows each, 8 features, 4 labels and a time; each feature and each
time is drawn alike everywhere unless the world says otherwise."""

import numpy as np
import torch
from numpy.typing import NDArray

from fedroute.data.federation import Federation
from fedroute.randomness import seed_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CLIENTS, ROWS, FEATURES, LABELS = 10, 300, 8, 4
KINDS = ("iid", "label", "feature", "quantity", "concept", "time")
MIXTURES = (("label", "feature"), ("label", "quantity"), ("feature", "quantity"), ("feature", "concept"),
            ("label", "concept"), ("quantity", "concept"), ("label", "time"), ("feature", "time"))  # fmt: skip


def world(*kinds: str, seed: int, strength: float = 1.0) -> Federation:
    """A draw of the world with these skews, at this strength; "iid" has none."""
    rng = np.random.default_rng(seed_of("world", *kinds, seed))
    sizes = np.full(CLIENTS, ROWS)
    if "quantity" in kinds:
        sizes = np.maximum((rng.dirichlet(np.full(CLIENTS, 0.5 / strength**2)) * CLIENTS * ROWS).astype(np.int64), 20)
    shares = np.full((CLIENTS, LABELS), 1 / LABELS)
    if "label" in kinds:
        shares = rng.dirichlet(np.full(LABELS, 0.5 / strength**2), CLIENTS)
    middle = rng.standard_normal((LABELS, FEATURES)) * 1.2
    drift = rng.standard_normal(FEATURES)
    swapped = rng.permutation(CLIENTS)[: max(1, round(strength * CLIENTS / 2))]
    order = np.roll(np.arange(LABELS), 1)
    x, y, t, who = list[Floats](), list[Ints](), list[Floats](), list[str]()
    for i in range(CLIENTS):
        n = int(sizes[i])
        true = rng.choice(LABELS, n, p=shares[i])
        time = rng.uniform(0, 1000, n)
        v = middle[true] + rng.standard_normal((n, FEATURES))
        if "feature" in kinds:
            v = v * np.exp(0.25 * strength * rng.standard_normal(FEATURES))
            v = v + 0.7 * strength * rng.standard_normal(FEATURES)
        if "time" in kinds:
            v = v + strength * drift * (time > 600)[:, None]
        x.append(v)
        y.append(order[true] if "concept" in kinds and i in swapped else true)
        t.append(time)
        who += [f"client {i}"] * n
    return Federation.from_arrays(
        torch.from_numpy(np.concatenate(x)).float(), torch.from_numpy(np.concatenate(y)), who,
        name=f"{' and '.join(kinds)} {seed}", labels=[f"label {k}" for k in range(LABELS)],
        time=torch.from_numpy(np.concatenate(t)), seed=seed,
    )  # fmt: skip
