"""`python -m benchmarks.advice run|ask|page [--seeds N] [--half design|held-out] [NAME ...]`

run: what each method makes of each federation, kept in results/, gone on with where it stopped. ask: what is advised
for each. page: the two as docs/advice.md."""

import argparse

import torch

from benchmarks.advice.federations import halves, suite
from benchmarks.advice.hindsight import ask, measure
from benchmarks.advice.page import write_page


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice", description=__doc__)
    parser.add_argument("what", choices=("run", "ask", "page"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--half", choices=("design", "held-out"))
    parser.add_argument("--first", action="store_true", help="without the methods that are run last")
    options = parser.parse_args()
    cases, half = suite(), halves()
    if unknown := set(options.names) - cases.keys():
        parser.error(f"no federation {min(unknown)!r}; there is {', '.join(cases)}")
    chosen = [n for n in options.names or cases if half[n] == (options.half or half[n]).replace("-", " ")]
    torch.set_num_threads(1)
    if options.what == "page":
        print(write_page())
        return 0
    if options.what == "ask":
        for name in chosen:
            ask(cases[name], range(options.seeds), lambda text: print(text, flush=True))
        return 0
    for seed in range(options.seeds):
        for name in chosen:
            measure(cases[name], half[name], [seed], lambda text: print(text, flush=True), not options.first)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
