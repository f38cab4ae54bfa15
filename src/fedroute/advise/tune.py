"""tune(): the numbers of a config by trial, judged on validation rows; the best as a config that `run` takes."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.advise.space import Dial, space, tuned
from fedroute.durable import taking, write
from fedroute.errors import InputError, RunFailed
from fedroute.randomness import seed_of

if TYPE_CHECKING:
    import optuna

    from fedroute.config import Config
    from fedroute.data.federation import Federation

STUDY, BEST, FOUND = "study.db", "best.yaml", "tune.json"
LOOKS = 10  # at a trial's validation rows before its end, after each of which it may be given up
FIRST = 4  # trials that are never given up
Log = Callable[[str], None]


def tune(
    config: "Config",
    out: Path | str,
    *,
    trials: int = 30,
    over: Sequence[str] = (),
    progress: Callable[[str, int, int, dict[str, Any]], None] = lambda phase, done, of, line: None,
    log: Log = lambda text: None,
) -> dict[str, Any]:
    """Trains the config's federation `trials` times with other numbers, and returns what out/tune.json then holds:
    {algorithm, metric, now: {value, score}, best: {value, score, trial}, dials, trials}; the best config is in
    out/best.yaml.

    The first trial is the config as it is, so that the best is never worse than it on validation rows; the others are
    drawn by a tree-structured Parzen estimator (Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization";
    Optuna's), and given up where they fall behind the median of the earlier ones at the same round. A trial's score is
    the mean over clients of the headline metric of their own models on validation rows; test rows are taken out of the
    federation before anything runs. The score of the best of many trials is flattering: the ledger of a run of it on
    test rows is not. Every trial has the config's seed; what is tried next is a function of the seed and of what has
    ended, so that a study that was interrupted and is gone on with, by the same call, is the same as one that was not.

    over: only these dials (see `space`). Raises InputError where optuna or validation rows are missing, or `out` holds
    something else; RunFailed where every trial failed."""
    optuna = _optuna()
    from fedroute.data.load import load_federation

    out = Path(out)
    federation = without_test(load_federation(config.federation, config.seed))
    if not int(federation.sizes("validation").sum()):
        raise InputError("tune: there are no validation rows to judge by; set federation.split.validation above 0")
    dials = space(config, federation, over)
    study = _study(optuna, out, config, dials)
    metric, higher = study.user_attrs["metric"], study.direction == optuna.study.StudyDirection.MAXIMIZE
    while (done := len(_ended(optuna, study))) < trials:
        study.sampler = optuna.samplers.TPESampler(seed=seed_of(config.seed, "tune", done) % 2**32, n_startup_trials=8)
        trial = study.ask()
        said = _run(optuna, study, trial, config, federation, dials, metric)
        log(f"trial {done + 1} of {trials}: {said}")
        progress("tune", done + 1, trials, {})
    found = _found(optuna, study, config, dials, higher)
    write(out / FOUND, json.dumps(found, indent=1) + "\n")
    _write_best(out / BEST, config, found)
    return found


def without_test(federation: "Federation") -> "Federation":
    """The same federation with empty test parts: what has no test rows cannot be chosen by them."""
    return replace(federation, test=tuple(rows[:0] for rows in federation.test))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError("tune: optuna is not installed: pip install 'fedroute[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _study(optuna: Any, out: Path, config: "Config", dials: Sequence[Dial]) -> "optuna.Study":
    """The study in the folder, or a new one whose first trial is the config itself."""
    from fedroute.data.load import load_federation
    from fedroute.evaluate.metrics import yardstick

    with taking(out):
        if out.exists() and not (out / STUDY).exists() and any(out.iterdir()):
            raise InputError(f"{out}: is not empty and holds no study: name another folder with --out")
        out.mkdir(parents=True, exist_ok=True)
    yard = yardstick(load_federation(config.federation, config.seed))
    about = {"config": config.resolved(), "dials": [list(d) for d in dials], "metric": yard.headline}
    study = optuna.create_study(
        storage=f"sqlite:///{(out / STUDY).absolute()}",
        study_name="tune",
        direction="maximize" if yard.higher else "minimize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=FIRST, n_warmup_steps=config.training.rounds // 4),
        load_if_exists=True,
    )
    if not study.user_attrs:
        for key, value in about.items():
            study.set_user_attr(key, value)
        study.enqueue_trial({d.key: d.now for d in dials})
    elif study.user_attrs != json.loads(json.dumps(about)):
        raise InputError(f"{out}: holds a study of another config or other dials: name another folder with --out")
    for left in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):  # of a process that is gone
        study.tell(left.number, state=optuna.trial.TrialState.FAIL)
        if not left.number:
            study.enqueue_trial({d.key: d.now for d in dials})
    return study  # type: ignore[no-any-return]


def _run(
    optuna: Any, study: Any, trial: Any, config: "Config", federation: "Federation", dials: Sequence[Dial], metric: str
) -> str:
    """One trial to its end, what it found written to the study, and in words."""
    from fedroute.training import fit

    values = {d.key: d.suggest(trial) for d in dials}
    trying = tuned(config, values)
    rounds = config.training.rounds
    every = max(1, math.ceil(rounds / LOOKS))

    def watched(phase: str, done: int, of: int, line: dict[str, Any]) -> None:
        score = (line.get("personal") or {}).get(metric)
        if line.get("round") == done and score is not None and done < of:
            trial.report(score, done)
            if trial.should_prune():
                raise optuna.TrialPruned

    training = trying.training.model_copy(update={"alone": False, "evaluate_every": every})
    try:
        run = fit(
            federation, trying.model, trying.algorithm, training=training, seed=config.seed, progress=watched,
            engine=config.engine.model_dump(exclude_none=True), log=lambda text: None,
        )  # fmt: skip
    except optuna.TrialPruned:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return "given up, behind the others"
    except (InputError, RunFailed) as e:
        trial.set_user_attr("reason", str(e))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return f"failed: {e}"
    score = (run.validation["personal"] or {}).get(metric)
    if score is None or not math.isfinite(score) or run.failed:
        trial.set_user_attr("reason", "no finite score: it diverged")
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return "failed: it diverged"
    study.tell(trial, score)
    return f"{metric} {score:.4f}"


def _ended(optuna: Any, study: Any) -> list[Any]:
    """The trials that have ended by themselves: well, given up, or failed with a reason."""
    states = optuna.trial.TrialState
    return [
        t
        for t in study.get_trials(deepcopy=False)
        if t.state in (states.COMPLETE, states.PRUNED) or (t.state == states.FAIL and "reason" in t.user_attrs)
    ]


def _found(optuna: Any, study: Any, config: "Config", dials: Sequence[Dial], higher: bool) -> dict[str, Any]:
    ended = _ended(optuna, study)
    well = [t for t in ended if t.state == optuna.trial.TrialState.COMPLETE]
    if not well:
        reason = next((t.user_attrs["reason"] for t in ended if "reason" in t.user_attrs), "none was complete")
        raise RunFailed(f"tune: no trial ended well, the first: {reason}")
    best = (max if higher else min)(well, key=lambda t: (t.value, -t.number if higher else t.number))
    first = next((t for t in well if t.params == {d.key: d.now for d in dials}), None)
    return {
        "schema": 1,
        "algorithm": config.algorithm["name"],
        "metric": study.user_attrs["metric"],
        "part": "validation",
        "now": {"values": {d.key: d.now for d in dials}, "score": first.value if first else None},
        "best": {"values": dict(best.params), "score": best.value, "trial": best.number},
        "dials": [d._asdict() for d in dials],
        "trials": [
            {"trial": t.number, "state": t.state.name.lower(), "score": t.value, "values": dict(t.params),
             "rounds": max(t.intermediate_values, default=None), "reason": t.user_attrs.get("reason")}
            for t in ended
        ],
    }  # fmt: skip


def _write_best(path: Path, config: "Config", found: dict[str, Any]) -> None:
    import yaml

    best = tuned(config, found["best"]["values"]).resolved()
    head = (
        f"# The best of {len(found['trials'])} trials by fedroute tune: {found['metric']} "
        f"{found['best']['score']:.4f} on validation rows, which flatters\n"
        "# the best of many; the ledger of `fedroute run` on test rows does not.\n"
    )
    write(path, head + yaml.safe_dump(best, sort_keys=False, allow_unicode=True))


def told(found: dict[str, Any]) -> str:
    """For a terminal."""
    now, best = found["now"]["score"], found["best"]
    lines = [
        f"{found['algorithm']}: {found['metric']} on validation rows {best['score']:.4f} in trial {best['trial'] + 1} "
        f"of {len(found['trials'])}" + (f"; {now:.4f} as the config was" if now is not None else "")
    ]
    for d in found["dials"]:
        value = best["values"][d["key"]]
        value = f"{value:.4g}" if isinstance(value, float) else value or "none"
        lines.append(f"  {d['key']:<24}{value}   (was {d['now'] if d['now'] != '' else 'none'})")
    return "\n".join([*lines, "The best of many trials flatters: run best.yaml and read its ledger on test rows."])
