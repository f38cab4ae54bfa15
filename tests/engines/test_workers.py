"""Workers: equal to sequential bit for bit, in order, and sound when a client, a worker or the parent dies."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.algorithms import ALGORITHMS
from fedroute.core import Algorithm, Context, Task
from fedroute.data.federation import Federation
from fedroute.engines.base import Work
from fedroute.engines.sequential import Sequential
from fedroute.engines.workers import Queue, Workers, _undisturbed
from fedroute.errors import InputError, RunFailed
from fedroute.optim import Adam, Sgd
from fedroute.tree import Tree
from tests.engines.worker_rig import (
    bits,
    bound,
    convolved,
    federation,
    normed,
    pids,
    plain,
    scripted,
    state,
    told,
    until,
    work,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

# the battery puts every algorithm on every engine; here are those whose hooks differ most and need no roles
NAMES = ["alone", "ditto", "fedavg", "fedavg_ft", "feddyn", "fednova", "fedprox", "pfedme", "qffl", "scaffold"]


# equal to sequential


def rounds_agree(alg: Algorithm, fed: Federation, workers: int, rounds: int = 2) -> None:
    server, privates = state(alg, fed)
    with Workers(alg, fed, workers) as engine:
        for r in range(rounds):
            job = work(fed, r)
            before = bits(server), bits(privates)
            want = list(Sequential(alg, fed).run(server, privates, job))
            got = list(engine.run(server, privates, job))
            assert all(not a.error for a in want), want
            assert told(got) == told(want)
            assert (bits(server), bits(privates)) == before  # nothing it is given is changed
            privates |= {a.client: a.private for a in got}
            server = alg.aggregate(server, got[1].update, 1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_algorithm_equals_sequential(name: str, workers: int) -> None:
    rounds_agree(bound(ALGORITHMS[name](), normed), federation(), workers)


@pytest.mark.parametrize("name", NAMES)
def test_private_weights_and_optimiser_state_equal_sequential(name: str) -> None:
    alg = ALGORITHMS[name](private=("norm", "4.bias"), optimizer=Sgd(momentum=0.9), server_optimizer=Adam())
    rounds_agree(bound(alg, normed), federation(), 2)


def test_float64_equals_sequential() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        rounds_agree(bound(ALGORITHMS["scaffold"](), normed, torch.float64), federation(dtype=torch.float64), 3)
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_default_dtype_of_now_counts_and_not_that_of_the_start() -> None:
    alg, fed = bound(ALGORITHMS["fedavg"](), normed), federation()
    server, privates = state(alg, fed)
    with Workers(alg, fed, 1) as engine:
        torch.set_default_dtype(torch.float64)
        try:
            want, got = (told(e.run(server, privates, work(fed))) for e in (Sequential(alg, fed), engine))
        finally:
            torch.set_default_dtype(torch.float32)
    assert got == want  # counts of batch norm travel in the default dtype


def test_convolutions_in_channels_last_equal_sequential() -> None:
    alg = bound(ALGORITHMS["fedavg"](), convolved)
    assert alg.task.init()["0.0.weight"].stride() != torch.empty(8, 3, 3, 3).stride()
    rounds_agree(alg, federation(shape=(3, 8, 8)), 2)


def test_the_order_of_completion_does_not_matter() -> None:
    """Ascending sizes: the longest are handed out first, so that all answers but the last come in the wrong order."""
    fed = federation(tuple(range(2, 60, 3)))
    rounds_agree(bound(ALGORITHMS["fedavg"]()), fed, 3)


def test_the_parents_threads_matter_neither_to_the_numbers_nor_to_the_fork() -> None:
    """A fork of a process with a pool of OpenMP threads and a used autograd engine must not hang."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        a = torch.randn(700, 700, requires_grad=True)
        (a @ a).tanh().sum().backward()
        rounds_agree(bound(ALGORITHMS["fedavg"](), convolved), federation(shape=(3, 8, 8)), 2)
    finally:
        torch.set_num_threads(before)


