"""fit(): a federation, a model and an algorithm in; a run with its ledger out."""

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from fedroute.algorithms import make
from fedroute.algorithms.alone import Alone
from fedroute.checkpoint import load_newest
from fedroute.config import Training, explain
from fedroute.core import Algorithm, Loss, Task
from fedroute.data.federation import Federation
from fedroute.engines.base import Engine, Work, context
from fedroute.engines.make import make_engine
from fedroute.engines.sequential import at_client
from fedroute.errors import InputError, RunFailed
from fedroute.evaluate.curve import curve_point
from fedroute.evaluate.ledger import make_ledger
from fedroute.evaluate.spacing import spacing
from fedroute.models import adopt, build
from fedroute.quarantine import how_often
from fedroute.rounds import State, client_batches, prepare, run_round, start, work_of_round
from fedroute.routing import Asked, route_run, router_spec
from fedroute.run import Run
from fedroute.run_directory import RunDirectory, fingerprint
from fedroute.say import announce, planned
from fedroute.task import loss_for
from fedroute.tree import Tree, Weights

Progress = Callable[
    [str, int, int, dict[str, Any]], None
]  # phase ("train" | "alone"), rounds done, rounds, the newest line
LOOKED_AT = 200  # rounds by which a run tells each client's say


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
    router: Asked = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress = lambda phase, done, rounds, line: None,
    log: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    alone_run: Path | str | None = None,
    **options: Any,
) -> Run:
    """Train, evaluate every client, and, where training.alone says so, train each client alone at the same budget.

    model: a name or spec of the zoo (see `fedroute models`), or any nn.Module with `roles` (name prefix -> "body",
    "head", ...). loss: by default cross entropy of class codes, squared error where y is numbers. algorithm: a name, a
    spec, or an instance. training: its options, or give them by name: rounds, local_epochs, batch_size, lr, ... (see
    config.Training for all with their defaults). router: its kind, or options as in router.spec.RouterSpec; it is made
    after the last round, and is `Run.router`. out: the run directory; with `resume` a run that was interrupted there
    goes on from its last checkpoint to the same end, bit for bit. progress is called after each round, log with a line
    for people. alone_run: the directory of a run of algorithm `alone` that has ended, on the same federation, model,
    training and seed, whose clients then stand in the ledger instead of being trained again where that would be the
    same to the step. Nothing is chosen on test rows.

    Raises InputError where the parts do not fit, RunFailed where the job cannot go on."""
    t = _training(training, options)
    module, roles = build(model, federation, seed) if isinstance(model, str | dict) else adopt(model, roles, log)
    task = Task(module, roles, loss or loss_for(federation.y))
    alg = prepare(algorithm if isinstance(algorithm, Algorithm) else make(algorithm), task, t)
    if getattr(alg, "only_classes", False) and not federation.labels:
        raise InputError(
            f"algorithm.name: {alg.describe()['name']} needs targets that are classes, and these are numbers"
        )
    asked = router_spec(router, alg, federation)
    directory = RunDirectory(Path(out), fingerprint(federation, alg, t, seed)) if out else None
    say, state = log, None
    if directory:
        directory.open() if resume else directory.create()
        say = directory.logging(log)
        state = directory.load_checkpoint() if resume else None
        if resume:
            say(f"going on after round {state.round}" if state else "no checkpoint yet: going on from the start")
    state = state or start(alg, federation)
    says = planned(alg, federation, t, seed, LOOKED_AT)
    for text in announce(says, alg, federation, t):
        say(text)
    first = work_of_round(alg, federation, t, seed, 0)
    chosen = make_engine(_engine(engine, state), alg, federation, state.server, state.privates, first, say)
    state, began = replace(state, engine=chosen.name), state.round
    try:
        loop = Loop(alg, chosen, federation, t, seed, directory, progress, say)
        state = loop.run(state)
        before = time.perf_counter()
        epochs = adapt_epochs(alg)
        late = dict.fromkeys(federation.newcomers, epochs or 1)  # passes over its own rows
        private_of = adapted(alg, federation, t, seed, state, dict.fromkeys(state.privates, epochs) | late)
        same = alg.task is task and t.sampling != "loss"  # else other weights, or other clients in a round
        done = Path(alone_run) if alone_run and same else None
        alone_of = _alone(loop, _engine(engine, state), done, resume) if t.alone else None
        after = time.perf_counter()
        ledger = make_ledger(
            federation,
            alg.predictor(),
            personal=lambda i: alg.personal(state.server, private_of(i)),
            global_w=global_weights(alg, state.server),
            alone=alone_of,
            seed=seed,
        )
        validation = curve_point(
            federation,
            alg.predictor(),
            lambda i: alg.personal(state.server, private_of(i)),
            global_weights(alg, state.server),
        )
    finally:
        chosen.close()
    loop.seconds |= {"alone_s": after - before, "ledger_s": time.perf_counter() - after, "from_round": began}
    privates = {i: private_of(i) for i in state.privates}
    run = Run(
        federation, alg, t, seed, chosen.name, replace(state, privates=privates), ledger, loop.seconds, loop.samples,
        validation, say=says,
    )  # fmt: skip
    if asked:
        route_run(run, asked, model, global_weights(alg, state.server), say)
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


