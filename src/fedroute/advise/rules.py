"""advise(): from a profile to a method, by rules that a person can check against the profile's numbers.

The rules were made on the design half of benchmarks/advice and judged on the other half; docs/advice.md has the
table."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedroute.advise import companions
from fedroute.advise.advice import NOTHING_SHARED, Advice
from fedroute.advise.clients import left_out, personal
from fedroute.advise.facts import Facts, facts_of
from fedroute.advise.methods import METHODS

FEW_CLASSES = 0.36  # of all classes, that a client has effectively: below, its task is a small one of its own
STRONG = 0.5  # a strength, as the profile calls it
BEYOND = 0.05  # of what features tell of the labels by a client's own means, the share that the others' means miss
EASY = 0.8  # of the labels features tell by one's own means: then a client learns them from its own rows


class Choice(NamedTuple):
    """label, runner_up: of METHODS; why, and what would change it, with the profile's numbers."""

    label: str
    runner_up: str
    why: tuple[str, ...]
    runner_up_why: str
    changes: tuple[str, ...]


def advise(profile: Any, model: Mapping[str, Any], norms: bool) -> Advice:
    """profile: a `Profile`, or what `fedroute profile --json` prints. model: the model that is to be trained, as in a
    config. norms: whether it has normalisation layers: without, nothing that keeps them at home is advised."""
    f = facts_of(profile)
    own = personal(f)
    choice = chosen(f, norms)
    schedule, schedule_why = companions.schedule(f)
    weighting, weighting_why = companions.weighting(f)
    share, sampling, sampling_why = companions.sampling(f)
    router, router_why = companions.router(f)
    if not METHODS[choice.label].sends:
        schedule, schedule_why, weighting_why, router, router_why = (
            "constant",
            "",
            "",
            False,
            NOTHING_SHARED,
        )
    more = tuple(w for w in (weighting_why, sampling_why, schedule_why) if w)
    return Advice(
        label=choice.label, runner_up=choice.runner_up, runner_up_why=choice.runner_up_why, model=dict(model),
        weighting=weighting, sampling=sampling, clients_per_round=share, schedule=schedule, router=router,
        router_why=router_why, why=(*choice.why, *more), would_change_mind=choice.changes, leave_out=left_out(f),
        personal=own,
    )  # fmt: skip


def chosen(f: Facts, norms: bool) -> Choice:
    """The first rule that fits."""
    if sum(c.rows > 0 for c in f.clients) < 2:
        return Choice(
            "alone", "fedavg", ("only one client has rows: there is nobody to learn with",), "the same, with a server",
            ("a second client with rows",),
        )  # fmt: skip
    rules = (_other_meanings, _few_classes, _own_features, _features_apart, _differ)
    return next((c for rule in rules if (c := rule(f, norms)) is not None), None) or _alike(f)


def missed(f: Facts) -> float:
    """The share of what features tell of the labels at a client that the others' means miss; 0 where unknown."""
    if not f.own or f.others is None:
        return 0.0
    return max(0.0, 1 - f.others / f.own)


def _other_meanings(f: Facts, norms: bool) -> Choice | None:
    if not f.present("concept"):
        return None
    why = (
        f"the same features mean different labels at different clients (concept skew {f.strength['concept']:.2f}, "
        f"{f.verdict['concept']}): one model for all must be wrong at some of them"
    )
    if norms:
        body = (
            "heads and normalisation layers stay at their clients and say there what features mean; the rest is shared"
        )
    else:
        body = "heads stay at their clients and say there what features mean; the body, which only sees, is shared"
    return Choice(
        "fedper_fedbn" if norms else "fedper", "alone", (why, body), "it shares nothing that could be wrong",
        ("labels made to mean the same at all clients (concept skew none): then a shared model",
         "clients with several times the rows: then each alone"),
    )  # fmt: skip


def _few_classes(f: Facts, norms: bool) -> Choice | None:
    if not f.present("label") or f.mix > FEW_CLASSES:
        return None
    why = (
        f"clients have effectively {f.mix * f.classes:.1f} of {f.classes} classes each (label skew "
        f"{f.strength['label']:.2f}, {f.verdict['label']}): each one's task is small and its own, and a model for all "
        "classes is worse at it than its own"
    )
    return Choice(
        "apfl", "alone", (why, "a model of one's own, which takes from the shared one what helps while both learn"),
        "where tasks are this small it is hardly beaten, and costs no traffic",
        (f"clients with more than {FEW_CLASSES:.0%} of the classes each: then one model, mixed in by each client",),
    )  # fmt: skip


