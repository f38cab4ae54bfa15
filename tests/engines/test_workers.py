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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedroute.algorithms import ALGORITHMS
from fedroute.core import Algorithm, Context, Task
from fedroute.data.federation import Federation
from fedroute.engines.base import Work
from fedroute.engines.sequential import Sequential
from fedroute.engines.workers import Queue, Workers, _undisturbed
from fedroute.errors import InputError, RunFailed
from fedroute.optim import Adam, Sgd
from fedroute.tree import Tree

SIZES = (3, 40, 1, 17, 90, 8, 33, 2)
FOREVER = 120.0  # seconds after which a test that waits for something gives up


# the battery puts every algorithm on every engine; here are those whose hooks differ most and need no roles
NAMES = ["alone", "ditto", "fedavg", "fedavg_ft", "feddyn", "fednova", "fedprox", "pfedme", "qffl", "scaffold"]


def federation(
    sizes: tuple[int, ...] = SIZES, dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (6,)
) -> Any:
    """A client per size, with random rows and three labels."""
    g = torch.Generator().manual_seed(1)
    rows = torch.arange(sum(sizes)).split(sizes)
    none = tuple(r[:0] for r in rows)
    return Federation(
        name="test",
        x=torch.randn(sum(sizes), *shape, generator=g).to(dtype),
        y=torch.randint(0, 3, (sum(sizes),), generator=g),
        clients=tuple(f"c{i:03}" for i in range(len(sizes))),
        train=rows,
        validation=none,
        test=none,
    )


def work(fed: Federation, round: int = 0, batch: int = 5, clients: tuple[int, ...] | None = None) -> Work:
    """A pass over every client's rows; the last of `clients` without any step where it has one row."""
    chosen = tuple(range(len(fed.clients))) if clients is None else clients
    g = torch.Generator().manual_seed(round)
    plan = {i: list(fed.train[i][torch.randperm(len(fed.train[i]), generator=g)].split(batch)) for i in chosen}
    return Work(round, 7, 0.1, chosen, {i: [b for b in steps if len(b) > 1] for i, steps in plan.items()})


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))


def convolved() -> nn.Module:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Flatten())
    model: nn.Module = nn.Sequential(net, nn.Linear(144, 3))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def bound(
    algorithm: Algorithm, model: Callable[[], nn.Module] = plain, dtype: torch.dtype = torch.float32
) -> Algorithm:
    torch.manual_seed(3)
    return algorithm.bind(Task(model().to(dtype)))


def state(alg: Algorithm, fed: Federation) -> tuple[Tree, dict[int, Tree]]:
    w = alg.task.init()
    return alg.init(w, fed.sizes()), {i: alg.init_client(w) for i in range(len(fed.clients))}


def bits(t: Any) -> Any:
    """A tree as plain data that is equal exactly where values, dtypes, layouts, keys, order and empty dicts are."""
    if isinstance(t, dict):
        return [(k, bits(v)) for k, v in t.items()]
    return (
        t.dtype,
        t.shape,
        t.stride(),
        t.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8).tolist(),
    )


def told(answers: Any) -> list[Any]:
    return [(a.client, a.steps, bits(a.update), bits(a.private), repr(a.loss), a.error) for a in answers]


