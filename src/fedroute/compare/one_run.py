"""One run of a comparison, in this process; as a program, one after the other as they are asked for on stdin.

python -m fedroute.compare.one_run     a line of JSON in, a Job; a line out, "" or why it failed
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from fedroute.errors import InputError, RunFailed

if TYPE_CHECKING:
    from fedroute.data.federation import Federation


class Job(NamedTuple):
    """label and seed: which it is. config: complete. out: its run directory. alone: that of the run which has each
    client's weights trained alone, or None."""

    label: str
    seed: int
    config: dict[str, Any]
    out: str
    alone: str | None


def run_job(job: Job, alive: Callable[[], None] = lambda: None) -> str:
    """The run to its end, from its last checkpoint where it has one: "", or in words why it failed. alive: called after
    each round; what it raises ends the run at a checkpoint."""
    from fedroute import jobs
    from fedroute.config import from_dict

    out, alone = Path(job.out), Path(job.alone) if job.alone else None

    def progress(phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        alive()

    try:
        config = from_dict(job.config)
        federation = _federation(json.dumps(config.federation, sort_keys=True), config.seed)
        if (out / "config.yaml").exists():
            jobs.resume(out, federation=federation, alone_run=alone, progress=progress, log=_unheard)
        else:
            jobs.start(config, out, federation=federation, alone_run=alone, progress=progress, log=_unheard)
    except (InputError, RunFailed) as e:
        return str(e)
    except Exception as e:  # whatever it is, the other runs go on; its traceback is in the run's log.txt
        return f"unexpected {type(e).__name__}: {e}; {'; '.join(getattr(e, '__notes__', []))}".rstrip("; ")
    return ""


@lru_cache(maxsize=1)
def _federation(spec: str, seed: int) -> "Federation":
    from fedroute.data.load import load_federation

    return load_federation(json.loads(spec), seed)


def _unheard(text: str) -> None:
    """What a run says is in its log.txt."""


def serve() -> None:
    """Runs what comes on stdin until it ends. Ends after the last whole round when asked to, or when the process that
    started it is gone."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    parent = os.getppid()

    def stop(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    def alive() -> None:
        if os.getppid() != parent:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter says when to end
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, stop)
    try:
        for line in sys.stdin:
            answers.write(json.dumps(run_job(Job(*json.loads(line)), alive)) + "\n")
            answers.flush()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(130)


if __name__ == "__main__":
    serve()
