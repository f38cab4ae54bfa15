"""Small runs, and real processes that can be killed: forked from a server that has imported torch already."""

import json
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute import checkpoint, jobs, tensor_file
from fedroute.config import Config, from_dict
from fedroute.data.federation import Federation


def config(**training: Any) -> Config:
    """Four clients of the bundled digits; every client keeps 200 kB of its own, so that a checkpoint takes a while."""
    plain = {"rounds": 6, "local_steps": 1, "lr": 0.1, "alone": False, "checkpoint_every": 1, "evaluate_every": 2}
    return from_dict(
        {
            "federation": {"source": "bundled", "name": "digits", "partition": {"method": "iid", "clients": 4}},
            "model": {"name": "mlp", "hidden": [256, 128]},
            "algorithm": {"name": "scaffold", "private": ["body"]},
            "training": plain | training,
            "engine": "sequential",
        }
    )


def begin(out: Path, training: dict[str, Any]) -> None:
    jobs.start(config(**training), out, progress=lambda *a: None, log=lambda text: None)


def go_on(out: Path) -> None:
    jobs.resume(out, progress=lambda *a: None, log=lambda text: None)


def slowly(act: Callable[..., None], *args: Any) -> None:
    """The same by one that takes its time to write a checkpoint, so that it can be killed in the midst of it."""

    def write_tensors(*what: Any) -> str:
        time.sleep(0.03)
        written = tensor_file.write_tensors(*what)
        time.sleep(0.03)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write_tensors", write_tensors)
        act(*args)


def hashes(out: Path) -> Any:
    return json.loads((out / "summary.json").read_text())["weights_sha256"]


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedroute.training", "fedroute.jobs", "fedroute.report", "sklearn.datasets"])
    return context


@pytest.fixture
def spawn(processes: ForkServerContext) -> Any:
    """spawn(f, *args): f in a process of its own, which has ended when the test has."""
    started: list[BaseProcess] = []

    def start(f: Callable[..., None], *args: Any) -> BaseProcess:
        process = processes.Process(target=f, args=args)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


@pytest.fixture
def federation() -> Federation:
    """Three clients of 20, 30 and 40 rows, two classes."""
    g = torch.Generator().manual_seed(0)
    client = ["a"] * 20 + ["b"] * 30 + ["c"] * 40
    x = torch.randn(90, 5, generator=g)
    return Federation.from_arrays(x, (x[:, 0] > 0).long(), client, labels=["no", "yes"])
