"""The four archives of handwritten digits, balanced and small, in the ways that the replications deal them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.data.partition import assign
from fedroute.data.registry import locate
from fedroute.data.spec import Dirichlet, Partition, Split

LABELS = [str(c) for c in range(10)]


def small(seed: int, clients_each: int = 1, alpha: float = 0.5, split: Split | None = None) -> Federation:
    """2,400 images, 600 of each archive: x (2400, 1, 28, 28) uint8. One client an archive, or `clients_each` of each by
    Dirichlet(alpha) over its labels, so that clients differ in features and labels."""
    with np.load(locate("digits4", "digits_small.npz")) as f:
        x, y, domain = torch.from_numpy(f["x"])[:, None], torch.from_numpy(f["y"]).long(), f["d"].astype(str)
    owner: list[str] = domain.tolist()
    if clients_each > 1:
        for d in np.unique(domain):
            at = torch.from_numpy(np.flatnonzero(domain == d))
            dealt = assign(Dirichlet(clients=clients_each, alpha=alpha, minimum=60), y[at], seed, name=str(d))
            for row, k in zip(at.tolist(), dealt.tolist(), strict=True):
                owner[row] = f"{d}_{k}"
    return _federation(x, y, owner, None, split, seed, "digits4")


def mnist(partition: Partition, seed: int, split: Split | None = None, rows: int = 10_000) -> Federation:
    """The 10,000 MNIST images in it, or the first of them, dealt to made clients: x (rows, 1, 28, 28) uint8."""
    import pyarrow.parquet as pq

    table = pq.read_table(
        locate("digits4", "digits.parquet"), columns=["image", "label"], filters=[("domain", "=", "mnist")]
    )
    images = np.frombuffer(b"".join(table["image"].to_pylist()), dtype=np.uint8).reshape(-1, 1, 28, 28)
    x, y = torch.from_numpy(images.copy())[:rows], torch.from_numpy(table["label"].to_numpy().astype(np.int64))[:rows]
    return _federation(x, y, None, partition, split, seed, "mnist")


def _federation(
    x: Tensor, y: Tensor, owner: Sequence[str] | None, partition: Partition | None, split: Split | None, seed: int,
    name: str,
) -> Federation:  # fmt: skip
    return Federation.from_arrays(
        x, y, owner, partition=partition, name=name, labels=LABELS, split=split or Split(), seed=seed
    )
