"""The rows that the suite's federations are made of: small, fixed samples of real sets, as images or as files."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from fedroute.data.registry import description, locate
from fedroute.randomness import generator

Numbers = np.ndarray[Any, np.dtype[Any]]
_FOLDER = TemporaryDirectory(prefix="fedroute-advice-")  # samples of tables, written once a process


class Images(NamedTuple):
    """x: (R, C, H, W) uint8; y: (R,) int64; labels: their names; client: a name for each row, or None."""

    x: Tensor
    y: Tensor
    labels: tuple[str, ...]
    client: tuple[str, ...] | None = None


def sample(rows: int, of: int, *key: str) -> Numbers:
    """Indices of so many of these rows, ascending, drawn by the key."""
    return torch.randperm(of, generator=generator("advice suite", *key))[:rows].sort().values.numpy()


def capped(client: Numbers, rows: int, *key: str) -> Numbers:
    """Indices of at most so many rows of each client."""
    found = [np.flatnonzero(client == c) for c in np.unique(client)]
    return np.sort(np.concatenate([at[sample(rows, len(at), *key, str(client[at[0]]))] for at in found]))


# images


@cache
def digits() -> Images:
    """The 1,797 digits of 8x8 inside scikit-learn."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.from_numpy((found.images * 255 / 16).round().astype(np.uint8))[:, None]
    return Images(x, torch.from_numpy(found.target).long(), tuple(map(str, range(10))))


@cache
def mnist(rows: int = 1600) -> Images:
    """MNIST images, 14x14."""
    table = pq.read_table(
        locate("digits4", "digits.parquet"), columns=["image", "label"], filters=[("domain", "=", "mnist")]
    )
    table = table.take(sample(rows, len(table), "mnist"))
    x = np.frombuffer(b"".join(table["image"].to_pylist()), dtype=np.uint8).reshape(-1, 1, 28, 28)
    y = torch.from_numpy(table["label"].to_numpy().astype(np.int64))
    return Images(_halved(torch.from_numpy(x.copy())), y, tuple(map(str, range(10))))


@cache
def archives(rows: int = 300) -> Images:
    """Digits of four archives, 14x14, so many of each."""
    with np.load(locate("digits4", "digits_small.npz")) as f:
        domain = f["d"].astype(str)
        at = capped(domain, rows, "archives")
        x, y = torch.from_numpy(f["x"][at])[:, None], torch.from_numpy(f["y"][at]).long()
    return Images(_halved(x), y, tuple(map(str, range(10))), tuple(domain[at].tolist()))


@cache
def cifar(rows: int = 2400) -> Images:
    """CIFAR-10 images, 16x16 in colour."""
    from fedroute.data.load import load_federation

    table = pq.ParquetFile(locate("cifar10", "train.parquet")).read_row_group(0)[:rows]  # rows lie in random order
    path = _written(f"cifar-{rows}", table)
    spec = description("cifar10") | {"path": str(path), "partition": {"method": "iid", "clients": 1}}
    found = load_federation(spec)
    return Images(_halved(found.x), found.y, found.labels)


def _halved(x: Tensor) -> Tensor:
    return avg_pool2d(x.float(), 2).round().to(torch.uint8)


# tables: a spec as in a config, of a file with the sample


def heart() -> dict[str, Any]:
    """920 patients of four hospitals."""
    return description("heart4")


@cache
def _stroke() -> pa.Table:
    from pyarrow import csv

    table = csv.read_csv(locate("ist_stroke", "ist.csv.gz"))
    return table.filter(pc.is_valid(table["outcome6"]))


def stroke(client: str = "country", least: int = 100, most: int = 10**6, cap: int = 200) -> dict[str, Any]:
    """Stroke patients by country or hospital: clients with `least` to `most` rows, at most `cap` of each."""
    table = _stroke()
    who = np.asarray(table[client].to_pylist()).astype(str)
    names, sizes = np.unique(who, return_counts=True)
    fit = np.flatnonzero(np.isin(who, names[(sizes >= least) & (sizes <= most)]))
    at = fit[capped(who[fit], cap, "stroke", client)]
    key = f"stroke-{client}-{least}-{most}-{cap}"
    return description("ist_stroke") | {
        "source": "parquet",
        "path": str(_written(key, table.take(at))),
        "client": client,
    }


