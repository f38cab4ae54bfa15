"""Run directories with a router, and gateways on them, called as the network calls them, but in this process."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from fedroute import Router
from fedroute.config import from_dict
from fedroute.jobs import start
from fedroute.service.gateway import make_app
from fedroute.service.serving import Service
from fedroute.service.settings import Settings

Row = dict[str, Any]
WARDS = {
    "federation": {"source": "csv", "path": "", "client": "ward", "label": "ill", "categorical": ["kind"]},
    "model": "linear",
    "algorithm": "fedrod",
    "training": {"rounds": 6, "local_epochs": 1, "lr": 0.3, "batch_size": 16, "alone": False},
    "engine": "sequential",
}


def wards(rows: int = 240) -> str:
    """Three wards whose rows lie apart: dose 2, 5 and 8; in the middle one the young are ill, elsewhere the old."""
    g = torch.Generator().manual_seed(0)
    lines = ["ward,age,dose,kind,ill"]
    for i in range(rows):
        ward = i % 3
        age = 50 + 12 * float(torch.randn((), generator=g))
        dose = 2 + 3 * ward + 0.6 * float(torch.randn((), generator=g))
        ill = (age > 50) != (ward == 1)
        given = "" if i % 20 == 7 else f"{age:.1f}"
        lines.append(f"{('west', 'mid', 'east')[ward]},{given},{dose:.3f},{'ab'[i // 3 % 2]},{'ny'[ill]}")
    return "\n".join(lines) + "\n"


def trained(folder: Path, config: dict[str, Any]) -> Path:
    start(from_dict(config), folder, progress=lambda *_: None, log=lambda text: None)
    return folder


@pytest.fixture(scope="session")
def ward_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a table; rule consensus, so that all answers are needed."""
    folder: Path = tmp_path_factory.mktemp("wards")
    (folder / "wards.csv").write_text(wards())
    config = json.loads(json.dumps(WARDS))
    config["federation"]["path"] = str(folder / "wards.csv")
    config["router"] = {"kind": "lda", "rule": "consensus", "random_features": 0}
    return trained(folder / "run", config)


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of images as bytes: the digits inside scikit-learn, parted by label; the likeliest client answers."""
    from sklearn.datasets import load_digits

    folder: Path = tmp_path_factory.mktemp("digits")
    found = load_digits()
    np.savez(folder / "digits.npz", x=(found.images * 255 / 16).round().astype(np.uint8), y=found.target)
    partition = {"method": "shards", "clients": 3, "shards": 4}
    config = {
        "federation": {"source": "npz", "path": str(folder / "digits.npz"), "partition": partition},
        "model": {"name": "mlp", "hidden": [16]},
        "algorithm": "fedper",
        "training": {"rounds": 4, "local_epochs": 1, "lr": 0.2, "alone": False},
        "router": {"kind": "lda", "rule": "posterior", "random_features": 0, "input": "deep"},
        "engine": "sequential",
    }
    return trained(folder / "run", config)


@pytest.fixture(scope="session")
def router(ward_run: Path) -> Router:
    return Router.load(ward_run)


Open = Callable[..., TestClient]


@pytest.fixture
def gateway(ward_run: Path, router: Router) -> Iterator[Open]:
    """Opens the gateway of the wards with these settings; closed at the end of the test."""
    there: list[TestClient] = []

    def open_one(away: tuple[str, ...] = (), service: Service | None = None, **settings: Any) -> TestClient:
        served = service or Service.of_run(ward_run, router=router, away=away)
        client = TestClient(make_app(served, Settings(**settings)))
        client.__enter__()
        there.append(client)
        return client

    yield open_one
    for client in there:
        client.__exit__(None, None, None)


def certificate(folder: Path, name: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """A certificate of this name, which nobody else vouches for, and its key. Skips where there is no openssl."""
    made, key = folder / "c.pem", folder / "k.pem"
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", made, "-days", "2",
             "-subj", "/CN=gateway", "-addext", f"subjectAltName={name}"], check=True, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl to make a certificate with")
    return made, key


def cases(n: int = 12, seed: int = 1) -> list[Row]:
    """Queries that say not whose they are."""
    g = torch.Generator().manual_seed(seed)
    age = (50 + 12 * torch.randn(n, generator=g)).round(decimals=1).tolist()
    dose = (2 + 3 * torch.randint(3, (n,), generator=g) + 0.6 * torch.randn(n, generator=g)).round(decimals=3).tolist()
    return [{"age": a, "dose": d, "kind": "ab"[i % 2]} for i, (a, d) in enumerate(zip(age, dose, strict=True))]
