"""How far a run is, on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

EVERY_SECONDS = 10.0
WORDS = {"train": "together", "alone": "each alone"}


class ProgressOnStderr:
    """`show` takes what `fit` calls `progress` with; `say` is a line for people that does not break the bar."""

    def __init__(self) -> None:
        self.bar: RichProgress | None = None
        self.rows: dict[str, TaskID] = {}
        self.last = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        if self.bar:
            self.bar.stop()

    def show(self, phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        words = WORDS.get(phase, phase)
        if self.bar:
            if phase not in self.rows:
                self.rows[phase] = self.bar.add_task(words, total=rounds, note="")
            self.bar.update(self.rows[phase], completed=done, note=summed_up(line))
        elif done == rounds or time.monotonic() - self.last > EVERY_SECONDS:
            self.last = time.monotonic()
            self.say(f"{words}: round {done} of {rounds}  {summed_up(line)}".rstrip())

    def say(self, text: str) -> None:
        if self.bar:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)


def summed_up(line: dict[str, Any]) -> str:
    """A metrics line in a few words: "loss 0.412, accuracy 0.873 (worst 0.610)"."""
    found = line.get("personal") or {}
    words = [f"{line['part']}"] if found and "part" in line else []
    for metric in ("loss", "accuracy"):
        if isinstance(value := found.get(metric), float):
            worst = found.get(f"worst_{metric}")
            words.append(f"{metric} {value:.3f}" + (f" (worst {worst:.3f})" if isinstance(worst, float) else ""))
    return ", ".join(words)
