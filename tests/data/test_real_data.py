"""The real sets, where FEDROUTE_DATA says where they are."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation

DATA = Path(os.environ.get("FEDROUTE_DATA", "/nowhere"))


def known(name: str, **keys: object) -> Federation:
    if not (DATA / name).is_dir():
        pytest.skip(f"FEDROUTE_DATA has no {name}")
    return load_federation({"source": "registry", "name": name} | keys)


def test_heart4() -> None:
    fed = known("heart4")
    assert fed.clients == ("cleveland", "hungarian", "switzerland", "va")
    rows = [torch.cat(p) for p in zip(fed.train, fed.validation, fed.test, strict=True)]
    assert [len(r) for r in rows] == [303, 294, 123, 200]
    assert [int(fed.y[r].sum()) for r in rows] == [139, 106, 115, 149]
    assert fed.labels == ("healthy", "diseased")
    flag = fed.x[:, fed.columns.index("chol missing")]
    assert [int(flag[r].sum()) for r in rows] == [0, 23, 123, 56]  # recorded as ? or as 0
    assert fed.table is not None
    assert fed.table.categorical["thal"] == ("3", "6", "7")  # 3.0 at cleveland and 3 elsewhere are one name
    assert bool(torch.isfinite(fed.x).all())
    known_ = fed.x[torch.cat(fed.train)][:, : len(fed.table.numeric)]
    assert float(known_[:, 0].mean()) == pytest.approx(0, abs=1e-4)  # age has no gaps
    assert float(known_[:, 0].std(correction=0)) == pytest.approx(1, abs=1e-4)


def test_the_example_is_the_known_set(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = known("heart4")
    example = load_federation(Path(__file__).parents[2] / "examples" / "heart.yaml")
    assert torch.equal(example.x, fed.x)
    assert (example.labels, example.columns, example.clients) == (fed.labels, fed.columns, fed.clients)


def test_ist_stroke() -> None:
    fed = known("ist_stroke")
    assert len(fed.clients) == 36
    assert len(fed.x) == 19_435 - 150
    assert "150 rows without outcome6 were left out" in fed.notes
    assert fed.labels == ("independent", "dead or dependent")
    hospitals = known("ist_stroke", client="hospital", label="died14", positive=[1], label_names=["alive", "died"])
    assert len(hospitals.clients) == 466
    assert len(hospitals.x) == 19_435


def test_digits4_and_its_small_npz() -> None:
    fed = known("digits4")
    assert fed.clients == ("mnist", "optdigits", "pendigits", "semeion")
    rows = [sum(len(p) for p in parts) for parts in zip(fed.train, fed.validation, fed.test, strict=True)]
    assert rows == [10_000, 2_880, 7_494, 1_593]
    assert fed.x.shape == (21_967, 1, 28, 28)
    ink = [float(fed.x[torch.cat([fed.train[i], fed.validation[i], fed.test[i]])].float().mean()) for i in range(4)]
    assert [round(i) for i in ink] == [34, 77, 37, 84]
    small = load_federation({"source": "npz", "path": "registry:digits4/digits_small.npz", "client": "d"})
    assert (small.clients, small.x.shape) == (fed.clients, (2_400, 1, 28, 28))


def test_gas_drift_by_batch_and_by_time() -> None:
    fed = known("gas_drift")
    assert fed.clients == ("1", "2", "3", "4", "5", "6", "8", "9")
    assert len(fed.columns) == 128
    dealt = known("gas_drift", client=None, time="batch", partition={"method": "time", "clients": 8})
    assert dealt.time is not None
    stretches = [dealt.time[torch.cat([dealt.train[i], dealt.test[i]])] for i in range(8)]
    assert all(float(a.max()) <= float(b.min()) for a, b in pairwise(stretches))


def test_beijing_air() -> None:
    fed = known("beijing_air")
    assert len(fed.clients) == 12
    assert len(fed.x) == 412_029
    assert fed.labels[0] == "to 12"
    assert fed.time is not None
    for train, test in zip(fed.train, fed.test, strict=True):
        assert float(fed.time[train].max()) < float(fed.time[test].min())
    number = known("beijing_air", bands=None, label_as="number")
    assert number.labels == ()
    assert float(number.y.mean()) == pytest.approx(79.8, abs=0.1)


def test_cifar10() -> None:
    shift = {"method": "colour", "level": "high"}
    fed = known("cifar10", path=["registry:cifar10/test.parquet"], shift=shift)
    assert fed.x.shape == (10_000, 3, 32, 32)
    assert fed.x.dtype == torch.uint8
    assert fed.labels[3] == "cat"
    assert torch.bincount(fed.y).tolist() == [1_000] * 10
    assert len(fed.clients) == 10
