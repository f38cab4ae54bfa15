"""The federations, models and budgets of the benchmark."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.replications.digits4 import small
from benchmarks.routing.crop import Cropped
from benchmarks.routing.recipes import of_cifar100, retina
from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.partition import assign
from fedroute.data.registry import locate
from fedroute.data.shift import apply
from fedroute.data.spec import Dirichlet, Shards, Shift, Split
from fedroute.data.split import split_rows
from fedroute.errors import InputError
from fedroute.models import build
from fedroute.models.nets import Net

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
HELD_OUT = 0.1  # of each client's training rows: on these a router is chosen
NAMES = tuple(map(str, range(8)))  # of the clients made of CIFAR-10


@dataclass(frozen=True, kw_only=True)
class Setting:
    """federation(seed, cache): where seeds deal the rows anew. training: as in a config. cropped: whether training
    images are cropped at random. centred: whether the model sees 2 x - 1."""

    about: str
    federation: Callable[[int, Path], Federation]
    model: Mapping[str, Any]
    training: Mapping[str, Any]
    cropped: bool = False
    centred: bool = False

    def net(self, f: Federation, seed: int) -> tuple[Net, dict[str, str]]:
        """The model of the zoo; of images with 2 x - 1 before its first layer."""
        net, roles = build(self.model, f, seed)
        if self.centred:
            net.features = nn.Sequential(Centred(), *net.features)
        return net, roles

    def for_training(self, f: Federation, seed: int) -> Federation:
        return Cropped.of(f, seed) if self.cropped else f


class Centred(nn.Module):
    """Pixels in 0..1 to -1..1."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x - 1


def images(cache: Path) -> tuple[Tensor, Tensor]:
    """All 60,000 images of CIFAR-10, those of train.parquet first: x (R, 3, 32, 32) uint8, y (R,). Decoded once."""
    kept = cache / "cifar10-images.npz"
    if not kept.exists():
        import pyarrow.parquet as pq
        from PIL import Image

        tables = [pq.read_table(locate("cifar10", f"{part}.parquet")) for part in ("train", "test")]
        raw = [b for t in tables for b in t["image"].to_pylist()]
        x = np.stack([np.asarray(Image.open(io.BytesIO(b))) for b in raw]).transpose(0, 3, 1, 2)
        y = np.concatenate([t["label"].to_numpy() for t in tables]).astype(np.int64)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(kept, x=x, y=y)
    found = np.load(kept)
    return torch.from_numpy(found["x"]), torch.from_numpy(found["y"])


def published_rows() -> dict[str, tuple[Tensor, ...]]:
    """ "train" and "test" of each of 8 clients, rows of `images`: the partition of the paper's authors, Dirichlet(0.3),
    each client cut 70/30. Raises InputError where their file is not there."""
    import pyarrow.parquet as pq

    path = locate("cifar10", "train.parquet").with_name("feddrm_partition.parquet")
    if not path.is_file():
        raise InputError(f"{path}: the partition of the paper's authors is not there; take the setting shards")
    row: dict[tuple[str, str], int] = {}
    for split in ("train", "test"):
        for name in pq.read_table(locate("cifar10", f"{split}.parquet"), columns=["name"])["name"].to_pylist():
            row[split, name] = len(row)
    table = pq.read_table(path)
    at = np.array([row[key] for key in zip(table["split"].to_pylist(), table["name"].to_pylist(), strict=True)])
    client, part = table["client"].to_numpy(), np.array(table["part"].to_pylist())
    return {p: tuple(torch.from_numpy(at[(client == i) & (part == p)]) for i in range(8)) for p in ("train", "test")}


def published_partition(seed: int, cache: Path) -> Federation:
    """The authors' partition; seeds draw the tenth of the training rows that is held out."""
    x, y = images(cache)
    rows = published_rows()
    return held_out("cifar10", x, y, rows["train"], rows["test"], seed)


