"""Known public data sets: their files, checksums, what they mean as federations, and where to get them."""

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from fedroute.data.spec import nearest
from fedroute.errors import InputError


class Known(NamedTuple):
    about: str
    files: dict[str, str]  # name -> SHA-256
    spec: dict[str, Any]  # the `federation:` part, paths as registry:SET/FILE
    publisher: str  # where it comes from, for people
    url: str = ""  # the publisher's folder that has these very files, where there is one


def _words(text: str) -> list[str]:
    return text.split()


_HEART = _words("age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num")
_IST = _words("rdelay rconsc sex age rsleep ratrial rct rvisinf rhep24 rasp3 rsbp stype")
_CIFAR = _words("airplane automobile bird cat deer dog frog horse ship truck")
_HOSPITALS = _words("cleveland hungarian switzerland va")

REGISTRY: dict[str, Known] = {
    "heart4": Known(
        "heart disease in four hospitals (920 patients, 13 features; UCI, CC BY 4.0)",
        {
            "processed.cleveland.data": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
            "processed.hungarian.data": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
            "processed.switzerland.data": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
            "processed.va.data": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
        },
        {
            "source": "csv", "label": "num", "positive": ">0", "label_names": ["healthy", "diseased"],
            "columns": _HEART, "categorical": ["cp", "restecg", "slope", "thal"],
            "missing": {"chol": [0], "trestbps": [0]},
            "paths": {c: f"registry:heart4/processed.{c}.data" for c in _HOSPITALS},
        },
        "https://archive.ics.uci.edu/dataset/45/heart+disease",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/",
    ),
    "ist_stroke": Known(
        "the International Stroke Trial (19,435 patients in 36 countries, 466 hospitals; ODC-By 1.0)",
        {"ist.csv.gz": "9ff4c02f80ac8d7971ce947610a66fb01fc7d29c0e4c059370bc7e92e75b9d57"},
        {
            "source": "csv", "path": "registry:ist_stroke/ist.csv.gz", "client": "country", "label": "outcome6",
            "positive": [1, 2], "label_names": ["independent", "dead or dependent"], "time": "month",
            "features": [*_IST, *(f"rdef{i}" for i in range(1, 9))],
        },
        "https://doi.org/10.7488/ds/104",
    ),
    "digits4": Known(
        "handwritten digits from four archives (21,967 of 28x28; CC BY 4.0 and CC BY-SA 3.0)",
        {
            "digits.parquet": "02ebe00f47ba5bc547c779a0f1ce488dc213ab0e80f297669141dbfc32394fe8",
            "digits_small.npz": "a7f5ee2da7dfe963b7124d3a4642c12ede575f207aa92483ec622c53db1a3f45",
        },
        {
            "source": "parquet", "path": "registry:digits4/digits.parquet", "client": "domain", "label": "label",
            "image": "image", "shape": [28, 28],
        },
        "MNIST; UCI: Optical and Pen-Based Recognition of Handwritten Digits, Semeion",
    ),
    "gas_drift": Known(
        "chemical gas sensors over 30 months (6,697 rows, 128 features, batches in time; UCI, CC BY 4.0)",
        {"gas.parquet": "3053f77631a0e260841a78334bd57a36c026205491f96e88b6eb00b591917874"},
        {"source": "parquet", "path": "registry:gas_drift/gas.parquet", "client": "batch", "label": "gas",
         "time": "batch", "drop": ["ppmv"]},
        "https://archive.ics.uci.edu/dataset/270/gas+sensor+array+drift+dataset+at+different+concentrations",
    ),
    "beijing_air": Known(
        "twelve air-quality stations, hourly over four years (420,768 rows; UCI, CC BY 4.0)",
        {"air.parquet": "4ed9a72257ec7ce9710a48a14e2760daa5a6ee4954dcbf979425b397c4a755f1"},
        {
            "source": "parquet", "path": "registry:beijing_air/air.parquet", "client": "station", "label": "pm25",
            "bands": [12, 35.4, 55.4, 150.4, 250.4], "time": "time", "split": {"by": "time"},
        },
        "https://archive.ics.uci.edu/dataset/501/beijing+multi+site+air+quality+data",
    ),
    "cifar10": Known(
        "CIFAR-10 as JPEG (60,000 of 32x32, no natural clients: dealt by Dirichlet(0.3) to ten)",
        {
            "train.parquet": "f157d1b46838e63e701188437aef0455900802495dc194ae8b5414f347829be9",
            "test.parquet": "f8ae30e4837bb7448eec0bd25088c8277c7e906a5f7eee01f7f182c31b29e60a",
        },
        {
            "source": "parquet", "path": ["registry:cifar10/train.parquet", "registry:cifar10/test.parquet"],
            "label": "label", "image": "image", "label_names": _CIFAR,
            "partition": {"method": "dirichlet", "alpha": 0.3, "clients": 10},
        },
        "https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
}  # fmt: skip


def description(name: str) -> dict[str, Any]:
    """The `federation:` part of a known set, or InputError with the names there are."""
    if name not in REGISTRY:
        raise InputError(f"federation.name: no data set {name!r} in the registry{nearest(name, REGISTRY)}")
    return dict(REGISTRY[name].spec)


def locate(name: str, file: str) -> Path:
    """The file of a known set, its checksum checked: $FEDROUTE_DATA/NAME/FILE, else the cache
    ($XDG_CACHE_HOME/fedroute, by default ~/.cache/fedroute), else fetched there from the publisher.

    Raises InputError where it is nowhere and cannot be fetched, or is not the file it should be."""
    description(name)
    known = REGISTRY[name]
    if file not in known.files:
        raise InputError(f"registry:{name}/{file}: no such file{nearest(file, known.files)}")
    given = os.environ.get("FEDROUTE_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedroute" / name / file
    for path in ([Path(given).expanduser() / name / file] if given else []) + [cache]:
        if path.is_file():
            if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != known.files[file]:
                raise InputError(f"{path}: is not the file that {name} needs (SHA-256 {found}, not "
                                 f"{known.files[file]}); replace it")  # fmt: skip
            return path
    if not known.url:
        raise InputError(f"{name}: {file} is not there and its publisher ({known.publisher}) has it in another form; "
                         f"put the file with SHA-256 {known.files[file]} at $FEDROUTE_DATA/{name}/{file}")  # fmt: skip
    return _fetch(known, name, file, cache)


def _fetch(known: Known, name: str, file: str, cache: Path) -> Path:
    import urllib.error
    import urllib.request

    url = known.url + file
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data: bytes = answer.read()
    except (urllib.error.URLError, OSError) as e:
        raise InputError(f"{name}: {file} is not in $FEDROUTE_DATA/{name} and cannot be fetched from {url} ({e}); "
                         f"fetch it where there is a network and put it there, or at {cache}") from None  # fmt: skip
    if (found := hashlib.sha256(data).hexdigest()) != known.files[file]:
        raise InputError(f"{name}: {url} is not the file expected (SHA-256 {found}, not {known.files[file]}); "
                         f"put the right one at $FEDROUTE_DATA/{name}/{file}")  # fmt: skip
    cache.parent.mkdir(parents=True, exist_ok=True)
    part = cache.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(cache)
    return cache
