"""How a contender is run and timed: the same command line, the same clock, one JSON line for each turn.

Alone, a contender makes one turn and ends. Under the driver (`--turns`) it waits on standard input: every line
`FIRST LAST` is one turn, the rounds FIRST..LAST-1 of the plan. Loading happens once, before, and a contender that waits
costs nothing, so the driver can alternate between contenders every second or two. On a machine that others use at the
same time only such neighbours can be compared.
"""

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.speed import workloads


class Spent(NamedTuple):
    """Seconds by the wall and of the processor. They are the same where nothing else wants the core."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Spent":
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: "Spent") -> "Spent":
        return Spent(self.wall - start.wall, self.cpu - start.cpu)


Train = Callable[[range], Mapping[str, float | None] | None]
"""Trains these rounds. It may return fields of the line that it knows better, by a clock of its own for example."""
Build = Callable[["Job"], tuple[Train, Callable[[], nn.Module]]]
PROBE = 1_000  # rows on which the loss is taken after a turn: did it train?


@dataclass(frozen=True)
class Job:
    """What a contender is asked to train."""

    workload: workloads.Workload
    plan: workloads.Plan
    model: nn.Module  # fresh, the same weights for everyone; train it or a copy of it
    options: argparse.Namespace


def serve(
    name: str,
    packages: Sequence[str],
    build: Build,
    options: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> None:
    """Run the contender `name`.

    `build` sets it up and returns what trains some rounds and what gives the model as it then is. `packages` are the
    distributions whose versions matter; `options` adds arguments of its own.
    """
    parser = argparse.ArgumentParser(description=f"One contender of the speed benchmark: {name}.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared plan")
    parser.add_argument("--workload", choices=workloads.WORKLOADS, default="W1")
    parser.add_argument("--rounds", type=int, help="rounds to train (default: one turn of the workload)")
    parser.add_argument("--core", type=int, help="run on this core only")
    parser.add_argument("--malloc", action="store_true", help="tell glibc to keep big blocks instead of unmapping them")
    parser.add_argument("--label", default=name, help="name in the output")
    parser.add_argument("--turns", action="store_true", help="take turns from standard input")
    options(parser)
    args = parser.parse_args()

    say = _own_stdout()
    if args.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {args.core})
    if args.malloc:
        keep_big_blocks()
    torch.set_num_threads(1)
    workload = workloads.WORKLOADS[args.workload]
    job = Job(workload, workloads.load(args.data), workloads.model_of(workload), args)
    train, model = build(job)
    train(range(len(job.plan.rounds) - 1, len(job.plan.rounds)))  # warm-up, not counted: the last round of the plan
    versions = {p: importlib.metadata.version(p) for p in packages} | {"python": platform.python_version()}

    def turn(rounds: range) -> None:
        start = Spent.now()
        own = train(rounds) or {}
        spent = Spent.now().since(start)
        line = {
            "contender": args.label,
            "workload": workload.name,
            "batch": workload.batch,
            "rounds": len(rounds),
            "samples": job.plan.samples(rounds),
            "seconds": spent.wall,
            "cpu_seconds": spent.cpu,
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "probe_loss": _probe(model(), job.plan),
            "versions": versions,
        }
        line |= own
        say(**line, samples_per_s=line["samples"] / line["seconds"])

    if not args.turns:
        turn(range(args.rounds or workload.rounds))
        return
    say(ready=args.label)
    for line in sys.stdin:
        first, last = map(int, line.split())
        turn(range(first, last))


def keep_big_blocks() -> None:
    """glibc gives blocks over a threshold back to the system at once, and pays page faults for the next: do not."""
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:  # another C library
        return
    libc.mallopt(mmap_threshold, 32 << 20)  # the most it accepts
    libc.mallopt(trim_threshold, 512 << 20)
    libc.mallopt(top_pad, 64 << 20)


@torch.no_grad()
def _probe(model: nn.Module, plan: workloads.Plan) -> float:
    """Mean loss on rows spread over all clients, outside the clock. Libraries that did the same work agree on it."""
    rows = torch.arange(0, len(plan.y), len(plan.y) // PROBE)
    return float(cross_entropy(model(plan.x[rows]), plan.y[rows]))


def _own_stdout() -> Callable[..., None]:
    """Keep the real standard output for our lines; what the libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**line: object) -> None:
        print(json.dumps(line), file=out, flush=True)

    return say
