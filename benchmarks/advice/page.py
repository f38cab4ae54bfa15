"""docs/advice.md from the results: `python -m benchmarks.advice page`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.advice.score import Found, Outcome, advice_of, always, labels_of, mean_regret, outcome, proved, results
from fedroute.advise import rules
from fedroute.advise.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs" / "advice.md"
NOTES = Path(__file__).parent / "notes.md"
HALVES = ("design", "held out")
SUMMARY = "| taken | mean regret | within 1 point | within 1 point or inside the interval | worst |"


def write_page() -> Path:
    DOCS.write_text(page(), encoding="utf-8")
    return DOCS


def page() -> str:
    """How the advice was judged, the numbers of both halves, every federation, and what is behind the failures."""
    parts = [_head(), NOTES.read_text(encoding="utf-8").rstrip()]
    for half in HALVES[::-1]:
        files = results(half)
        if files:
            parts += [f"## The {half} half: {len(files)} federations", summary(files), table(files)]
    return "\n\n".join(parts) + "\n"


def judged(files: Sequence[Found]) -> dict[str, list[Outcome]]:
    """What is taken -> how that comes out in each federation: the advice, the advice after its proof, each method
    always."""
    advice = [advice_of(f) for f in files]
    return {
        "the advice": [outcome(f, labels(a)) for f, a in zip(files, advice, strict=True)],
        "the advice, proven": [outcome(f, proved(f, a)) for f, a in zip(files, advice, strict=True)],
    } | {f"always `{label}`": found for label, found in always(files).items()}


def labels(advice: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Seed -> the advised label."""
    return {seed: a["label"] for seed, a in advice.items()}


def summary(files: Sequence[Found]) -> str:
    """A line for each way to choose, the advice first, then by mean regret."""
    of = judged(files)
    names = [k for k in of if not k.startswith("always")]
    names += sorted((k for k in of if k.startswith("always")), key=lambda k: mean_regret(of[k]))
    return "\n".join([SUMMARY, "| --- " * 5 + "|", *(_line(name, of[name]) for name in names)])


def _line(name: str, found: Sequence[Outcome]) -> str:
    n, worst = len(found), max(found, key=lambda o: o.regret)
    within, near = sum(o.within for o in found), sum(o.near for o in found)
    shares = f"{within} of {n} ({within / n:.0%}) | {near} of {n} ({near / n:.0%})"
    return f"| {name} | {100 * mean_regret(found):.2f} | {shares} | {100 * worst.regret:.1f} ({worst.name}) |"


def table(files: Sequence[Found]) -> str:
    """A line for each federation."""
    head = (
        "| federation | differs in | advised | accuracy | best in hindsight | accuracy | regret | interval | "
        "| after the proof |"
    )
    lines = []
    for f in sorted(files, key=lambda f: (f["kind"], f["name"])):
        advice = advice_of(f)
        o, after = outcome(f, labels(advice)), outcome(f, proved(f, advice))
        best = outcome(f, o.best)
        verdict = "within a point" if o.within else "inside the interval" if o.near else "**missed**"
        lines.append(
            f"| {f['name']} | {f['kind']} | {_taken(o)} | {100 * o.accuracy:.1f} | {o.best} | "
            f"{100 * best.accuracy:.1f} | {100 * o.regret:.1f} | [{100 * o.low:.1f}, {100 * o.high:.1f}] | {verdict} | "
            f"{_taken(after)}, {100 * after.regret:.1f} |"
        )
    return "\n".join([head, "| --- " * 10 + "|", *lines])


def _taken(o: Outcome) -> str:
    return ", ".join(dict.fromkeys(o.chosen.values()))


def _head() -> str:
    files = [f for half in HALVES for f in results(half)]
    seeds = sorted({len(f["seeds"]) for f in files})
    methods = sorted({len(labels_of(f)) for f in files})
    counted = {
        "federations": len(files),
        "seeds": "-".join(map(str, seeds)),
        "methods": f"{methods[0]} to {methods[-1]}" if len(methods) > 1 else str(methods[0]),
    }
    run = {label for f in files for label in labels_of(f)}
    labels = sorted([k for k in METHODS if k in run], key=lambda k: METHODS[k].norms)
    counted |= {"names": ", ".join(labels), "with_norms": str(sum(METHODS[k].norms for k in labels))}
    missing = ", ".join(f"`{k}`" for k in METHODS if k not in run)
    counted["missing"] = f"Not run, for time: {missing}. " if missing else ""
    numbers = {"few": rules.FEW_CLASSES, "strong": rules.STRONG, "beyond": rules.BEYOND, "easy": rules.EASY}
    return HEAD.format(**counted, **numbers)


HEAD = """# What to train, and is the advice right?

```bash
fedroute advise bundled:digits
fedroute advise examples/digits.yaml --prove --seeds 1 --rounds 4
fedroute advise bundled:digits --out advice.html --lang zh
fedroute tune examples/digits.yaml --out tuned --trials 2 --over lr --set training.rounds=2
```

`advise` profiles the federation and names a method, what stays with the clients, weighting, sampling, schedule,
whether a router is worth it, the runner-up, clients whose data must be mended first, and clients that need a model of
their own; each with the numbers of the profile that say so, and with what would change its mind. With `--prove` the
advised method, the runner-up, FedAvg and each client alone run head to head on validation rows, at most 20 rounds
each, and the advice is confirmed, left open or overturned. `--out` writes it as a page, above the profile it rests on,
and `--lang` says it in English or Chinese. `tune` (`pip install 'fedroute[tune]'`) then tries learning rate, steps,
the method's numbers and private roles, judged on validation rows; its `best.yaml` is a config that `run` takes, and
the same command again goes on. Test rows are taken out before a proof or a trial begins.

## The rules

The first that fits:

1. Features mean different labels at different clients (concept skew): heads stay, and normalisation layers where the
   model has some (`fedper`).
2. A client has effectively {few:.0%} of the classes or fewer: a model each that takes from the
   shared one what helps (`apfl`).
3. Feature skew of {strong} or more, and {beyond:.0%} or more of what features tell of the labels at a client, the
   others' rows do not tell: heads and normalisation layers stay; without such layers `apfl` where a client's own rows
   tell {easy:.0%}, else `fedper`.
4. Feature skew of {strong} or more and a model with normalisation layers: `fedbn`, and heads stay as well where
   labels differ.
5. Any other skew: one model, of which each client mixes in as much as its own held-out rows say (`interpolation`).
6. None: `fedavg`; `interpolation` where some clients are tiny or have one class.

## How it was judged

Made by `python -m benchmarks.advice page` from the results in `benchmarks/advice/results`. {federations}
federations of real data, small on purpose; for each, {methods} methods ({names}; the last {with_norms} where the
model has normalisation layers) at one budget, mostly 25 rounds of an epoch, with {seeds} seeds, each seed with a
split, and where clients are made, a partition of its own. {missing}The advice saw training and validation rows;
accuracy is that of the clients' own models on their test rows, each client counting once. Regret is how far, in
points, a choice is behind the method that turned out best on those very test rows, in hindsight: nobody could have
known it, and of {methods} methods on some hundred rows the best one is partly lucky. The interval is of the same
rows; a regret whose interval holds zero is not told apart from none. `always fedbn` and the like are without
normalisation layers what they are called without "bn". "Proven" means: in each federation and seed the four of the
proof, by the validation rows of that one seed's runs.

Half of the federations served to make the rules. The other half was set aside by name (in each kind, in the order of
the names' SHA-256, every second one) and looked at once, when the rules were done."""