class Loop:
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
        self.losses: list[dict[str, float]] = []  # of the rounds done, where the next one's clients depend on them

    def run(self, state: State) -> State:
        """From `state` to the state after the last round. Interrupted by Ctrl-C it saves the last whole round first."""
        saved, first = time.perf_counter(), state.round
        try:
            self.losses = state.losses
            while state.round < self.t.rounds:
                work, before = self.work(state.round), time.perf_counter()
                state = run_round(self.alg, self.engine, self.federation, self.t, state, work, self.log)
                _some_can_train(state, work)
                self.losses = state.losses
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
        if state.round > first:
            for client, words in how_often(state.quarantined, state.round).items():
                self.log(f"{client} was {words}")
        return state

    def work(self, round: int) -> Work:
        return work_of_round(self.alg, self.federation, self.t, self.seed, round, self.losses)

    def evaluated(self, state: State, first: int, work: Work) -> State:
        """The state with a line of history where one is due. The spacing is settled once, after the first round's
        evaluation has been timed, and kept in the state."""
        every = self.t.evaluate_every or state.evaluate_every
        if state.round != self.t.rounds and every and state.round % every:
            return state
        before = time.perf_counter()
        line = {"round": state.round, "lr": work.lr, "clients": len(work.clients), "train_loss": state.loss}
        line |= self.curve(state)
        spent = time.perf_counter() - before
        self.seconds["evaluate_s"] += spent
        if not every:
            every = spacing(self.seconds["train_s"] / (state.round - first), spent)
            spaced = "round" if every == 1 else f"{every} rounds"
            self.log(f"evaluating every {spaced}, which adds at most 30 % (training.evaluate_every says otherwise)")
            state = replace(state, evaluate_every=every)
        if self.directory:
            self.directory.append_metrics(line)
        return replace(state, history=[*state.history, line])

    def curve(self, state: State) -> dict[str, Any]:
        """How all clients stand on validation rows, as `curve_point` says it."""
        return curve_point(
            self.federation,
            self.alg.predictor(),
            lambda i: self.alg.personal(state.server, state.privates[i]),
            global_weights(self.alg, state.server),
        )

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


def _some_can_train(state: State, work: Work) -> None:
    """Raises RunFailed where in the first round every client raised: that is no client's fault but the job's."""
    raised = [q.reason for q in state.quarantined if q.reason.startswith("raised ")]
    if state.round == 1 and work.clients and len(raised) == len(work.clients):
        raise RunFailed(
            f"all {len(raised)} clients failed in the first round, the first one {raised[0]}: the traceback above says "
            "where; it may be the model, the loss (it must return one number, a () tensor) or the data"
        )


def global_weights(alg: Algorithm, server: Tree) -> Weights | None:
    """The shared model, or None where it lacks a part that stays with the clients."""
    w: Weights = server["w"] | besides(alg)
    return w if alg.predictor().init().keys() == w.keys() else None


def besides(alg: Algorithm) -> Weights:
    """What the predictor has that is no weight of the task, such as a store of rows, as it starts."""
    return {k: v for k, v in alg.predictor().init().items() if k not in alg.task.names}


