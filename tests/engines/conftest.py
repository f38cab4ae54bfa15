"""What holds for every test that starts workers."""

import gc
from collections.abc import Iterator
from multiprocessing import active_children

import pytest

from tests.engines.worker_rig import open_ends


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Every test leaves no more open sockets and pipes than it found, and no child process."""
    gc.collect()
    before = open_ends("self")
    yield
    gc.collect()
    assert active_children() == []
    assert open_ends("self") <= before