def test_spawned_workers_equal_sequential(tmp_path: Path) -> None:
    alg, fed = bound(ALGORITHMS["scaffold"](), normed), federation()
    server, privates = state(alg, fed)
    code = """
        import pickle, sys
        from fedroute.engines.workers import Workers
        if __name__ == "__main__":
            alg, fed, server, privates, job = pickle.load(open(sys.argv[1], "rb"))
            with Workers(alg, fed, 2, start="spawn") as engine:
                pickle.dump([*engine.run(server, privates, job)], open(sys.argv[2], "wb"))
    """
    script, here, there = (tmp_path / n for n in ("script.py", "in", "out"))
    script.write_text(textwrap.dedent(code))
    here.write_bytes(pickle.dumps((alg, fed, server, privates, work(fed))))
    done = subprocess.run([sys.executable, script, here, there], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert told(pickle.loads(there.read_bytes())) == told(Sequential(alg, fed).run(server, privates, work(fed)))


# handed out and yielded


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(), sizes=st.lists(st.integers(0, 50), max_size=40), workers=st.integers(1, 5), more=st.integers(0, 30)
)
def test_the_queue_ends_and_bounds_what_is_held(data: Any, sizes: list[int], workers: int, more: int) -> None:
    """Whatever is long and whoever ends first: everybody is handed out once, nobody beyond the limit, no dead end."""
    limit = 2 * workers + 1 + more
    job = Work(0, 0, 0.1, tuple(range(len(sizes))), {i: [torch.zeros(n)] for i, n in enumerate(sizes)})
    queue, busy, done, given_out = Queue(job, workers, limit), list[int](), set[int](), list[int]()
    for client in job.clients:
        while client not in done:
            while len(busy) < workers and (chosen := queue.next()) is not None:
                busy.append(chosen)
                given_out.append(chosen)
            assert len(busy) + len(done) == queue.out <= limit
            assert busy, "nobody computes the client that everybody waits for"
            done.add(busy.pop(data.draw(st.integers(0, len(busy) - 1))))
        done.remove(client)
        queue.out -= 1
    assert sorted(given_out) == list(job.clients)
    assert queue.next() is None


def test_the_longest_go_first_while_there_is_room() -> None:
    job = Work(0, 0, 0.1, tuple(range(6)), {i: [torch.zeros(n)] * 2 for i, n in enumerate((1, 9, 2, 8, 3, 7))})
    queue = Queue(job, 2, 100)
    assert [queue.next() for _ in range(7)] == [1, 3, 5, 4, 2, 0, None]
    queue = Queue(job, 2, 5)  # three by length, then the earliest, then nobody until one is yielded
    assert [queue.next() for _ in range(6)] == [1, 3, 5, 0, 2, None]
    queue.out -= 1
    assert [queue.next() for _ in range(2)] == [4, None]


def test_answers_stream_while_a_later_client_computes(tmp_path: Path) -> None:
    fed, flag = federation((5, 6, 7, 8, 50)), tmp_path / "go"
    alg, server, privates = scripted(lambda: until(flag.exists) or 1 / 0, fed, at=4)
    with Workers(alg, fed, 2) as engine:
        answers = engine.run(server, privates, work(fed))
        assert [next(answers).client for _ in range(4)] == [0, 1, 2, 3]  # the longest, begun first, still runs
        flag.touch()
        last = list(answers)
    assert [(a.client, a.error) for a in last] == [(4, "")]


# failures


def test_a_client_that_raises_is_answered_with_its_traceback_and_the_worker_lives_on() -> None:
    fed = federation()
    alg, server, privates = scripted(lambda: 1 / 0, fed)
    with Workers(alg, fed, 2) as engine:
        before = pids()
        got = list(engine.run(server, privates, work(fed)))
        assert pids() == before
        want = list(Sequential(alg, fed).run(server, privates, work(fed)))
    assert "ZeroDivisionError: division by zero" in got[3].error
    assert "in begin" in got[3].error
    assert told(got[:3] + got[4:]) == told(want[:3] + want[4:])
    assert (got[3].update, got[3].private, got[3].steps) == ({}, {}, want[3].steps)


@dataclass(frozen=True, kw_only=True)
class Odd(Algorithm):
    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        update, private = super().end(carry, ctx)
        return (update | {"odd": torch.eye(2).to_sparse()} if int(ctx.client) == 2 else update), private


def test_an_answer_that_cannot_travel_is_an_error_of_its_client() -> None:
    alg, fed = bound(Odd()), federation()
    server, privates = state(alg, fed)
    with Workers(alg, fed, 2) as engine:
        got = list(engine.run(server, privates, work(fed)))
    assert [i for i, a in enumerate(got) if a.error] == [2]
    assert "TypeError" in got[2].error
    assert "holds a torch.sparse_coo tensor" in got[2].error


@pytest.mark.parametrize(
    ("act", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "signal 15"),
        (lambda: os._exit(3), "exit code 3"),
    ],
    ids=["killed", "ended", "left"],
)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_that_dies_costs_its_client_and_nothing_else(
    act: Callable[[], object], how: str, workers: int
) -> None:
    fed = federation()
    alg, server, privates = scripted(act, fed)
    want = told(Sequential(replace(alg, act=int), fed).run(server, privates, work(fed)))  # type: ignore[call-arg]
    with Workers(alg, fed, workers) as engine:
        for _ in range(2):
            got = list(engine.run(server, privates, work(fed)))
            assert (got[3].client, got[3].error, got[3].update) == (3, f"worker died ({how})", {})
            assert told(got[:3] + got[4:]) == want[:3] + want[4:]
            assert len(pids()) <= workers


