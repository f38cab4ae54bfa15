"""Workers as processes: what they hold of the system, and that none outlives its parent."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from fedroute.algorithms import ALGORITHMS
from fedroute.engines.workers import Workers
from tests.engines.worker_rig import (
    FOREVER,
    bound,
    federation,
    gone,
    normed,
    open_ends,
    pids,
    plain,
    state,
    until,
    work,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


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
import worker_rig as t
from fedroute.engines.workers import Workers

fed = t.federation((5, 6, 7, 8))
alg, server, privates = t.scripted({act}, fed, at=2)
with Workers(alg, fed, 2) as first, Workers(alg, fed, 2) as second:  # the workers of one know the other's sockets
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
        import worker_rig as t
        from torch import nn
        from fedroute.algorithms import ALGORITHMS
        from fedroute.engines.workers import Workers
        fed = t.federation(tuple(range(2, 12)))
        deep = lambda: nn.Sequential(*[nn.Linear(6, 6) for _ in range(150)], nn.Linear(6, 3))
        alg = t.bound(ALGORITHMS["scaffold"](), deep)
        server, privates = t.state(alg, fed)
        with Workers(alg, fed, 4) as engine:
            kept = [list(engine.run(server, privates, t.work(fed, r, batch=20))) for r in range(2)]
        print(sum(len(a.update["dw"]) + len(a.private["c"]) for answers in kept for a in answers))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (str(2 * 10 * 604), "")
