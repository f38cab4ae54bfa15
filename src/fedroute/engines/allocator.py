"""Memory of this process: told to keep what it has.

glibc gives big blocks back to the system as soon as they are freed and asks for them again in the next step: every
page is then zeroed and mapped anew, a quarter of the time of a small convolutional network.
"""

import ctypes
import os
import platform

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # names and numbers of <malloc.h>
THRESHOLDS = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20}
_done = False


def keep_memory() -> bool:
    """Keep freed blocks in this process for its next step; whether that was done. Linux with glibc only; not where the
    environment says FEDROUTE_MALLOC=0. A process that calls this holds on to its peak of memory."""
    global _done  # noqa: PLW0603 (a setting of the process)
    if not _done and os.environ.get("FEDROUTE_MALLOC", "1") != "0" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        accepted = [libc.mallopt(name, value) for name, value in THRESHOLDS.items()]
        _done = all(accepted)
    return _done
