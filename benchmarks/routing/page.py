"""docs/routing-results.md, from the results: `python -m benchmarks.routing.page` writes it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.routing.evaluate import of
from benchmarks.routing.methods import METHODS
from benchmarks.routing.settings import SETTINGS
from fedroute.compare.statistics import over_seeds
from fedroute.router.style import style
from fedroute.router.sums import Sums

RESULTS = Path(__file__).parents[1] / "results" / "routing"
PAGE = Path(__file__).parents[2] / "docs" / "routing-results.md"
PLANNED = ("cifar10", "shards", "heart4", "ist_stroke", "digits4")  # the others need data that a user has
BASELINES = ("vote", "mean", "confidence", "best_single", "random", "global", "oracle")
SHOWN = ("density", "posterior", "consensus", "mixture", "top_mixture")
HEAD = """# Routing, measured

Made by `python -m benchmarks.routing.page` from `benchmarks/results/routing/`; the programs are in
`benchmarks/routing/`. A query comes from outside, without the name of its client; **system accuracy** is the share of
all clients' test rows that are then answered rightly, **oracle** is the same where every query is answered by its own
client's model, which is the clients' average accuracy. Every router and rule is applied to one training of each method;
"chosen" is the router and rule that did best on validation rows, which no training and no fit of a router saw, and its
number is of test rows. All numbers are percent; intervals are at 95 % over seeds. Of the published partition test rows
are the same for every seed, so that its intervals are of training alone; 18,004 test rows add a standard error of 0.4
points. FedPer's models are those of `detached`, bit for bit (`fedroute check feddrm`).

