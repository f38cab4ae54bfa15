"""What comes while a pass runs is made together in the next one, and nobody gets another's result or error."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.service.batching import Batches


def run(batches: Batches, calls: list[tuple[str, list[int]]]) -> list[object]:
    async def all_at_once() -> list[object]:
        found: list[object] = await asyncio.gather(*(batches(k, i) for k, i in calls), return_exceptions=True)
        return found

    return asyncio.run(all_at_once())


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(-3, 9), max_size=4)), max_size=25),
    st.integers(1, 7),
    st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_everybody_gets_their_own(calls: list[tuple[str, list[int]]], most: int, at_once: int) -> None:
    sizes = list[int]()

    def twice(key: str, items: list[int]) -> list[str]:
        sizes.append(len(items))
        if min(items, default=0) < 0:
            raise ValueError(f"{min(items)}")
        return [f"{key}{2 * i}" for i in items]

    with ThreadPoolExecutor(3) as pool:
        found = run(Batches(twice, pool, at_once=at_once, most=most), calls)
    for (key, items), got in zip(calls, found, strict=True):
        if min(items, default=0) < 0:
            assert isinstance(got, ValueError)
            assert str(got) == f"{min(items)}"  # its own error
        else:
            assert got == [f"{key}{2 * i}" for i in items]
    longest = max((len(items) for _, items in calls), default=0)
    assert max(sizes, default=0) <= max(most, longest)


def test_the_first_is_not_kept_waiting_and_the_rest_go_together() -> None:
    seen, first, go = list[list[int]](), threading.Event(), threading.Event()

    def slow(key: str, items: list[int]) -> list[int]:
        seen.append(items)
        first.set()
        assert go.wait(60)
        return items

    async def drive() -> None:
        with ThreadPoolExecutor(1) as pool:
            batches = Batches(slow, pool)
            early = asyncio.create_task(batches("a", [0]))
            assert await asyncio.to_thread(first.wait, 60)
            later = [asyncio.create_task(batches("a", [i])) for i in range(1, 9)]
            gone = asyncio.create_task(batches("a", [99]))
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.sleep(0)
            go.set()
            assert await early == [0]
            assert [await task for task in later] == [[i] for i in range(1, 9)]

    asyncio.run(drive())
    assert seen == [[0], list(range(1, 9))]  # who has gone is not worked for


def test_a_pool_that_is_closed_is_an_error_and_no_silence() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    (found,) = run(Batches(lambda k, items: items, pool), [("a", [1])])
    assert isinstance(found, RuntimeError)
    with pytest.raises(RuntimeError):
        raise found