def _own_features(f: Facts, norms: bool) -> Choice | None:
    """Features look different at each client, and what they tell there the others' rows do not."""
    if f.strength["feature"] < STRONG or missed(f) < BEYOND:
        return None
    assert f.own is not None
    why = (
        f"features differ (feature skew {f.strength['feature']:.2f}, {f.verdict['feature']}), and {missed(f):.0%} of "
        "what they tell of the labels at a client, the others' rows do not tell there"
    )
    changes = (
        f"features that tell the same everywhere (under {BEYOND:.0%} missed): then one model, mixed in by each client",
    )
    if norms:
        return Choice(
            "fedper_fedbn", "alone", (why, "normalisation layers and heads stay and translate; the rest is shared"),
            "it shares nothing that would have to be translated", changes,
        )  # fmt: skip
    if f.own >= EASY:
        return Choice(
            "apfl", "alone", (why, f"a client's own rows tell {f.own:.0%} of the way from chance to certainty: a "
            "model of its own learns, and takes from the shared one what helps"),
            "a client's own rows tell nearly all", (*changes, "a model with normalisation layers: then these stay"),
        )  # fmt: skip
    return Choice(
        "fedper", "apfl", (why, f"a client's own rows tell only {f.own:.0%} of the way from chance to certainty: "
        "seeing must be learnt together, under heads that stay"),
        "a model of one's own, mixed with the shared one",
        (*changes, "a model with normalisation layers: then these stay"),
    )  # fmt: skip


def _features_apart(f: Facts, norms: bool) -> Choice | None:
    if not norms or f.strength["feature"] < STRONG:
        return None
    why = (
        f"features differ (feature skew {f.strength['feature']:.2f}, {f.verdict['feature']}) and the model has "
        "normalisation layers, which stay at their clients and take the difference off"
    )
    if f.present("label"):
        label = f"labels differ too (label skew {f.strength['label']:.2f}, {f.verdict['label']}), so heads stay as well"
        return Choice(
            "fedper_fedbn", "fedbn", (why, label), "the same with one head for all",
            ("labels in the same mix everywhere: then one head for all (fedbn)",
             "features in the same units and ranges everywhere: then one model, mixed in by each client"),
        )  # fmt: skip
    return Choice(
        "fedbn", "fedper_fedbn", (why, "labels come in the same mix everywhere, so one head serves all"),
        "the same with heads that stay",
        ("labels in other mixes: then heads stay too", "features in the same units and ranges everywhere: then FedAvg"),
    )  # fmt: skip


def _differ(f: Facts, norms: bool) -> Choice | None:
    """Something differs, and not so much that the shared model does not help."""
    kinds = [k for k in ("label", "feature", "quantity", "time") if f.present(k)]
    if not kinds:
        return None
    told = ", ".join(
        f"{k} skew {f.strength[k]:.2f} ({f.verdict[k]})" for k in sorted(kinds, key=lambda k: -f.strength[k])
    )
    why = f"clients differ ({told}), and what features mean is the same, so that all rows help all"
    how = (
        f"a median of {f.rows:.0f} different rows a client: each mixes in as much of its own model as rows held out say"
    )
    changes = ["no skew at all: then FedAvg"]
    if f.present("label") and f.classes > 2:
        changes.append(
            f"under {FEW_CLASSES:.0%} of the classes at each client (now {f.mix:.0%}): then a model each (apfl)"
        )
    if f.present("feature") and not norms:
        changes.append("a model with normalisation layers, if features differ strongly: then these stay (fedbn)")
    runner = "fedper_fedbn" if norms and f.present("feature") else "fedper" if f.present("label") else "fedavg_ft"
    return Choice("interpolation", runner, (why, how), METHODS[runner].good, tuple(changes))


def _alike(f: Facts) -> Choice:
    """Nothing differs. Some clients may be tiny or have one class all the same; where most are tiny they need each
    other all the more, and one model."""
    tiny = sum(c.tiny for c in f.clients)
    own_needed = any(c.one_class for c in f.clients) or 0 < tiny <= len(f.clients) / 2
    why = "no skew beyond what random clients of these sizes would show: one model for all sees the most rows"
    if own_needed:
        return Choice(
            "interpolation", "fedavg", (why, "some clients are tiny or have one class, and are fitted at the end"),
            "the same without the fitting", ("enough rows of all classes at every client: then FedAvg",),
        )  # fmt: skip
    return Choice(
        "fedavg", "interpolation", (why, "personalising would give that away: nearly IID data get FedAvg"),
        "it asks rows held out, and does no harm where they say no", ("any skew: `fedroute profile` names it",),
    )  # fmt: skip
