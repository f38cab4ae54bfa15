"""What is trained: the models, the data, who is sampled when. The same for every contender.

Everything random (the partition, the clients of each round, the initial weights) is drawn here, once, from one seed.
The rows are stored sorted by client, so that a client's data are one slice, and as a memory-mapped file, so that
contenders that wait for their turn side by side share one copy.
"""

import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

SEED = 20260101
CLIENTS, SAMPLED, CLASSES = 100, 10, 10
ROWS, SHAPE = 50_000, (3, 32, 32)
ROUNDS = 400  # drawn ahead; far more than a run uses
ALPHA, LEAST_ROWS = 0.1, 10
LR = 0.01
MEAN, STD = (0.491, 0.482, 0.447), (0.245, 0.243, 0.261)  # of CIFAR-10's training images, in 0..1


@dataclass(frozen=True)
class Workload:
    """A model at a batch size, and how many rounds make one turn (about one or two seconds of training)."""

    name: str
    model: str
    batch: int
    rounds: int


WORKLOADS = {
    "W1": Workload("W1", "mlp", 10, 10),
    "W2": Workload("W2", "cnn", 10, 1),
    "W2-b50": Workload("W2-b50", "cnn", 50, 1),
}


def mlp() -> nn.Module:
    """3072-16-10: 49,338 weights. So small that what surrounds the arithmetic is what is measured."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def cnn() -> nn.Module:
    """The two convolutions of the FedAvg paper, unpadded as the field's code has them: 878,538 weights."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, CLASSES),
    )  # fmt: skip


def model_of(workload: Workload) -> nn.Module:
    """A fresh model with the weights every contender starts from."""
    torch.manual_seed(SEED)
    return {"mlp": mlp, "cnn": cnn}[workload.model]()


@dataclass(frozen=True)
class Plan:
    """The data, client by client, and the clients of every round."""

    x: Tensor  # (rows, 3, 32, 32) float32, sorted by client
    y: Tensor  # (rows,) int64
    starts: tuple[int, ...]  # client i has the rows starts[i]:starts[i + 1]
    rounds: tuple[tuple[int, ...], ...]  # the clients of each round

    def rows(self, client: int) -> slice:
        return slice(self.starts[client], self.starts[client + 1])

    def samples(self, rounds: range) -> int:
        """How many samples one local epoch in each of these rounds trains."""
        return sum(self.starts[i + 1] - self.starts[i] for r in rounds for i in self.rounds[r])


def prepare(folder: Path) -> str:
    """Write the plan into `folder` unless it is there; return where the images came from."""
    done = folder / "plan.npz"
    source = _images_file()
    wanted = "cifar10" if source else "random"
    if done.exists():
        with np.load(done) as plan:
            if str(plan["source"]) == wanted and int(plan["seed"]) == SEED:
                return wanted
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = _decode(source) if source else _random_images()
    rng = np.random.default_rng(SEED)
    parts = dirichlet_partition(labels, rng)
    order = np.concatenate(parts)
    x = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.float32, shape=(len(order), *SHAPE))
    mean, std = (np.asarray(v, np.float32) for v in (MEAN, STD))
    for start in range(0, len(order), 5_000):
        pixels = images[order[start : start + 5_000]].astype(np.float32) / 255
        x[start : start + 5_000] = ((pixels - mean) / std).transpose(0, 3, 1, 2)
    x.flush()
    rounds = np.stack([rng.choice(CLIENTS, SAMPLED, replace=False) for _ in range(ROUNDS)])
    starts = np.concatenate([[0], np.cumsum([len(p) for p in parts])])
    np.savez(done, y=labels[order], starts=starts, rounds=rounds, source=wanted, seed=SEED)
    return wanted


def load(folder: Path) -> Plan:
    """The plan, its rows touched once so that no contender pays for reading them."""
    x = torch.from_numpy(np.load(folder / "x.npy", mmap_mode="c"))
    x.sum()
    with np.load(folder / "plan.npz") as plan:
        y = torch.from_numpy(plan["y"].astype(np.int64))
        starts = tuple(int(s) for s in plan["starts"])
        rounds = tuple(tuple(int(i) for i in r) for r in plan["rounds"])
    return Plan(x, y, starts, rounds)


def dirichlet_partition(labels: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """An exact cover: each label is spread over the clients by a Dirichlet draw; nobody is left below LEAST_ROWS.

    What a client lacks is taken from the largest client of the moment.
    """
    parts: list[list[int]] = [[] for _ in range(CLIENTS)]
    for label in range(CLASSES):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(rng.dirichlet(np.full(CLIENTS, ALPHA)))[:-1] * len(rows)
        for part, piece in zip(parts, np.split(rows, cuts.astype(int)), strict=True):
            part.extend(piece.tolist())
    for part in parts:
        while len(part) < LEAST_ROWS:
            part.append(max(parts, key=len).pop())
    return [rng.permutation(np.asarray(part, dtype=np.int64)) for part in parts]


def _images_file() -> Path | None:
    path = Path(os.environ.get("FEDROUTE_DATA", "")) / "cifar10" / "train.parquet"
    return path if os.environ.get("FEDROUTE_DATA") and path.exists() else None


def _decode(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """All images as (rows, 32, 32, 3) uint8, and their labels."""
    import pyarrow.parquet as pq
    from PIL import Image

    table = pq.read_table(path, columns=["image", "label"])
    blobs = table["image"].to_pylist()
    images = np.stack([np.asarray(Image.open(io.BytesIO(blob)).convert("RGB")) for blob in blobs])
    return images, table["label"].to_numpy().astype(np.int64)


def _random_images() -> tuple[np.ndarray, np.ndarray]:
    """The same shapes and numbers of rows: the arithmetic costs the same, only the loss means nothing."""
    rng = np.random.default_rng(SEED)
    images = rng.integers(0, 256, (ROWS, *SHAPE[1:], SHAPE[0]), dtype=np.uint8)
    return images, np.repeat(np.arange(CLASSES), ROWS // CLASSES)
