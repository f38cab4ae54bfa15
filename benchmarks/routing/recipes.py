"""Data that a user has from their publishers: CIFAR-100 and its 20 coarse labels, and fundus images of several sites.

Each is found in $FEDROUTE_DATA, as it comes:

cifar100/cifar-100-python.tar.gz, or the folder cifar100/cifar-100-python that it unpacks to, from
https://www.cs.toronto.edu/~kriz/cifar.html; retina/SITE/{Training,Testing}/CLASS/FILE, with sites such as ACRIMA, RIM
and REFUGE."""

import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.data.partition import assign
from fedroute.data.shift import apply
from fedroute.data.spec import Dirichlet, Shards, Shift, Split
from fedroute.data.split import split_rows
from fedroute.errors import InputError

PLAIN = {  # what an archive of arrays and lists needs, under the names of older and newer numpy
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"),
    ("numpy", "dtype"), ("_codecs", "encode"),
}  # fmt: skip
HELD_OUT = 0.1  # of the training rows
SIZE = 96  # of a fundus image


class _Arrays(pickle.Unpickler):
    """Reads arrays and plain values, and refuses whatever else a pickle may ask for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN:
            raise InputError(
                f"{module}.{name}: an archive of images has no use for it; get the file from its publisher"
            )
        return super().find_class(module, name)


def archive(folder: Path) -> dict[str, dict[bytes, Any]]:
    """ "train", "test" and "meta" of CIFAR-100's python version, from its tar.gz or the folder it unpacks to. Raises
    InputError where neither is there, or it is something else."""
    packed, plain = folder / "cifar-100-python.tar.gz", folder / "cifar-100-python"
    found = {}
    for part in ("train", "test", "meta"):
        if packed.is_file():
            with tarfile.open(packed) as tar:
                member = tar.extractfile(f"cifar-100-python/{part}")
                raw = member.read() if member else b""
        elif (plain / part).is_file():
            raw = (plain / part).read_bytes()
        else:
            raise InputError(f"{packed}: is not there, nor {plain / part}; get the python version of CIFAR-100 "
                             "from its publisher and put it there")  # fmt: skip
        found[part] = _Arrays(io.BytesIO(raw), encoding="bytes").load()
    return found


def cifar100(folder: Path) -> tuple[Tensor, dict[str, Tensor], dict[str, tuple[str, ...]]]:
    """(x (60000, 3, 32, 32) uint8, training images first; labels "fine" and "coarse", (60000,); their names)."""
    found = archive(folder)
    x = np.concatenate([found[p][b"data"] for p in ("train", "test")]).reshape(-1, 3, 32, 32)
    y, names = {}, {}
    for kind in ("fine", "coarse"):
        codes = [np.asarray(found[p][f"{kind}_labels".encode()], dtype=np.int64) for p in ("train", "test")]
        y[kind] = torch.from_numpy(np.concatenate(codes))
        names[kind] = tuple(n.decode() for n in found["meta"][f"{kind}_label_names".encode()])
    return torch.from_numpy(x.copy()), y, names


def of_cifar100(labels: Literal["fine", "coarse"], dealt: Dirichlet | Shards) -> Callable[[int, Path], Federation]:
    """The paper's CIFAR-100 ("fine") and CIFAR-20 ("coarse"): train and test together, dealt by the fine labels to 8
    clients, each in its colours and cut 70/30."""

    def federation(seed: int, cache: Path) -> Federation:
        x, y, names = cifar100(_data() / "cifar100")
        owner = assign(dealt, y["fine"], seed, None, "cifar100")
        clients = tuple(str(i) for i in range(dealt.clients))
        rows = [(owner == i).nonzero().squeeze(1) for i in range(dealt.clients)]
        x = apply(x, Shift(method="colour", level="high"), rows, clients, seed)
        return _split(f"cifar100 {labels}", x, y[labels], names[labels], clients, rows, seed)

    return federation


def retina(seed: int, cache: Path) -> Federation:
    """Fundus images, a client for each site; what is under Training and Testing is put together and cut anew, 70/30.
    x (R, 3, 96, 96) uint8: the normalisation is the model's and the same for all sites, since one of each site's own
    would need to know whose a query is."""
    return sites(_data() / "retina", seed)


def sites(folder: Path, seed: int) -> Federation:
    """As `retina`, of this folder. Raises InputError where it has no images in the folders SITE/PART/CLASS."""
    from PIL import Image

    files = sorted(p for part in ("Training", "Testing") for p in folder.glob(f"*/{part}/*/*") if p.is_file())
    if not files:
        raise InputError(
            f"{folder}: has no images as SITE/Training/CLASS/FILE or SITE/Testing/CLASS/FILE; put them there"
        )
    names = [p.relative_to(folder).parts for p in files]
    clients, labels = (tuple(sorted({n[k] for n in names})) for k in (0, 2))
    images = []
    for p in files:
        try:
            with Image.open(p) as image:
                images.append(np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)))
        except OSError:
            raise InputError(f"{p}: is no image that can be read; take it out of the folder") from None
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
    y = torch.tensor([labels.index(n[2]) for n in names])
    rows = [torch.tensor([i for i, n in enumerate(names) if n[0] == c]) for c in clients]
    return _split("retina", x, y, labels, clients, rows, seed)


def _split(
    name: str, x: Tensor, y: Tensor, labels: tuple[str, ...], clients: tuple[str, ...], rows: list[Tensor], seed: int
) -> Federation:
    split = Split(validation=0.7 * HELD_OUT, test=0.3)
    parts = [split_rows(r, y, split, seed, c, None) for c, r in zip(clients, rows, strict=True)]
    train, validation, test = (tuple(p[k] for p in parts) for k in range(3))
    return Federation(
        name=name, x=x, y=y, clients=clients, labels=labels, train=train, validation=validation, test=test
    )


def _data() -> Path:
    if not (given := os.environ.get("FEDROUTE_DATA")):
        raise InputError("FEDROUTE_DATA: names the folder with the data, and is not set; set it")
    return Path(given).expanduser()