def open_ends(pid: int | str) -> int:
    """Open sockets and pipes, by which workers are spoken with; files that a thread of another test may just read or
    write are none of them."""
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # that of this listing is closed again
            found += os.readlink(f"/proc/{pid}/fd/{fd}").startswith(("socket:", "pipe:"))
    return found


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Every test leaves no more open sockets and pipes than it found, and no child process."""
    gc.collect()
    before = open_ends("self")
    yield
    gc.collect()
    assert active_children() == []
    assert open_ends("self") <= before


def pids() -> set[int]:
    return {p.pid for p in active_children() if p.pid}


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + FOREVER
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


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


@dataclass(frozen=True, kw_only=True)
class Scripted(Algorithm):
    """Federated averaging in which something happens where client `at` begins."""

    at: int = 3
    act: Callable[[], object] = lambda: None

    def begin(self, ctx: Context) -> Tree:
        if int(ctx.client) == self.at:
            self.act()
        return super().begin(ctx)


def scripted(act: Callable[[], object], fed: Federation, at: int = 3) -> tuple[Algorithm, Tree, dict[int, Tree]]:
    alg = bound(Scripted(act=act, at=at))
    return alg, *state(alg, fed)


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


# what it costs the system


def test_open_files_stay_as_they_are_and_nothing_is_in_shared_memory() -> None:
    alg, fed = bound(ALGORITHMS["scaffold"](), normed), federation()
    server, privates = state(alg, fed)

    with Workers(alg, fed, 2) as engine:
        seen = set()
        for r in range(12):
            list(engine.run(server, privates, work(fed, r)))
            seen.add((open_ends("self"), *(open_ends(pid) for pid in sorted(pids()))))
        assert len(seen) == 1
        for pid in ("self", *pids()):
            assert "/dev/shm" not in Path(f"/proc/{pid}/maps").read_text()


def test_workers_share_the_rows_of_the_parent() -> None:
    fed = federation()
    big = torch.zeros(len(fed.x) * 100_000, dtype=torch.float32).reshape(len(fed.x), -1)  # 78 MB
    big[:, :6] = fed.x
    fed = replace(fed, x=big)
    alg = bound(ALGORITHMS["fedavg"](), lambda: nn.Sequential(nn.AdaptiveAvgPool1d(6), plain()))
    server, privates = state(alg, fed)
    with Workers(alg, fed, 1) as engine:
        answers = list(engine.run(server, privates, work(fed, batch=2)))
        assert sum(a.steps for a in answers) > 90  # it has read all rows
        (pid,) = pids()
        kept = dict(line.split()[:2] for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    assert int(kept["Private_Dirty:"]) * 1024 < big.nbytes / 2


SCRIPT = """
import os, signal, sys, time
from multiprocessing import active_children
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever started the tests ignores it
sys.path.insert(0, {here!r})
import test_workers as t

fed = t.federation((5, 6, 7, 8))
alg, server, privates = t.scripted({act}, fed, at=2)
with t.Workers(alg, fed, 2) as first, t.Workers(alg, fed, 2) as second:  # the workers of one know the other's sockets
    os.kill(sorted(t.pids())[0], 9)
    t.until(lambda: len(t.pids()) == 3)
    list(first.run(server, privates, t.work(fed, clients=(0, 1))))  # one of the first is the youngest of all now
    print(*t.pids(), flush=True)
    list(second.run(server, privates, t.work(fed)))
    print("done")
"""


@contextmanager
def script(act: str) -> Iterator["subprocess.Popen[str]"]:
    """The script above, in a process group of its own, of which nothing is left in the end."""
    code = SCRIPT.format(here=str(Path(__file__).parent), act=act)
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as parent:
        try:
            yield parent
        finally:
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)


LONG = "lambda: [time.sleep(0.01) for _ in range(10**5)]"


def workers_of(parent: "subprocess.Popen[str]") -> list[int]:
    """Those of both engines, of which one has begun something long."""
    assert parent.stdout is not None
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(children) == 4
    time.sleep(0.5)
    assert not any(gone(pid) for pid in children)
    return children


def test_workers_end_when_their_parent_is_killed() -> None:
    with script(LONG) as parent:
        children = workers_of(parent)
        parent.kill()
        assert until(lambda: all(gone(pid) for pid in children))


def test_ctrl_c_ends_the_workers_with_the_parents_traceback_alone() -> None:
    with script(LONG) as parent:
        children = workers_of(parent)
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to the parent and to every worker
        out, err = parent.communicate(timeout=FOREVER)
        assert "done" not in out
        assert err.count("Traceback") == 1
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert all(gone(pid) for pid in children)


def test_few_open_files_suffice() -> None:
    """A model of 302 tensors with private copies, under a limit of 256 open files."""
    code = f"""
        import resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_workers as t
        fed = t.federation(tuple(range(2, 12)))
        deep = lambda: t.nn.Sequential(*[t.nn.Linear(6, 6) for _ in range(150)], t.nn.Linear(6, 3))
        alg = t.bound(t.ALGORITHMS["scaffold"](), deep)
        server, privates = t.state(alg, fed)
        with t.Workers(alg, fed, 4) as engine:
            kept = [list(engine.run(server, privates, t.work(fed, r, batch=20))) for r in range(2)]
        print(sum(len(a.update["dw"]) + len(a.private["c"]) for answers in kept for a in answers))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (str(2 * 10 * 604), "")
