"""A disk that is really full, at every stage of a run: said in one line, exit 1, and the run goes on later."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedroute.cli import main
from tests.robustness.conftest import hashes

MEGABYTE = 1 << 20
TOTAL = 4 * MEGABYTE
CONFIG = """
federation: {source: bundled, name: digits, partition: {method: iid, clients: 3}}
model: {name: mlp, hidden: [300]}
algorithm: {name: fedavg, private: [head]}
training: {rounds: 4, local_steps: 1, alone: false, checkpoint_every: 1, evaluate_every: 1}
engine: sequential
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={TOTAL}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fedroute", *words])
    with pytest.raises(SystemExit) as e:
        main()
    return int(e.value.code or 0)


def test_a_full_disk_at_every_stage(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, whole = tmp_path / "config.yaml", tmp_path / "whole"
    file.write_text(CONFIG)
    assert call(monkeypatch, "run", str(file), "--out", str(whole)) == 0
    checkpoint = sum(p.stat().st_size for p in next((whole / "checkpoint").iterdir()).iterdir())
    failures, reached = 0, set()
    for k, room in enumerate([0, 8_000, checkpoint // 2, checkpoint + 20_000, 2 * checkpoint + 20_000, 3 * checkpoint]):
        out, ballast = disk / f"run{k}", disk / "ballast"
        ballast.write_bytes(b"0" * (TOTAL - room - 8192))
        capsys.readouterr()
        code = call(monkeypatch, "run", str(file), "--out", str(out))
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedroute:")]
        ballast.unlink()
        if code == 1:
            failures += 1
            assert "the disk is full" in said[0], said
            assert len(said) == 1 or said[1:] == [f"fedroute: go on with: fedroute resume {out}"], said
            reached.add(len(list((out / "checkpoint").iterdir())) if (out / "checkpoint").exists() else -1)
            words = ("resume", str(out)) if len(said) == 2 else ("run", str(file), "--out", str(out))
            assert call(monkeypatch, *words) == 0
        assert hashes(out) == hashes(whole)
        subprocess.run(["rm", "-rf", str(out)], check=True)
    assert failures >= 4
    assert {-1, 0, 1} <= reached | {-1}, reached
