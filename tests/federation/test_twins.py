"""A site's folder that was copied, both started: real processes."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from fedroute.federation import lives
from fedroute.federation.twins import REPLACED, TWINS
from tests.federation.federations import Real, wait_for


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    real = Real(tmp_path)
    try:
        real.make_hub()
        real.make_site("north")
        real.start("hub", "north")
        real.here("north")
        yield real
    finally:
        real.stop()


def test_who_starts_a_copy_is_told_at_once_and_its_owner_too(real: Real) -> None:
    left_there = shutil.ignore_patterns("control", "process.json", "*.log", "log.txt")
    shutil.copytree(real.site("north").root, real.root / "copy", ignore=left_there)
    real.started.append(real.root / "copy")
    command = [sys.executable, "-c", "from fedroute.cli import main; main()", "site", "start", str(real.root / "copy")]
    said = subprocess.run([*command, "--wait", "120"], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    first, told = said.stdout.splitlines()
    assert first == f"north is admitted by the hub localhost:{real.port}"
    assert told in (REPLACED, TWINS)
    for name in ("north", "copy"):  # each says it as soon as it gets a word through
        wait_for(partial(says_it, real, name))
    wait_for(lambda: TWINS in real.log("hub"))


def says_it(real: Real, name: str) -> bool:
    return TWINS in lives.site_words(lives.site_status(real.site(name)))
