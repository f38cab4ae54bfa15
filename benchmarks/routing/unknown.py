"""`python -m benchmarks.routing.unknown [--seeds N]`: whether queries of a client that was left out are turned down.

One client after the other is left out of a set; threshold and distances come from the others' training and validation
rows. A line for each: the share turned down of the others' test rows (mean and largest over splits), of all rows of the
one left out (mean and smallest), and, of images, of noise and of inverted test images."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.randomness import generator
from fedroute.router.abstain import fit_abstain
from fedroute.router.inputs import RouterInput
from fedroute.router.lda import fit_lda
from fedroute.router.scores import Scores
from fedroute.router.sums import Sums

ALPHA = 0.05


class Way(NamedTuple):
    name: str
    input: tuple[str, ...]
    using: str = "distance"


WAYS = {
    4: (
        Way("distance in style and histogram", ("style", "histogram")),
        Way("distance in style", ("style",)),
        Way("density ratio of the router", ("style", "histogram"), "ratio"),
        Way("energy of the router", ("style", "histogram"), "energy"),
    ),
    2: (Way("distance in columns", ("columns",)), Way("density ratio of the router", ("columns",), "ratio")),
}


def without(f: Federation, out: int) -> Federation:
    """The federation as if that client had never been there."""
    kept = [i for i in range(len(f.clients)) if i != out]
    parts: dict[str, Any] = {name: tuple(getattr(f, name)[i] for i in kept) for name in ("train", "validation", "test")}
    return replace(f, clients=tuple(f.clients[i] for i in kept), **parts)


def refused(f: Federation, way: Way, foreign: dict[str, Tensor]) -> dict[str, float]:
    """Of the test rows of all clients ("known") and of each of `foreign`, the share turned down."""
    read = RouterInput.of(way.input, None, {}, f)
    sums = [Sums.of(read.read(f.x[rows])) for rows in f.train]
    posterior, n = fit_lda(Sums.together(sums)), len(f.clients)

    def seen(x: Tensor) -> tuple[Tensor, Scores]:
        z = read.read(x)
        return z, Scores(posterior.logits(z), posterior.prior, torch.zeros(len(z), n, 0, dtype=torch.float64))

    owner = torch.cat([torch.full((len(rows),), i) for i, rows in enumerate(f.validation)])
    a = fit_abstain(*seen(f.x[torch.cat(f.validation)]), owner, sums, alpha=ALPHA, using=[way.using])
    queries = {"known": f.x[torch.cat(f.test)], **foreign}
    return {name: float(a.refuses(*seen(x)).double().mean()) for name, x in queries.items()}


def foreign_to(whole: Federation, f: Federation, out: int, seed: int) -> dict[str, Tensor]:
    parts = (whole.train, whole.validation, whole.test)
    found = {"left out": whole.x[torch.cat([part[out] for part in parts])]}
    if whole.x.ndim == 4:
        noise = torch.randint(0, 256, (500, *whole.x.shape[1:]), generator=generator(seed, "noise"), dtype=torch.uint8)
        found |= {"noise": noise, "inverted": 255 - f.x[torch.cat(f.test)]}
    return found


def lines(spec: Any, seeds: int) -> Iterator[str]:
    wholes = [load_federation(spec, seed=seed).as_queries() for seed in range(seeds)]
    for way in WAYS[wholes[0].x.ndim]:
        for out, client in enumerate(wholes[0].clients):
            found = []
            for seed, whole in enumerate(wholes):
                f = without(whole, out)
                found.append(refused(f, way, foreign_to(whole, f, out, seed)))
            yield row(way.name, client, found)


def row(way: str, client: str, found: Sequence[dict[str, float]]) -> str:
    by = {name: [r[name] for r in found] for name in found[0]}
    mean = {name: sum(v) / len(v) for name, v in by.items()}
    shares = [f"{mean['known']:.3f} ({max(by['known']):.3f})", f"{mean['left out']:.3f} ({min(by['left out']):.3f})"]
    shares += [f"{v:.3f}" for name, v in mean.items() if name not in ("known", "left out")]
    return f"| {way} | {client} | " + " | ".join(shares) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing.unknown", description=__doc__)
    parser.add_argument("sets", nargs="*", default=["digits4", "heart4", "gas_drift"], help="known sets, by name")
    parser.add_argument("--seeds", type=int, default=5, help="splits")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.sets:
        print(
            f"\n{name}\n| score | left out | known (largest) | left out (smallest) | noise | inverted |\n|{'---|' * 6}"
        )
        for line in lines(f"registry:{name}", options.seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
