"""A process of NVFLARE that is told to end lets our part of it close first; NVFLARE's own does not listen."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


def on_terminate(close: Callable[[], None]) -> None:
    """From now on SIGTERM calls `close` in a thread of its own and then ends the process."""

    def ended() -> None:
        try:
            close()
        finally:
            os._exit(0)  # NVFLARE's threads are not daemons

    def told(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=ended, name="fedroute-ending").start()

    signal.signal(signal.SIGTERM, told)