def every_tenth(seed: int, cache: Path) -> Federation:
    """Each tenth row of every part of the authors' partition: what a large net can go through on two cores."""
    f = published_partition(seed, cache)

    kept = torch.cat([rows[::10] for part in (f.train, f.validation, f.test) for rows in part]).sort().values

    def tenth(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(torch.searchsorted(kept, rows[::10]) for rows in parts)

    return replace(f, x=f.x[kept], y=f.y[kept], train=tenth(f.train), validation=tenth(f.validation),
                   test=tenth(f.test))  # fmt: skip


def five_shards(seed: int, cache: Path) -> Federation:
    """5 of 40 equal shards of images sorted by label for each of 8 clients, 30 % of them to test."""
    x, y = images(cache)
    owner = assign(Shards(clients=8, shards=5), y, seed, None, "cifar10")
    split = Split(validation=0, test=0.3)
    parts = [split_rows((owner == i).nonzero().squeeze(1), y, split, seed, NAMES[i], None) for i in range(8)]
    return held_out("cifar10 shards", x, y, tuple(p[0] for p in parts), tuple(p[2] for p in parts), seed)


def held_out(
    name: str, x: Tensor, y: Tensor, train: tuple[Tensor, ...], test: tuple[Tensor, ...], seed: int
) -> Federation:
    """The images in their clients' colours, and a part of the training rows held out."""
    everything = [torch.cat(parts) for parts in zip(train, test, strict=True)]
    x = apply(x, Shift(method="colour", level="high"), everything, NAMES, seed)
    split = Split(validation=HELD_OUT, test=0)
    parts = [split_rows(rows, y, split, seed, c, None) for c, rows in zip(NAMES, train, strict=True)]
    return Federation(
        name=name, x=x, y=y, clients=NAMES, labels=LABELS, train=tuple(p[0] for p in parts),
        validation=tuple(p[1] for p in parts), test=test,
    )  # fmt: skip


def registered(name: str, **options: Any) -> Callable[[int, Path], Federation]:
    return lambda seed, cache: load_federation({"source": "registry", "name": name, **options}, seed)


def countries(seed: int, cache: Path) -> Federation:
    """ist_stroke by country, of those with 100 patients or more."""
    f = registered("ist_stroke")(seed, cache)
    many = [i for i, rows in enumerate(zip(f.train, f.validation, f.test, strict=True)) if sum(map(len, rows)) >= 100]

    def of(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(parts[i] for i in many)

    return replace(f, clients=tuple(f.clients[i] for i in many), train=of(f.train), validation=of(f.validation),
                   test=of(f.test))  # fmt: skip


def archives(seed: int, cache: Path) -> Federation:
    """The four archives of digits, 600 images of each, dealt to two clients each by Dirichlet(0.5)."""
    return small(seed, clients_each=2)


LENET = {"name": "lenet_gn"}
PAPER = {
    "rounds": 60, "local_steps": 10, "batch_size": 128, "lr": 0.01, "schedule": "cosine", "momentum": 0.9,
    "weight_decay": 5e-4, "alone": False,
}  # fmt: skip
SMALL = {"rounds": 40, "local_epochs": 2, "batch_size": 32, "lr": 0.05, "schedule": "cosine", "momentum": 0.9,
         "weight_decay": 1e-4, "alone": False}  # fmt: skip
SETTINGS: dict[str, Setting] = {
    "cifar10": Setting(
        about="CIFAR-10, the authors' own Dirichlet(0.3) partition, 8 clients, colour shift, LeNet-GN",
        federation=published_partition, model=LENET, training=PAPER, cropped=True, centred=True,
    ),
    "shards": Setting(
        about="CIFAR-10, 5 of 40 shards each, 8 clients, colour shift, LeNet-GN",
        federation=five_shards, model=LENET, training=PAPER, cropped=True, centred=True,
    ),
    "cifar10-whole": Setting(
        about="as cifar10, and images are never cropped in training", federation=published_partition, model=LENET,
        training=PAPER, centred=True,
    ),
    "cifar10-resnet18": Setting(
        about="each tenth row of cifar10, ResNet-18-GN, as many rounds as two cores allow",
        federation=every_tenth, model={"name": "resnet18_gn"}, training=PAPER | {"rounds": 4}, cropped=True,
        centred=True,
    ),
    "cifar20": Setting(
        about="CIFAR-100 by its 20 coarse labels, dealt by Dirichlet(0.3) on the fine ones; of a user's own copy",
        federation=of_cifar100("coarse", Dirichlet(clients=8, alpha=0.3)), model=LENET, training=PAPER, cropped=True,
        centred=True,
    ),
    "cifar100": Setting(
        about="CIFAR-100, 25 of 200 shards each, 8 clients, colour shift, LeNet-GN; of a user's own copy",
        federation=of_cifar100("fine", Shards(clients=8, shards=25)), model=LENET, training=PAPER, cropped=True,
        centred=True,
    ),
    "retina": Setting(
        about="fundus images of several sites, LeNet-GN; of a user's own copy", federation=retina,
        model=LENET, training=PAPER | {"batch_size": 32}, cropped=True, centred=True,
    ),
    "heart4": Setting(
        about="heart disease in four hospitals, a perceptron", federation=registered("heart4"),
        model={"name": "mlp"}, training=SMALL,
    ),
    "ist_stroke": Setting(
        about="outcome after stroke, countries with 100 patients or more, a perceptron", federation=countries,
        model={"name": "mlp"}, training=SMALL | {"rounds": 20, "local_epochs": 1},
    ),
    "digits4": Setting(
        about="digits of four archives, two clients each by Dirichlet(0.5), LeNet-GN", federation=archives,
        model=LENET, training=SMALL | {"rounds": 30, "lr": 0.02, "local_epochs": 1},
    ),
}  # fmt: skip
