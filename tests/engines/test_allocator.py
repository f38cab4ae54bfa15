"""The allocator's thresholds: once for a process, only where glibc is, and not where they are unwanted."""

import os
import platform
import subprocess
import sys

import pytest

ASK = "from fedroute.engines.allocator import keep_memory; print(keep_memory(), keep_memory())"


@pytest.mark.parametrize("wish", ["0", "1"])
def test_it_is_done_where_wanted(wish: str) -> None:
    environment = os.environ | {"FEDROUTE_MALLOC": wish, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    done = wish == "1" and platform.libc_ver()[0] == "glibc"
    assert out.stdout.split() == [str(done)] * 2