def adapt_epochs(alg: Algorithm) -> int:
    """Passes over its own rows that each client makes after the last round, before it predicts."""
    return int(getattr(alg, "adapt_epochs", 0))


def adapted(
    alg: Algorithm, federation: Federation, t: Training, seed: int, state: State, passes: Mapping[int, int]
) -> Callable[[int], Tree]:
    """Each client's private state as it predicts: after so many passes of `adapt` over its own rows."""
    privates: dict[int, Tree] = {}
    for i, epochs in passes.items():
        if not epochs:
            continue
        local = t.model_copy(update={"local_epochs": epochs, "local_steps": None})
        plan = {i: client_batches(alg, federation, local, seed, t.rounds, i)}
        work = Work(t.rounds, seed, t.lr, (i,), plan)
        with at_client(work, federation.clients[i]):
            ctx = context(alg, state.server, state.privates[i], i, work, federation)
            privates[i] = alg.adapt(ctx, (federation.take(rows) for rows in plan[i]))
    return lambda i: privates[i] if i in privates else state.privates[i]


def _alone(loop: Loop, engine: dict[str, Any], done: Path | None, resume: bool) -> Callable[[int], Weights]:
    """Every client trained alone on the same batches in the same rounds, and as long at the end where the others adapt:
    the same budget to the step. A newcomer trains in as many rounds as the others on average. done: a run of `alone`
    that has its weights already. It has checkpoints of its own in the run directory, until the run has ended."""
    alg = replace(Alone(), optimizer=loop.alg.optimizer).bind(loop.alg.task)
    federation, t, saved = loop.federation, loop.t, time.perf_counter()
    marks, kept = fingerprint(federation, alg, t, loop.seed), None if done else loop.directory
    before = kept.load_alone(marks) if kept and resume else None
    state = _ended(alg, loop, done) if done else before or start(alg, federation)
    if before:
        loop.log(f"each client alone: going on after round {state.round}")
    if not done or federation.newcomers:
        own = make_engine(engine, alg, federation, state.server, state.privates, loop.work(0), loop.log)
        try:
            for r in range(0 if done else state.round, t.rounds):
                if (work := _alone_work(loop, r, bool(done))).clients:
                    state = run_round(alg, own, federation, t, state, work, loop.log)
                state = replace(state, round=r + 1)
                loop.progress("alone", r + 1, t.rounds, {})
                if kept and loop.due(state, saved):
                    kept.save_alone(state, marks)
                    saved = time.perf_counter()
        except KeyboardInterrupt:
            if kept:
                kept.save_alone(state, marks)
            raise
        finally:
            own.close()
    passes = dict.fromkeys(state.privates, adapt_epochs(loop.alg))
    final = adapted(alg, federation, t, loop.seed, state, passes)
    more = besides(loop.alg)
    return lambda i: alg.personal(state.server, final(i)) | more


def _alone_work(loop: Loop, round: int, done: bool) -> Work:
    """Who trains alone in this round: those who train together, unless that is done, and newcomers that have a turn."""
    work = loop.work(round)
    new = loop.federation.newcomers if newcomers_turn(loop.federation, len(work.clients), round) else ()
    plan = {i: client_batches(loop.alg, loop.federation, loop.t, loop.seed, round, i) for i in new}
    plan = ({} if done else dict(work.batches)) | {i: steps for i, steps in plan.items() if steps}
    return work._replace(clients=tuple(sorted(i for i in plan if plan[i])), batches=plan, judged=False)


def newcomers_turn(federation: Federation, asked: int, round: int) -> bool:
    """Whether newcomers train alone in this round, in which so many others are asked: in as many rounds as those on
    average."""
    share = asked / max(1, int((federation.training_sizes() > 0).sum()))
    return math.floor((round + 1) * share + 1e-9) > math.floor(round * share + 1e-9)


def _ended(alg: Algorithm, loop: Loop, folder: Path) -> State:
    """The last state of the run of `alone` in this folder. Raises InputError where it is a run of something else, or
    has not ended."""
    state = load_newest(folder / "checkpoint", fingerprint(loop.federation, alg, loop.t, loop.seed), loop.log)
    if state is None or state.round != loop.t.rounds:
        raise InputError(f"{folder}: is no run of algorithm alone that has ended: `fedroute resume {folder}` ends it")
    return state