@cache
def _gas() -> tuple[Numbers, list[str], list[str]]:
    """(features (R, 128) on a signed log scale, gas, batch)."""
    table = pq.read_table(locate("gas_drift", "gas.parquet"))
    columns = [c for c in table.column_names if c.startswith("s")]
    x = np.stack([table[c].to_numpy() for c in columns], 1).astype(np.float32)
    batch = [f"period_{b}" for b in table["batch"].to_pylist()]
    return np.sign(x) * np.log1p(np.abs(x)), table["gas"].to_pylist(), batch


def gas_periods(cap: int = 150) -> dict[str, Any]:
    """Gas measurements, a client for each period of time, which see all 128 features."""
    x, gas, batch = _gas()
    at = capped(np.asarray(batch), cap, "gas periods")
    return _gas_spec(f"gas-periods-{cap}", x[at], [gas[i] for i in at], [batch[i] for i in at])


def gas_sensors(cap: int = 120) -> dict[str, Any]:
    """Gas measurements dealt to 16 sensors, each of which sees its own 8 features."""
    x, gas, _ = _gas()
    owner = torch.randperm(len(gas), generator=generator("advice suite", "gas owner")).numpy() % 16
    own = x.reshape(len(x), 16, 8)[np.arange(len(x)), owner]
    names = np.asarray([f"sensor_{k:02d}" for k in owner])
    at = capped(names, cap, "gas sensors")
    return _gas_spec(f"gas-sensors-{cap}", own[at], [gas[i] for i in at], names[at].tolist())


def gas_dealt(partition: dict[str, Any], rows: int = 1600) -> dict[str, Any]:
    """Gas measurements of all periods, dealt."""
    x, gas, batch = _gas()
    at = sample(rows, len(gas), "gas dealt")
    spec = _gas_spec(f"gas-dealt-{rows}", x[at], [gas[i] for i in at], [batch[i] for i in at])
    return {k: v for k, v in spec.items() if k != "client"} | {"partition": partition, "drop": ["client"]}


def _gas_spec(key: str, x: Numbers, gas: list[str], client: list[str]) -> dict[str, Any]:
    table = pa.table({f"f{j}": x[:, j] for j in range(x.shape[1])} | {"gas": gas, "client": client})
    return {"source": "parquet", "path": str(_written(key, table)), "client": "client", "label": "gas"}


@cache
def _air() -> pa.Table:
    table = pq.read_table(locate("beijing_air", "air.parquet")).drop_columns(["pm10"])
    return table.filter(pc.is_valid(table["pm25"])).combine_chunks()


def air(of: Callable[[pa.Table], Numbers], name: str, cap: int = 200, **changes: Any) -> dict[str, Any]:
    """Hours at air-quality stations (without pm10, which gives the answer away): a client for each value of `of`."""
    table = _air()
    who = of(table)
    at = capped(who, cap, "air", name)
    table = table.take(at).append_column("who", pa.array(who[at].tolist()))
    spec = description("beijing_air") | {"path": str(_written(f"air-{name}-{cap}", table)), "client": "who"}
    return spec | {"drop": ["station"], "split": {"by": "label"}} | changes


def stations(table: pa.Table) -> Numbers:
    return np.asarray(table["station"].to_pylist())


def months(table: pa.Table) -> Numbers:
    """The calendar month, "month_01" .. "month_12"."""
    month = table["time"].to_numpy().astype("datetime64[M]").astype(int) % 12 + 1
    return np.asarray([f"month_{m:02d}" for m in month])


def years(table: pa.Table) -> Numbers:
    """The half-year, eight of them from March 2013."""
    since = table["time"].to_numpy().astype("datetime64[M]").astype(int) - (43 * 12 + 2)
    return np.asarray([f"half_year_{k}" for k in since // 6])


def _written(key: str, table: pa.Table) -> Path:
    path = Path(_FOLDER.name) / f"{key}.parquet"
    if not path.exists():
        pq.write_table(table, path)
    return path
