"""The driver: `python -m benchmarks.speed`. Starts the contenders, gives them turns, writes what came out.

A pass is one turn for every contender, each on the same rounds of the plan; the next pass starts with the next
contender. Passes go on until there are `--repeats` of them or the time is up.
"""

import argparse
import contextlib
import datetime
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.speed import environment, workloads
from benchmarks.speed.contenders import CONTENDERS, DEFAULT, Contender
from benchmarks.speed.summary import Turn, summarise, table
from benchmarks.speed.workloads import WORKLOADS, Workload

CACHE = environment.ROOT / ".bench-venv"
RESULTS = environment.ROOT / "benchmarks" / "results"
PATIENCE = 180  # seconds for a start or a turn
QUICK = {"W1": 2, "W2": 1, "W2-b50": 1}  # rounds of a turn under --quick


@dataclass
class Running:
    contender: Contender
    process: subprocess.Popen[str]

    @property
    def _in(self) -> IO[str]:
        assert self.process.stdin
        return self.process.stdin

    @property
    def _out(self) -> IO[str]:
        assert self.process.stdout
        return self.process.stdout

    def read(self) -> dict[str, Any] | None:
        """Its next line; None where it ended instead, by itself or because it hung."""
        watchdog = threading.Timer(PATIENCE, self.process.kill)
        watchdog.start()
        try:
            line = self._out.readline()
        finally:
            watchdog.cancel()
        return json.loads(line) if line else None

    def turn(self, rounds: range) -> dict[str, Any] | None:
        try:
            print(rounds.start, rounds.stop, file=self._in, flush=True)
        except BrokenPipeError:
            return None
        return self.read()

    def end(self) -> int:
        """Let it go; the exit status."""
        with contextlib.suppress(BrokenPipeError):
            self._in.close()
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    deadline = time.monotonic() + 60 * args.minutes
    names = list(dict.fromkeys(args.contenders))
    peers = environment.peers_python(args.cache, args.install) if any(CONTENDERS[n].peer for n in names) else None
    if peers is None:
        for name in [n for n in names if CONTENDERS[n].peer]:
            print(f"{name}: left out, the peers are not installed", file=sys.stderr)
        names = [n for n in names if not CONTENDERS[n].peer]
    data = args.cache / "data"
    source = workloads.prepare(data)
    turns: list[Turn] = []
    failed: dict[str, str] = {}
    for number, name in enumerate(args.workloads):
        left = (deadline - time.monotonic()) / (len(args.workloads) - number)  # a fair share of the time that is left
        runs = [CONTENDERS[n] for n in names if name in CONTENDERS[n].workloads and n not in failed]
        turns += measure(WORKLOADS[name], runs, data, peers, args, time.monotonic() + left, failed)
    summary = summarise(turns)
    result = {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": environment.commit(),
        "machine": environment.machine(),
        "data": source,
        "quick": args.quick,
        "summary": summary,
        "failed": failed,
        "turns": turns,
    }
    print(table(summary))
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"speed-{datetime.date.today():%Y-%m-%d}{'-quick' if args.quick else ''}.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\n{file}")
    for name, why in failed.items():
        print(f"{name}: failed: {why}", file=sys.stderr)
    return 1 if failed or not turns else 0


def measure(
    workload: Workload,
    contenders: Sequence[Contender],
    data: Path,
    peers: Path | None,
    args: argparse.Namespace,
    deadline: float,
    failed: dict[str, str],
) -> list[Turn]:
    """All passes of one workload. A contender that ends early is named in `failed` and left out from there on."""
    length = QUICK[workload.name] if args.quick else workload.rounds
    running: list[Running] = []
    turns: list[Turn] = []
    try:
        for contender in contenders:  # one after the other: starting is work too
            running.append(_start(contender, workload, data, peers, args))
            if running[-1].read() is None:
                _lose(running, running[-1], failed)
        for repeat in range(args.repeats):
            start = repeat * length % (workloads.ROUNDS // 2)
            first = repeat % max(len(running), 1)
            for one in running[first:] + running[:first]:
                _progress(workload, repeat, one.contender.name)
                turn = one.turn(range(start, start + length * one.contender.length))
                if turn is None:
                    _lose(running, one, failed)
                else:
                    turns.append(turn | {"repeat": repeat})
            if time.monotonic() > deadline:
                print(f"\n{workload.name}: out of time after {repeat + 1} passes", file=sys.stderr)
                break
    finally:
        for one in running:
            one.end()
    _progress(workload, len(turns), "done\n")
    return turns


def _start(
    contender: Contender, workload: Workload, data: Path, peers: Path | None, args: argparse.Namespace
) -> Running:
    python = str(peers) if contender.peer else sys.executable
    command = [python, "-m", contender.module, "--data", str(data), "--workload", workload.name]
    command += ["--label", contender.name, "--turns", *contender.flags]
    if contender.cores == 1 and args.core >= 0:
        command += ["--core", str(args.core)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    quiet = None if args.verbose else subprocess.DEVNULL
    process = subprocess.Popen(
        command, env=os.environ | threads, cwd=environment.ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet,
    )  # fmt: skip
    return Running(contender, process)


def _lose(running: list[Running], one: Running, failed: dict[str, str]) -> None:
    running.remove(one)
    failed[one.contender.name] = f"ended with {one.end()}; run again with --verbose to see why"


def _progress(workload: Workload, number: int, text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{workload.name} {number + 1}: {text}", end="", file=sys.stderr, flush=True)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="W")
    parser.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, default=DEFAULT, metavar="NAME", help=", ".join(CONTENDERS)
    )
    parser.add_argument("--repeats", type=int, default=8, help="passes (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=13, help="start no pass after that (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a smoke test under a minute: W1, two short passes")
    parser.add_argument("--no-install", dest="install", action="store_false", help="go without the peers if not there")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the peers' environment and the data")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--core", type=int, default=_last_core(), help="core to run on, -1 for any (default: the last)")
    parser.add_argument("--verbose", action="store_true", help="show what the contenders write to standard error")
    args = parser.parse_args(argv)
    if args.quick:
        args.repeats = min(args.repeats, 2)
        args.workloads = ["W1"] if args.workloads == list(WORKLOADS) else args.workloads
    args.cache = args.cache.resolve()
    return args


def _last_core() -> int:
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else -1


if __name__ == "__main__":
    raise SystemExit(main())