"""


def results() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Setting -> method -> the results of its seeds."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(RESULTS.glob("*-*-*.json")):
        one = json.loads(path.read_text(encoding="utf-8"))
        found[one["setting"]][one["method"]].append(one)
    return found


def page() -> str:
    """The whole page."""
    found = results()
    parts = [HEAD]
    for setting in SETTINGS:
        if setting in found:
            parts.append(section(setting, found[setting]))
    parts += [upload_section(), missing_section(found)]
    if (speed := RESULTS / "speed.json").exists():
        parts.append(speed_section(json.loads(speed.read_text(encoding="utf-8"))))
    return "\n".join(parts)


def section(setting: str, methods: dict[str, list[dict[str, Any]]]) -> str:
    """One federation: its methods, then all routers of the method that does best by validation."""
    first = next(iter(methods.values()))[0]
    rows, s = first["rows"], SETTINGS[setting]
    ratio = 0.0 if setting.startswith("cifar10") else rows["test"] / rows["train"]
    t = s.training
    steps = f"{t['local_steps']} steps" if "local_steps" in t else f"{t['local_epochs']} epochs"
    columns = (
        "method", "seeds", "oracle", "the paper's rule on the branch", "consensus on the branch",
        "chosen router and rule", "chosen", "chosen, mean of clients", "chosen with the global model", "vote", "mean",
        "global",
    )  # fmt: skip
    lines = [
        f"## {setting}", "", f"{s.about}. {first['clients']} clients; {rows['train']:,} rows to train on, "
        f"{rows['validation']:,} to choose by, {rows['test']:,} to test; {t['rounds']} rounds of {steps}, batch "
        f"{t['batch_size']}, lr {t['lr']} {t['schedule']}, momentum {t['momentum']}, weight decay {t['weight_decay']}.",
        "", f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns),
    ]  # fmt: skip
    for method in METHODS:
        if method in methods:
            lines.append(_method(method, methods[method], ratio))
    best = max(
        (m for m in methods if m != "fedavg"), key=lambda m: _mean(_chosen(methods[m], "validation")), default=""
    )
    if best:
        lines += ["", _verdict(methods[best], best, ratio)]
        lines += ["", f"Every router on `{best}`, and what rules make of it:", "", *_routers(methods[best], ratio)]
    return "\n".join([*lines, ""])


def _method(method: str, runs: list[dict[str, Any]], ratio: float) -> str:
    def shown(rule: str, router: str | None = None) -> str:
        return _estimate(_accuracies(runs, router or next(iter(runs[0]["routers"])), rule), ratio)

    names = "; ".join(sorted({f"{r['chosen']['alone']['router']}: {r['chosen']['alone']['rule']}" for r in runs}))
    branch = [shown(rule, "branch") if "branch" in runs[0]["routers"] else "-" for rule in ("density", "consensus")]
    chosen = [_estimate(_chosen(runs, what), ratio) for what in ("test", "macro")]
    chosen.append(_estimate([r["chosen"]["with global"]["test"] for r in runs], ratio))
    if method == "fedavg":
        names, chosen = "none: one model for all", ["-", "-", "-"]
    cells = [shown("oracle"), *branch, names, *chosen, *map(shown, ("vote", "mean", "global"))]
    return f"| `{method}` | {len(runs)} | " + " | ".join(cells) + " |"


def _verdict(runs: list[dict[str, Any]], method: str, ratio: float) -> str:
    """The chosen router and rule against the baseline that does best on these test rows."""
    first = next(iter(runs[0]["routers"]))
    rivals = {r: _accuracies(runs, first, r) for r in BASELINES if r != "oracle"}
    best = max(rivals, key=lambda r: _mean(rivals[r]))
    both = [r for r in runs if _accuracies([r], first, best)]  # a seed may lack the global model
    gains = [a - b for a, b in zip(_chosen(both, "test"), _accuracies(both, first, best), strict=True)]
    e = over_seeds([100 * g for g in gains], ratio)
    if not e.interval:
        says, gain = "Of one seed nothing is known of chance", f"{e.mean:+.1f} points"
    else:
        low, high = e.interval
        says = (
            "Routing pays here" if low > 0 else "Routing loses here" if high < 0 else "Routing is not shown to pay here"
        )
        gain = f"{e.mean:+.1f} points [{low:.1f}, {high:.1f}]"
    return f"{says}: by validation rows `{method}` is best; chosen, it is {gain} from the best baseline, {best}."


def _routers(runs: list[dict[str, Any]], ratio: float) -> list[str]:
    lines = ["| router | client named rightly | " + " | ".join(SHOWN) + " |", "|" + " --- |" * (2 + len(SHOWN))]
    names = {n: sum(n in r["routers"] for r in runs) for r in runs for n in r["routers"]}
    for name in sorted(names, key=lambda n: -_mean(_accuracies(runs, n, "consensus"))):
        client = _estimate([r["routers"][name]["client_accuracy"] for r in runs if name in r["routers"]], ratio)
        few = "" if names[name] == len(runs) else f" ({names[name]} of {len(runs)} seeds)"
        cells = [_estimate(_accuracies(runs, name, rule), ratio) for rule in SHOWN]
        lines.append(f"| {name}{few} | {client} | " + " | ".join(cells) + " |")
    return lines


def missing_section(found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """What was planned and has not been run."""
    lines = []
    for setting in PLANNED:
        methods = found.get(setting, {})
        lack = [f"`{m}` {3 - n}" for m in METHODS if (n := len(methods.get(m, []))) < 3]
        if lack:
            lines.append(f"- {setting}: {', '.join(lack)}")
    return "\n".join(
        [
            "## Not run yet",
            "",
            "Of three seeds of each method there lack:",
            "",
            *(lines or ["Nothing: all that was planned is here."]),
            "",
        ]
    )


def upload_section() -> str:
    """What a client sends for a router, from the sizes of what is summed."""
    width, clients = style(torch.zeros(1, 3, 32, 32)).shape[1], 8

    def sums(d: int) -> int:
        nothing = torch.zeros(1, dtype=torch.float64)
        return Sums(nothing, nothing.expand(1, d), torch.zeros(0)).upload_bytes()

    once, each = sums(width) / 1e6, 8 * (clients * (width + 1) + 1) / 1e3
    rows = [
        ("lda, ridge on style", f"{once:.2f} MB, once: count, sum and second moments of {width} numbers"),
        ("lda, ridge on 2000 random features of it", f"{sums(2000) / 1e6:.1f} MB, once"),
        ("softmax on style", f"{once:.2f} MB once, then {each:.1f} kB in each of at most 100 rounds"),
        ("counts of labels", "80 bytes, once"),
    ]
    return "\n".join([
        "## What a router costs a client", "",
        f"On CIFAR-10, {clients} clients, numbers of 8 bytes; a round of training sends 4.3 MB of weights.", "",
        "| router | a client sends |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in rows), "",
    ])  # fmt: skip


def speed_section(found: dict[str, Any]) -> str:
    """What a round costs."""
    ours, theirs = found["ours"], found["stand_in"]
    return "\n".join([
        "## What a round costs", "",
        "One round of FedDRM on cifar10 and every rule on all 18,004 test rows, seconds of one core in the same run; "
        f"{found['share']:.0%} of it was computed. The stand-in is ours and does the work of the paper's public code: "
        "PIL for each image, weights through files, nine models for each test image.", "",
        "| | training | evaluation | round |", "| --- | --- | --- | --- |",
        *(f"| {name} | {one['training']:.1f} | {one['evaluation']:.1f} | {one['round']:.1f} |"
          for name, one in (("fedroute", ours), ("stand-in", theirs))), "",
        f"The stand-in takes {found['ratio']:.1f} times as long. (The public code itself was timed once at "
        f"{found['published_code']} s a round, on a core that had nothing else to do.)", "",
    ])  # fmt: skip


def _chosen(runs: Iterable[dict[str, Any]], what: str) -> list[float]:
    return [r["chosen"]["alone"][what] for r in runs]


def _accuracies(runs: Iterable[dict[str, Any]], router: str, rule: str) -> list[float]:
    """Of the seeds that have it."""
    found = (of(r["routers"][router], "test", rule) for r in runs if router in r["routers"])
    return [v for v in found if v is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("-inf")


def _estimate(values: Sequence[float], ratio: float) -> str:
    """The mean in percent, with its interval where there are several seeds."""
    if not values:
        return "-"
    e = over_seeds([100 * v for v in values], ratio)
    return f"{e.mean:.1f}" + (f" [{e.interval[0]:.1f}, {e.interval[1]:.1f}]" if e.interval else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
