"""What an event loop does itself, and what it leaves to a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LONG = 1 << 16  # bytes beyond which what is done with them is left to a thread, so that others need not wait


async def off_the_loop(size: int, work: Callable[[], T]) -> T:
    """What `work` returns, which handles `size` bytes: made at once, or by another thread where they are many."""
    return await asyncio.to_thread(work) if size > LONG else work()
