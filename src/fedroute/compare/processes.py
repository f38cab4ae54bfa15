"""Several runs at a time, each in a process with one thread."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress

from fedroute.compare.one_run import Job, run_job


def run_jobs(jobs: Sequence[Job], at_once: int) -> Generator[tuple[Job, str], None, None]:
    """(job, "" or why it failed) as they end; the jobs are begun in their order. With one at a time they run in this
    process. Where the generator is closed, or Ctrl-C comes, those that run are stopped after their last whole round and
    can be gone on with."""
    if at_once <= 1:
        for job in jobs:
            yield job, run_job(job)
        return
    crew = [_Process() for _ in range(at_once)]
    todo, idle = list(jobs), list(crew)
    running: dict[Future[str], tuple[Job, _Process]] = {}
    with ThreadPoolExecutor(at_once) as threads:  # each waits for the answer of one process
        try:
            while todo or running:
                while todo and idle:
                    process, job = idle.pop(), todo.pop(0)
                    running[threads.submit(process.run, job)] = job, process
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, process = running.pop(future)
                    idle.append(process)
                    yield job, future.result()
        finally:
            for process in crew:
                process.stop()


class _Process:
    """A process that runs what it is given; when it dies, another takes its place."""

    def __init__(self) -> None:
        self.stopped = False
        self.start()

    def start(self) -> None:
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedroute.compare.one_run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | one_thread,
            start_new_session=True,  # so that Ctrl-C reaches it through us alone
        )

    def run(self, job: Job) -> str:
        """ "" or why it failed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = ""
        if line:
            return str(json.loads(line))
        code = self.process.wait()
        self.close()
        if self.stopped:
            return "stopped"
        self.start()
        return f"its process ended with exit code {code}, killed or out of memory; the same command again goes on"

    def stop(self) -> None:
        self.stopped = True
        self.process.terminate()
        self.process.wait()
        self.close()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # closing writes what is left
                    pipe.close()
