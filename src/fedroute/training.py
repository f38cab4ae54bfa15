"""fit(): a federation, a model and an algorithm in; a run with its ledger out."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from fedroute.algorithms import make
from fedroute.algorithms.alone import Alone
from fedroute.config import Training, explain
from fedroute.core import Algorithm, Loss, Task
from fedroute.data.federation import Federation
from fedroute.engines.base import Engine, Work, context
from fedroute.engines.make import make_engine
from fedroute.engines.sequential import at_client
from fedroute.errors import InputError
from fedroute.evaluate.curve import curve_point
from fedroute.evaluate.ledger import make_ledger
from fedroute.evaluate.spacing import spacing
from fedroute.models import adopt, build
from fedroute.rounds import State, client_batches, prepare, run_round, start, work_of_round
from fedroute.run import Run
from fedroute.run_directory import RunDirectory, fingerprint
from fedroute.tree import Tree, Weights

Progress = Callable[
    [str, int, int, dict[str, Any]], None
]  # phase ("train" | "alone"), rounds done, rounds, the newest line


def fit(
    federation: Federation,
    model: nn.Module | str | dict[str, Any],
    algorithm: Algorithm | str | dict[str, Any] = "fedavg",
    *,
    roles: dict[str, str] | None = None,
    loss: Loss | None = None,
    training: Training | None = None,
    seed: int = 0,
    engine: str | dict[str, Any] = "auto",
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress = lambda phase, done, rounds, line: None,
    log: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    **options: Any,
) -> Run:
    """Train, evaluate every client, and, where training.alone says so, train each client alone at the same budget.

    model: a name or spec of the zoo (see `fedroute models`), or any nn.Module with `roles` (name prefix -> "body",
    "head", ...). algorithm: a name, a spec, or an instance. training: its options, or give them by name: rounds,
    local_epochs, batch_size, lr, ... (see config.Training for all with their defaults). out: the run directory; with
    `resume` a run that was interrupted there goes on from its last checkpoint to the same end, bit for bit. progress is
    called after each round, log with a line for people. Nothing is chosen on test rows.

    Raises InputError where the parts do not fit, RunFailed where the job cannot go on."""
    t = _training(training, options)
    module, roles = build(model, federation, seed) if isinstance(model, str | dict) else adopt(model, roles, log)
    alg = prepare(algorithm if isinstance(algorithm, Algorithm) else make(algorithm), Task(module, roles, loss), t)
    directory = RunDirectory(Path(out), fingerprint(federation, alg, t, seed)) if out else None
    say, state = log, None
    if directory:
        directory.open() if resume else directory.create()
        say = directory.logging(log)
        state = directory.load_checkpoint() if resume else None
    state = state or start(alg, federation)
    first = work_of_round(alg, federation, t, seed, 0)
    chosen = make_engine(_engine(engine, state), alg, federation, state.server, state.privates, first, say)
    state = replace(state, engine=chosen.name)
    try:
        loop = _Loop(alg, chosen, federation, t, seed, directory, progress, say)
        state = loop.run(state)
        before = time.perf_counter()
        private_of = _adapted(alg, federation, t, seed, state, adapt_epochs(alg))
        alone_of = _alone(loop, _engine(engine, state)) if t.alone else None
        after = time.perf_counter()
        ledger = make_ledger(
            federation,
            alg.predictor(),
            personal=lambda i: alg.personal(state.server, private_of(i)),
            global_w=_global(alg, state),
            alone=alone_of,
            seed=seed,
        )
    finally:
        chosen.close()
    loop.seconds |= {"alone_s": after - before, "ledger_s": time.perf_counter() - after}
    privates = {i: private_of(i) for i in state.privates}
    run = Run(
        federation, alg, t, seed, chosen.name, replace(state, privates=privates), ledger, loop.seconds, loop.samples
    )
    if directory:
        directory.finish(run)
    return run


def _training(training: Training | None, options: dict[str, Any]) -> Training:
    try:
        return Training(**((training.model_dump() if training else {}) | options))
    except ValidationError as e:
        raise InputError("\n".join(explain(e, Training, part="training"))) from None


def _engine(spec: str | dict[str, Any], state: State) -> dict[str, Any]:
    """The spec, with "auto" settled where it was before: engines differ by rounding, and a resumed run must not."""
    options = {"name": spec} if isinstance(spec, str) else spec
    auto = options.get("name", "auto") == "auto"
    return options | {"name": state.engine} if state.engine and auto else options


class _Loop:
    """The rounds of one run, with evaluation and checkpoints where they are due."""

    def __init__(
        self,
        alg: Algorithm,
        engine: Engine,
        federation: Federation,
        t: Training,
        seed: int,
        directory: RunDirectory | None,
        progress: Progress,
        log: Callable[[str], None],
    ) -> None:
        self.alg, self.engine, self.federation, self.t, self.seed = alg, engine, federation, t, seed
        self.directory, self.progress, self.log = directory, progress, log
        self.seconds = {"train_s": 0.0, "evaluate_s": 0.0, "checkpoint_s": 0.0}
        self.samples = 0

    def run(self, state: State) -> State:
        """From `state` to the state after the last round. Interrupted by Ctrl-C it saves the last whole round first."""
        saved, first = time.perf_counter(), state.round
        try:
            while state.round < self.t.rounds:
                work, before = self.work(state.round), time.perf_counter()
                state = run_round(self.alg, self.engine, self.federation, self.t, state, work, self.log)
                self.seconds["train_s"] += time.perf_counter() - before
                self.samples += sum(len(rows) for steps in work.batches.values() for rows in steps)
                state = self.evaluated(state, first, work)
                self.progress("train", state.round, self.t.rounds, state.history[-1] if state.history else {})
                if self.directory and self.due(state, saved):
                    self.save(state)
                    saved = time.perf_counter()
        except KeyboardInterrupt:
            if self.directory:
                self.save(state)
            raise
        return state

    def work(self, round: int) -> Work:
        return work_of_round(self.alg, self.federation, self.t, self.seed, round)

    def evaluated(self, state: State, first: int, work: Work) -> State:
        """The state with a line of history where one is due. The spacing is settled once, after the first round's
        evaluation has been timed, and kept in the state."""
        every = self.t.evaluate_every or state.evaluate_every
        if state.round != self.t.rounds and every and state.round % every:
            return state
        before = time.perf_counter()
        server, privates = state.server, state.privates
        line = {"round": state.round, "lr": work.lr, "clients": len(work.clients), "train_loss": state.loss}
        line |= curve_point(
            self.federation,
            self.alg.predictor(),
            lambda i: self.alg.personal(server, privates[i]),
            _global(self.alg, state),
        )
        spent = time.perf_counter() - before
        self.seconds["evaluate_s"] += spent
        if not every:
            every = spacing(self.seconds["train_s"] / (state.round - first), spent)
            self.log(
                f"evaluating every {every} rounds, which adds at most 30 % (training.evaluate_every says otherwise)"
            )
            state = replace(state, evaluate_every=every)
        if self.directory:
            self.directory.append_metrics(line)
        return replace(state, history=[*state.history, line])

    def due(self, state: State, saved: float) -> bool:
        if state.round == self.t.rounds:
            return True
        if self.t.checkpoint_every:
            return state.round % self.t.checkpoint_every == 0
        return time.perf_counter() - saved > max(10.0, 20 * self.seconds.get("last_checkpoint_s", 0.0))

    def save(self, state: State) -> None:
        assert self.directory is not None
        before = time.perf_counter()
        self.directory.save_checkpoint(state)
        self.seconds["last_checkpoint_s"] = time.perf_counter() - before
        self.seconds["checkpoint_s"] += self.seconds["last_checkpoint_s"]


def _global(alg: Algorithm, state: State) -> Weights | None:
    """The shared model, or None where it lacks a part that stays with the clients."""
    return state.server["w"] if alg.predictor().init().keys() == state.server["w"].keys() else None


def adapt_epochs(alg: Algorithm) -> int:
    """Passes over its own rows that each client makes after the last round, before it predicts."""
    return int(getattr(alg, "adapt_epochs", 0))


def _adapted(
    alg: Algorithm, federation: Federation, t: Training, seed: int, state: State, epochs: int
) -> Callable[[int], Tree]:
    """Each client's private state as it predicts: after `epochs` passes of `adapt`."""
    if not epochs:
        return lambda i: state.privates[i]
    local = t.model_copy(update={"local_epochs": epochs, "local_steps": None})
    privates: dict[int, Tree] = {}
    for i in state.privates:
        plan = {i: client_batches(alg, federation, local, seed, t.rounds, i)}
        work = Work(t.rounds, seed, t.lr, (i,), plan)
        with at_client(work, federation.clients[i]):
            ctx = context(alg, state.server, state.privates[i], i, work, federation)
            privates[i] = alg.adapt(ctx, (federation.take(rows) for rows in plan[i]))
    return privates.__getitem__


def _alone(loop: _Loop, engine: dict[str, Any]) -> Callable[[int], Weights]:
    """Every client trained alone on the same batches in the same rounds, and as long at the end where the others adapt:
    the same budget to the step."""
    alg = replace(Alone(), optimizer=loop.alg.optimizer).bind(loop.alg.task)
    state = start(alg, loop.federation)
    own = make_engine(engine, alg, loop.federation, state.server, state.privates, loop.work(0), loop.log)
    try:
        for r in range(loop.t.rounds):
            state = run_round(alg, own, loop.federation, loop.t, state, loop.work(r), loop.log)
            loop.progress("alone", r + 1, loop.t.rounds, {})
    finally:
        own.close()
    final = _adapted(alg, loop.federation, loop.t, loop.seed, state, adapt_epochs(loop.alg))
    return lambda i: alg.personal(state.server, final(i))
