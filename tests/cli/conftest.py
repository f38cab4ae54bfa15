"""The command line, called as the shell calls it but in this process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fedroute.cli import main

CONFIG = """\
federation: {source: bundled, name: digits, partition: {method: iid, clients: 3}}
model: {name: linear}
algorithm: {name: fedprox, mu: 0.1}
training: {rounds: 3, local_steps: 2, lr: 0.1}
engine: sequential
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str


Fedroute = Callable[..., Said]


@pytest.fixture
def fedroute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fedroute:
    def call(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["fedroute", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as e:
            main()
        out, err = capsys.readouterr()
        return Said(int(e.value.code or 0), out, err)

    return call


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path
