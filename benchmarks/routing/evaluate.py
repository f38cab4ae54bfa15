"""Every rule on every router of a training, from one pass over its rows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.routing.routers import by_labels, inside, kept, outside
from benchmarks.routing.rows import Rows, said
from benchmarks.routing.settings import SETTINGS
from benchmarks.routing.train import trained
from fedroute.router.calibrate import fit as temperatures
from fedroute.router.measure import best_single, correct, routing
from fedroute.router.rules import RULES, decide
from fedroute.router.scores import Scores

CALIBRATED = "_calibrated"
CHOSEN_AMONG = [r for r, rule in RULES.items() if not rule.baseline and not {"arrival", "labels"} & {*rule.needs}]


def evaluate(
    setting: str, method: str, seed: int, cache: Path, rounds: int | None = None, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """As JSON: what each rule makes of each router; `chosen`: the router and rule that do best on validation rows. The
    global model is that of fedavg at the same seed, where that was evaluated before."""
    f = SETTINGS[setting].federation(seed, cache)
    rows = Rows(f, cache, setting)
    t = trained(setting, method, seed, f, cache, rounds, say)
    model = said(t, f)
    common = model.heads[:, 0] if model.heads.shape[1] == 1 else None
    shared = cache / f"{setting}-fedavg-{seed}-common.safetensors"
    if common is None and shared.exists():
        common = load_file(shared)["common"]
    elif common is not None:
        save_file({"common": common.contiguous()}, shared)
    found = kept(cache / f"{setting}-{seed}-outside", outside(rows, seed, big=len(f.x) > 20_000))
    found |= kept(cache / f"{setting}-{method}-{seed}-inside", inside(rows, model))
    if model.heads.shape[1] > 1 and len(f.labels) > 1:
        told = by_labels(model, rows)
        likely = [n for n in found if n in ("style softmax", "style lda", "columns softmax", "columns lda")]
        found |= {f"{n} and counts of labels": found[n] + told for n in likely}
    sizes = f.training_sizes().double()
    heads = model.heads.expand(-1, len(f.clients), -1)
    result: dict[str, Any] = {
        "setting": setting, "method": method, "seed": seed, "clients": len(f.clients),
        "rows": {p: int(f.sizes(p).sum()) for p in ("train", "validation", "test")},
        "seconds": t.seconds, "lam": t.lam, "routers": {},
    }  # fmt: skip

    def scores(z: Tensor, at: Tensor) -> Scores:
        return Scores(z[at].double(), sizes / sizes.sum(), heads[at], None if common is None else common[at])

    parts = {p: rows.queries(p) for p in ("validation", "test")}
    for name, z in found.items():
        held, test = (scores(z, parts[p][0]) for p in ("validation", "test"))
        cool = temperatures(held, *parts["validation"][1:])
        one: dict[str, Any] = {}
        for how, v, s in (("", held, test), (CALIBRATED, cool.apply(held), cool.apply(test))):
            best = best_single(v, parts["validation"][2])
            whole = routing(s, *parts["test"][1:], best=best, seed=seed)
            one[f"validation{how}"] = _in_order(_validation(v, *parts["validation"][1:]))
            one[f"test{how}"] = _in_order(whole["system_accuracy"])
            one[f"macro{how}"] = _in_order(whole["macro"])
            if not how:
                one |= {k: whole[k] for k in ("client_accuracy", "client_accuracy_macro", "calibration_error")}
                say(f"{setting} {method} {seed}, {name}: {_line(whole)}")
        result["routers"][name] = one
    result["chosen"] = {"alone": chosen(result["routers"], "_global"), "with global": chosen(result["routers"], "-")}
    return result


def _in_order(found: Mapping[str, float]) -> list[float | None]:
    """Numbers of rules in the order of RULES, which keeps the files small."""
    return [found.get(rule) for rule in RULES]


def of(router: Mapping[str, Any], what: str, rule: str) -> float | None:
    """One number out of a router's."""
    number: float | None = router[what][[*RULES].index(rule)]
    return number


def _validation(s: Scores, owner: Tensor, y: Tensor) -> dict[str, float]:
    """rule -> accuracy on validation rows, of the rules that may be chosen."""
    there = [r for r in CHOSEN_AMONG if "common" not in RULES[r].needs or s.common is not None]
    return {rule: float(correct(decide(rule, s).answer, y).mean()) for rule in there}


def chosen(routers: Mapping[str, Any], without: str) -> dict[str, Any]:
    """The router and rule that do best on validation rows, of rules that do not end so; what they do on test rows."""
    accuracy, name, how, rule = max(
        (v, name, how, rule)
        for name, one in routers.items()
        for how in ("", CALIBRATED)
        for rule in CHOSEN_AMONG
        if not rule.endswith(without) and (v := of(one, f"validation{how}", rule)) is not None
    )
    router = routers[name]
    return {
        "router": name + (", calibrated" if how else ""), "rule": rule, "validation": accuracy,
        "test": of(router, f"test{how}", rule), "macro": of(router, f"macro{how}", rule),
        "client_accuracy": router["client_accuracy"],
    }  # fmt: skip


def _line(test: dict[str, Any]) -> str:
    a = test["system_accuracy"]
    shown = ("density", "posterior", "consensus", "mixture", "global", "oracle")
    return f"client {test['client_accuracy']:.3f}; " + ", ".join(f"{r} {a[r]:.4f}" for r in shown if r in a)
