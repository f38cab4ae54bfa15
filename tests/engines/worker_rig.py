"""What the tests of workers work with: federations, algorithms bound to models, and what processes hold."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedroute.core import Algorithm, Context, Task
from fedroute.data.federation import Federation
from fedroute.engines.base import Work
from fedroute.tree import Tree

SIZES = (3, 40, 1, 17, 90, 8, 33, 2)
FOREVER = 120.0  # seconds after which a test that waits for something gives up


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
