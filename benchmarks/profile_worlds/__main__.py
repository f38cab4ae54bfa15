"""python -m benchmarks.profile_worlds --out results.jsonl [--draws 100] [--mixtures 25] [--weak 20]: profiles every
draw of every world, a line each in the file; what is there already is not done again. Prints the table of
docs/profile.md."""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from fedroute.evaluate.wilson import wilson
from fedroute.profile.profile import profile
from fedroute.words import count
from tests.profile.worlds import KINDS, MIXTURES, world

WEAK = (0.5, 0.25)  # strengths of the skew beside that of the main table
FIRST = 1000  # seed: the draws below were looked at while the limits were set


def measure(kinds: tuple[str, ...], seed: int, strength: float) -> dict[str, Any]:
    found = profile(world(*kinds, seed=seed, strength=strength), health=False)
    return {"world": list(kinds), "seed": seed, "at": strength, "top": found.top, "parts": list(found.parts),
            "strength": {k: round(s.strength, 3) for k, s in found.skew.items()},
            "p": {k: s.p for k, s in found.skew.items()}}  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| world | draws | top diagnosis right | 95 % interval | what else was named |", "|---|---|---|---|---|"]
    for kind in KINDS:
        of = [r for r in rows if r["world"] == [kind] and r.get("at", 1.0) == 1.0]
        if of:
            right = sum(r["top"] == kind for r in of)
            more = Counter(p for r in of for p in r["parts"] if p != kind)
            said = ", ".join(f"{k} {n}" for k, n in more.most_common()) or "nothing"
            low, high = wilson(right, len(of)) or (0.0, 1.0)
            lines.append(f"| {kind} | {len(of)} | {right} | {100 * low:.1f} to {100 * high:.1f} % | {said} |")
    lines += ["", "| mixture | draws | both named | nothing else named | top |", "|---|---|---|---|---|"]
    for kinds in MIXTURES:
        of = [r for r in rows if r["world"] == list(kinds) and r.get("at", 1.0) == 1.0]
        if of:
            both = sum(set(kinds) <= set(r["parts"]) for r in of)
            only = sum(set(kinds) == set(r["parts"]) for r in of)
            tops = ", ".join(f"{k} {n}" for k, n in Counter(r["top"] for r in of).most_common())
            lines.append(f"| {' + '.join(kinds)} | {len(of)} | {both} | {only} | {tops} |")
    weak = [r for r in rows if r.get("at", 1.0) < 1]
    if weak:
        lines += ["", f"| world, weaker | {' | '.join(f'at {a:g}' for a in WEAK)} |", "|---|" + "---|" * len(WEAK)]
    for kind in KINDS[1:]:
        cells = [[r["top"] == kind for r in weak if r["world"] == [kind] and r["at"] == a] for a in WEAK]
        if all(cells):
            lines.append(f"| {kind} | {' | '.join(f'{sum(c)} of {len(c)}' for c in cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--mixtures", type=int, default=25)
    parser.add_argument("--weak", type=int, default=20)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    there = {(tuple(r["world"]), r["seed"], r.get("at", 1.0)) for r in rows}
    wanted: list[tuple[tuple[str, ...], int, float]] = [
        ((k,), FIRST + i, 1.0) for i in range(args.draws) for k in KINDS
    ]
    wanted += [(m, FIRST + i, 1.0) for i in range(args.mixtures) for m in MIXTURES]
    wanted += [((k,), FIRST + i, a) for a in WEAK for i in range(args.weak) for k in KINDS[1:]]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("a") as file:
        for one in wanted:
            if one not in there:
                rows.append(measure(*one))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    print(table(rows))
    print(count(len(rows), "draw"))


if __name__ == "__main__":
    main()