def test_a_client_that_hangs_costs_itself_and_nothing_else() -> None:
    fed = federation()
    alg, server, privates = scripted(lambda: time.sleep(1000), fed)
    want = told(Sequential(replace(alg, act=int), fed).run(server, privates, work(fed)))  # type: ignore[call-arg]
    with Workers(alg, fed, 2, timeout=10) as engine:
        got = list(engine.run(server, privates, work(fed)))
        assert (got[3].client, got[3].update) == (3, {})
        assert got[3].error == "no answer within 10 s (engine.timeout)"
        assert told(got[:3] + got[4:]) == want[:3] + want[4:]
        again = told(engine.run(server, privates, work(fed, clients=(0, 1, 2))))  # by a new process
    assert again == want[:3]


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(InputError, match=r"engine\.timeout: .* is no number of seconds above 0"):
        Workers(bound(ALGORITHMS["fedavg"]()), federation(), 1, timeout=timeout)


def test_a_worker_killed_between_two_rounds_costs_nothing() -> None:
    alg, fed = bound(ALGORITHMS["fedavg"]()), federation()
    server, privates = state(alg, fed)
    with Workers(alg, fed, 2) as engine:
        want = told(engine.run(server, privates, work(fed)))
        for pid in pids():
            os.kill(pid, signal.SIGKILL)
        assert until(lambda: not active_children())
        assert told(engine.run(server, privates, work(fed))) == want


def test_a_round_that_is_given_up_leaves_the_engine_clean() -> None:
    alg, fed = bound(ALGORITHMS["fedavg"]()), federation()
    server, privates = state(alg, fed)
    want = told(Sequential(alg, fed).run(server, privates, work(fed, 1)))
    with Workers(alg, fed, 2) as engine:
        answers = engine.run(server, privates, work(fed, 0))
        next(answers)
        with pytest.raises(RuntimeError, match="in the middle of a round"):
            next(engine.run(server, privates, work(fed, 1)))
        answers.close()  # type: ignore[attr-defined]
        assert told(engine.run(server, privates, work(fed, 1))) == want


def test_closing_twice_is_once_and_a_closed_engine_says_so() -> None:
    alg, fed = bound(ALGORITHMS["fedavg"]()), federation()
    server, privates = state(alg, fed)
    engine = Workers(alg, fed, 2)
    children = pids()
    engine.close()
    engine.close()
    assert len(children) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)  # neither running nor zombies
    with pytest.raises(RuntimeError, match="closed"):
        next(engine.run(server, privates, work(fed)))


def test_an_engine_that_is_forgotten_ends_its_workers() -> None:
    alg, fed = bound(ALGORITHMS["fedavg"]()), federation()
    engine = Workers(alg, fed, 2)
    assert len(pids()) == 2
    del engine
    gc.collect()
    assert pids() == set()


def test_two_engines_side_by_side_and_one_after_the_other() -> None:
    alg, fed = bound(ALGORITHMS["fedavg"]()), federation()
    server, privates = state(alg, fed)
    want = told(Sequential(alg, fed).run(server, privates, work(fed)))
    with Workers(alg, fed, 1) as a:
        with Workers(alg, fed, 2) as b:
            first, second = a.run(server, privates, work(fed)), b.run(server, privates, work(fed))
            pairs = list(zip(first, second, strict=True))
            assert told(x for x, _ in pairs) == told(y for _, y in pairs) == want
        assert told(a.run(server, privates, work(fed))) == want
    with Workers(alg, fed, 2) as c:
        assert told(c.run(server, privates, work(fed))) == want


def test_an_engine_made_in_a_thread_outlives_it() -> None:
    alg, fed = bound(ALGORITHMS["fedavg"]()), federation()
    server, privates = state(alg, fed)
    made: list[Workers] = []
    thread = threading.Thread(target=lambda: made.append(Workers(alg, fed, 2)))
    thread.start()
    thread.join()
    with made.pop() as engine:
        assert told(engine.run(server, privates, work(fed))) == told(
            Sequential(alg, fed).run(server, privates, work(fed))
        )


def test_wrong_requests_say_the_mend() -> None:
    fed = federation()
    with pytest.raises(InputError, match=r"engine.workers: 0 is too few; give 1 or more"):
        Workers(bound(Algorithm()), fed, 0)
    alg = Algorithm().bind(Task(plain(), loss=lambda out, batch: out.sum()))
    with pytest.raises(InputError, match=r"cannot send .* top level of a module, or take the engine sequential"):
        Workers(alg, fed, 1, start="spawn")


def test_a_process_that_does_not_start_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedroute.engines.workers._reset_signals", lambda parent: os._exit(5))
    with pytest.raises(RunFailed, match=r"ended while it started \(exit code 5\)"):
        Workers(bound(Algorithm()), federation(), 2)


def test_the_warning_of_python_about_forks_and_threads_is_not_the_users() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with _undisturbed():
            text = "This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks in the child."
            warnings.warn(text, DeprecationWarning, stacklevel=1)
        with pytest.raises(DeprecationWarning), _undisturbed():
            warnings.warn("something else", DeprecationWarning, stacklevel=1)
        Workers(bound(Algorithm()), federation(), 1).close()
