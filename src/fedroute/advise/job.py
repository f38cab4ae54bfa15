"""The work behind `fedroute advise`: a federation by file or name, its profile, the advice, the proof."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedroute.errors import InputError

if TYPE_CHECKING:
    from fedroute.advise.advice import Advice
    from fedroute.config import Training
    from fedroute.data.federation import Federation

ROUNDS = 20  # of the proof, or as many as the config has where these are fewer
Progress = Callable[[str, int, int, dict[str, Any]], None]


class Asked(NamedTuple):
    """What a file or a name says. model, training: None where it says nothing of them."""

    federation: Mapping[str, Any] | str
    base: Path | None  # where its relative paths start
    model: dict[str, Any] | None
    training: "Training | None"
    seed: int


def read(federation: str, seed: int | None = None) -> Asked:
    """`bundled:NAME`, or a YAML file: with `federation:` alone, or a whole config, of which `algorithm` is not looked
    at. Raises InputError."""
    from fedroute.data.load import read_seed, read_spec

    source, colon, _ = federation.partition(":")
    if colon and source in ("bundled", "registry"):
        return Asked(federation, None, None, None, read_seed(federation, seed))
    import yaml

    spec, base = read_spec(Path(federation))
    document = yaml.safe_load(Path(federation).read_text(encoding="utf-8-sig"))
    if not document.get("model"):
        return Asked(spec, base, None, None, read_seed(federation, seed))
    from fedroute.config import from_dict

    whole = {k: v for k, v in document.items() if k in ("federation", "model", "training", "seed")}
    config = from_dict(whole | {"algorithm": "fedavg"}, federation, Path(federation).absolute().parent)
    return Asked(config.federation, None, config.model, config.training, read_seed(federation, seed))


def advise_job(
    federation: str,
    *,
    prove: bool = False,
    seeds: int = 3,
    rounds: int | None = None,
    seed: int | None = None,
    progress: Progress = lambda phase, done, of, line: None,
    log: Callable[[str], None] = lambda text: None,
) -> "Advice":
    """The advice for what `read` reads, and with `prove` its head-to-head on validation rows, in `seeds` seeds, of the
    advised method, the runner-up, FedAvg and each client alone.

    Raises InputError for what is wrong with file, data or model, or nothing to prove by."""
    from fedroute.data.load import load_federation

    asked = read(federation, seed)
    found = load_federation(asked.federation, asked.seed, asked.base)
    advice = advise_federation(found, asked.model, seed=asked.seed)
    log(f"advised: {advice.algorithm}" + ("; now its proof" if prove else ""))
    if not prove:
        return advice
    return proven(
        found, advice, training=asked.training, seeds=seeds, rounds=rounds, seed=asked.seed, progress=progress
    )


def advise_federation(federation: "Federation", model: Mapping[str, Any] | None = None, *, seed: int = 0) -> "Advice":
    """Profile and advice. model: as in a config; by default one that fits the rows, with normalisation layers where
    features differ strongly, so that these can stay at their clients."""
    from fedroute.advise.facts import facts_of
    from fedroute.advise.rules import STRONG, advise
    from fedroute.models import build
    from fedroute.profile.profile import profile
    from fedroute.task import Task, loss_for

    row = profile(federation, seed).row()
    model = model or default_model(federation, facts_of(row).strength["feature"] >= STRONG)
    task = Task(*build(model, federation, seed), loss_for(federation.y))
    return replace(advise(row, model, bool(task.norms)), profile=row)


def default_model(federation: "Federation", norms: bool) -> dict[str, Any]:
    """A small model of the zoo for these rows."""
    image = federation.x.ndim == 4 and min(federation.x.shape[2:]) >= 8
    if image:
        return {"name": "lenet_bn"} if norms else {"name": "cnn"}
    return {"name": "mlp_bn" if norms else "mlp"}


def proven(
    federation: "Federation",
    advice: "Advice",
    *,
    training: "Training | None" = None,
    seeds: int = 3,
    rounds: int | None = None,
    seed: int = 0,
    engine: str = "auto",
    progress: Progress = lambda phase, done, of, line: None,
) -> "Advice":
    """The advice after its proof. training: the budget of every contender; rounds: in the place of its own, of which
    by default 20 at most are made. Raises InputError where there is nothing to prove by."""
    from fedroute.advise.methods import contender
    from fedroute.advise.proof import prove
    from fedroute.config import Training

    t = training or Training(rounds=ROUNDS)
    t = t.model_copy(update={"rounds": rounds or min(t.rounds, ROUNDS), "weighting": None, "robust": None})
    labels = dict.fromkeys([advice.label, advice.runner_up, "fedavg", "alone"])
    contenders = {label: contender(label) for label in labels}
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: give 1 or more")
    found = prove(
        federation, advice.model, contenders, training=t, seeds=seeds, seed=seed, engine=engine, progress=progress
    )
    return advice.proven(found)
