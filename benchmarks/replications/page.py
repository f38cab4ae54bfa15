"""The results as the tables of docs/replications.md: `python -m benchmarks.replications.page` prints them, and with
`--write` renews the page's first table and adds a chapter for each result that has none; what is said of them stays."""

import json
import re
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.replications.measure import RESULTS
from fedroute.compare.statistics import over_seeds


def results() -> dict[str, list[dict[str, Any]]]:
    """Name of a replication -> the parts of its result, of those that ran with their whole budget."""
    files = [f for f in sorted(RESULTS.glob("*.json")) if not f.stem.endswith("-quick")]
    found = [json.loads(f.read_text(encoding="utf-8")) for f in files]
    return {f["name"]: f["parts"] for f in found}


def summary() -> str:
    """A line for each part: its first difference, published (where one source has both numbers) and ours."""
    head = "| setting | compared | published | ours | interval | seeds | rounds | command, `python -m benchmarks.` |\n"
    rows = [
        f"| {name}: {part['setting']} | {d['a']} minus {d['b']} | {_published_difference(part, d)} | "
        f"{d['ours']:+.1f} | {_interval(d)} | {part['seeds']} | {part['training']['rounds']} | `replications {name}` |"
        for name, parts in results().items()
        for part in parts
        for d in part["differences"][:1]
    ]
    return head + "| --- " * 8 + "|\n" + "\n".join(rows)


def _published_difference(part: dict[str, Any], difference: dict[str, Any]) -> str:
    of = {f"{r['method']}/{r['model']}": {p["source"]: p for p in r["published"]} for r in part["table"]}
    a, b = of[difference["a"]], of[difference["b"]]
    return "; ".join(f"{a[s]['value'] - b[s]['value']:+.1f} ({a[s]['checked']})" for s in a if s in b) or "-"


def table(part: dict[str, Any]) -> str:
    """One part as Markdown: its models, then its paired differences."""
    head = "| method | model | published, % | ours, % | interval |\n| --- | --- | --- | --- | --- |"
    rows = [
        f"| {r['method']} | {r['model']} | {_published(r['published'])} | {r['ours']:.1f} | {_interval(r)} |"
        for r in part["table"]
    ]
    pairs = [
        f"| {d['a']} minus {d['b']} | {d['ours']:+.1f} | {_interval(d)} | {_interval(_plain(d))} |"
        for d in part["differences"]
    ]
    below = "| difference, seed by seed | points | interval | plain t |\n| --- | --- | --- | --- |"
    return "\n".join([head, *rows, "", below, *pairs])


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The same difference as if seeds were independent draws: the interval that papers give."""
    return {"interval": over_seeds(row["values"], 0.0).interval}


def budget(part: dict[str, Any]) -> str:
    """The budget of a part in one line."""
    t, rows = part["training"], part["rows"]
    steps = f"{t['local_steps']} steps" if "local_steps" in t else f"{t.get('local_epochs', 1)} epochs"
    return (
        f"{part['clients']} clients, {rows['train']:,} rows to train on, {rows['test']:,} to test; "
        f"{t['rounds']} rounds of {steps}, batch {t['batch_size']}; {part['seeds']} seeds"
    )


def renewed(text: str) -> str:
    """The page with the summary of the results as they are, and a chapter for each that it lacks."""
    found = results()
    text = re.sub(r"\| setting \|.*?\n\n", lambda _: summary() + "\n\n", text, count=1, flags=re.S)
    for name, parts in found.items():
        if f"`python -m benchmarks.replications {name}`" not in text:
            text = f"{text.rstrip()}\n\n{chapter(name, parts)}"
    return text


def chapter(name: str, parts: list[dict[str, Any]]) -> str:
    """A replication as a chapter: what it is, and of each part the setting, what differs, and the table."""
    module = import_module(f"benchmarks.replications.{name}")
    about = textwrap.fill(" ".join((module.__doc__ or "").split()), 120)
    lines = [f"## {module.TITLE}", f"`python -m benchmarks.replications {name}`", about]
    for part in parts:
        differs = "\n".join(textwrap.fill(d, 120, initial_indent="- ", subsequent_indent="  ") for d in part["differs"])
        said = textwrap.fill(f"{part['about']}.", 120)
        lines += [
            f"### {part['setting']}",
            said,
            budget(part),
            "Differs from the published setting:",
            differs,
            table(part),
        ]
    return "\n\n".join(lines) + "\n"


def _published(numbers: list[dict[str, Any]]) -> str:
    return "; ".join(f"{p['value']:.2f} ({p['checked']})" for p in numbers) or "-"


def _interval(row: dict[str, Any]) -> str:
    return "[{:.1f}, {:.1f}]".format(*row["interval"]) if row["interval"] else "one value"


PAGE = Path(__file__).parents[2] / "docs" / "replications.md"

if __name__ == "__main__" and "--write" in sys.argv:
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
elif __name__ == "__main__":
    print(summary() + "\n")
    for name, parts in results().items():
        for part in parts:
            print(f"### {name}: {part['setting']}\n\n{budget(part)}\n\n{table(part)}\n")
