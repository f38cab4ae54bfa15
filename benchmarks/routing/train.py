"""One training of each method, kept in a folder: weights as safetensors."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from benchmarks.routing.methods import METHODS
from benchmarks.routing.settings import SETTINGS
from fedroute.algorithms import make
from fedroute.config import Training
from fedroute.core import Algorithm, Task
from fedroute.data.federation import Federation
from fedroute.engines.allocator import keep_memory
from fedroute.engines.sequential import Sequential
from fedroute.rounds import State, prepare, run_round, start, work_of_round
from fedroute.task import loss_for
from fedroute.tree import Tree, Weights, flatten, unflatten


@dataclass
class Trained:
    """A training as it ended. seconds: of a core; lam: after each round, where the method has it."""

    algorithm: Algorithm
    server: Tree
    privates: list[Tree]
    seconds: float
    lam: list[float]

    def personal(self, i: int) -> Weights:
        return self.algorithm.personal(self.server, self.privates[i])


def bound(setting: str, method: str, f: Federation, seed: int) -> tuple[Algorithm, Training]:
    """The algorithm on its task, and its budget."""
    s = SETTINGS[setting]
    training = Training(**s.training)
    task = Task(*s.net(f, seed), loss_for(f.y))
    return prepare(make(METHODS[method]), task, training), training


def trained(
    setting: str,
    method: str,
    seed: int,
    f: Federation,
    cache: Path,
    at: int | None = None,
    say: Callable[[str], None] = print,
) -> Trained:
    """The training after round `at`, by default the last one; from the folder, or trained now."""
    alg, training = bound(setting, method, f, seed)
    kept = cache / f"{setting}-{method}-{seed}-{at or training.rounds}.safetensors"
    if not kept.exists():
        _train(setting, method, seed, alg, training, f, cache, say)
    tree, told = _read(kept)
    privates = [tree["privates"].get(str(i), alg.init_client(alg.task.init())) for i in range(len(f.clients))]
    return Trained(alg, tree["server"], privates, told["seconds"], told["lam"])


def _train(
    setting: str,
    method: str,
    seed: int,
    alg: Algorithm,
    training: Training,
    f: Federation,
    cache: Path,
    say: Callable[[str], None],
) -> None:
    keep_memory()
    name = f"{setting}-{method}-{seed}"
    rows = SETTINGS[setting].for_training(f, seed)
    engine, state, seconds = Sequential(alg, rows), start(alg, f), 0.0
    lam: list[float] = []
    if done := max((r for r in range(training.rounds) if (cache / f"{name}-{r}.safetensors").exists()), default=0):
        tree, told = _read(cache / f"{name}-{done}.safetensors")
        state.round, seconds, lam = done, told["seconds"], told["lam"]
        state.server |= tree["server"]
        state.privates |= {int(i): p for i, p in tree["privates"].items()}
    for r in range(done, training.rounds):
        before = time.process_time()
        state = run_round(alg, engine, rows, training, state, work_of_round(alg, rows, training, seed, r), _fail)
        seconds += time.process_time() - before
        if "lam" in state.server:
            lam.append(round(float(state.server["lam"]), 4))
        if state.round % max(1, training.rounds // 6) == 0 or state.round == training.rounds:
            say(f"{name}: round {state.round}, loss {state.loss:.3f}, {seconds:.0f} s of a core")
            _keep(cache / f"{name}-{state.round}", state, {"seconds": seconds, "lam": lam})


def _read(path: Path) -> tuple[Tree, dict[str, Any]]:
    return unflatten(load_file(path)), json.loads(path.with_suffix(".json").read_text())


def _keep(path: Path, state: State, told: dict[str, object]) -> None:
    tree = {"server": {k: v for k, v in state.server.items() if k != "opt"},
            "privates": {str(i): p for i, p in state.privates.items() if flatten(p)}}  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous().clone() for k, v in flatten(tree, whole=True).items()}, f"{path}.safetensors")
    path.with_name(path.name + ".json").write_text(json.dumps(told))


def _fail(message: str) -> None:
    raise RuntimeError(message)
