"""`python -m benchmarks.replications [NAME ...] [--seeds N] [--quick]`; without a name it lists the settings."""

import argparse
from importlib import import_module

import torch

from benchmarks.replications.measure import run_setting, save
from benchmarks.replications.setting import Setting
from fedroute.errors import InputError

NAMES = (
    "synthetic",
    "two_labels",
    "fedbn_digits",
    "both_skews",
    "scaffold_sampled",
    "scaffold_cifar10",
    "near_iid",
    "niid_bench",
    "pfllib",
)


def parts_of(name: str) -> tuple[Setting, ...]:
    """The settings of one replication."""
    found: tuple[Setting, ...] = import_module(f"benchmarks.replications.{name}").PARTS
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replications", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--seeds", type=int, help="seeds, in the place of the setting's own number")
    parser.add_argument("--quick", action="store_true", help="one seed and few rounds: shows that it runs, no more")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no setting {min(unknown)!r}; take one of {', '.join(NAMES)}")
    if not options.names:
        for name in NAMES:
            for part in parts_of(name):
                print(f"{name:<17} {part.name}: {part.about}")
    torch.set_num_threads(1)
    for name in options.names:
        done = []
        for part in parts_of(name):
            print(f"{name}, {part.name}: {part.about}")
            for text in part.differs:
                print(f"  differs: {text}")
            try:
                done.append(run_setting(part, options.seeds, options.quick, lambda text: print(text, flush=True)))
            except InputError as e:
                print(f"  {e}")
                return 2
            print(f"  {done[-1]['seconds']} s, {done[-1]['seeds']} seeds")
        print(f"written: {save(name, done)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
