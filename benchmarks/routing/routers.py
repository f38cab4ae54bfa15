"""Routers fitted to training rows, each to the logits of q(client | x) of every row."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.routing.rows import Rows, Said
from fedroute.router.cells import fit_cells, sums_by_label
from fedroute.router.lda import fit_lda
from fedroute.router.random_features import RandomFeatures
from fedroute.router.ridge import fit_ridge
from fedroute.router.softmax import fit_softmax
from fedroute.router.sums import Sums

CHUNK = 8192
Read = Callable[[Tensor], Tensor]  # rows (B,) -> what a router reads of them, (B, D)


class Fitted(Protocol):
    """A posterior over clients."""

    def logits(self, z: Tensor) -> Tensor: ...


def scaled(z: Tensor, rows: Rows) -> Tensor:
    """Standardised by the training rows of all clients, and cut off at ten deviations."""
    train = z[torch.cat(rows.f.train)]
    deviation = train.std(0, correction=0)
    deviation = torch.where(deviation > 1e-9 * (1 + train.mean(0).abs()), deviation, torch.ones_like(deviation))
    return ((z - train.mean(0)) / deviation).clamp(-10, 10)


def lifted(z: Tensor, count: int, width: float, seed: int) -> Read:
    """`count` random features of the rows, made when they are asked for."""
    features = RandomFeatures.draw(z.shape[1], count, width, seed, "outside")
    return lambda rows: features(z[rows])


def sums(read: Read, rows: Rows) -> Sums:
    return Sums.together(
        Sums.together(
            [Sums.of(torch.zeros(0, read(r[:1]).shape[1])), *map(Sums.of, map(read, r.split(CHUNK)))]
        ).pooled()
        for r in rows.f.train
    )


def by_label(read: Read, rows: Rows) -> Sums:
    labels = len(rows.f.labels)
    return Sums.together(sums_by_label(read(r), rows.f.y[r], labels) for r in rows.f.train)


def logits(posterior: Fitted, read: Read, rows: Rows) -> Tensor:
    """(R, N)."""
    return torch.cat([posterior.logits(read(r)) for r in torch.arange(len(rows.f.x)).split(CHUNK)])


def outside(rows: Rows, seed: int, big: bool) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Routers that need no model, not yet fitted. big: of many rows, where random features are thousands; since they
    take minutes, and lose, the first seed alone has them."""
    z = scaled(rows.outside, rows)
    kind = "style" if rows.f.x.ndim == 4 else "columns"
    count = 2000 if big else 500

    def plain(r: Tensor) -> Tensor:
        return z[r]

    wild = lifted(z, count, 0.5, seed)

    def both(r: Tensor) -> Tensor:
        return torch.cat([z[r], wild(r) * (count / 2) ** 0.5], 1)

    yield f"{kind} lda", lambda: _lda(plain, rows)
    yield f"{kind} ridge", lambda: logits(fit_ridge(sums(plain, rows)), plain, rows)
    yield f"{kind} softmax", lambda: by_softmax(plain, rows)
    yield f"{kind} cells", lambda: _cells(plain, rows)
    if big and seed:
        return
    yield f"{kind} ridge on {count} random features", lambda: logits(fit_ridge(sums(wild, rows)), wild, rows)
    yield f"{kind} lda on {count} random features", lambda: _lda(wild, rows)
    yield f"{kind} softmax with {count} random features", lambda: by_softmax(both, rows, rounds=60)


def by_softmax(read: Read, rows: Rows, rounds: int = 100) -> Tensor:
    fit = fit_softmax([read(r) for r in rows.f.train], sums=sums(read, rows), rounds=rounds)
    return logits(fit.posterior, read, rows)


def inside(rows: Rows, s: Said) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Routers that read the model, not yet fitted."""
    if s.branch is not None:
        branch = s.branch
        yield "branch", lambda: branch
    z, d = scaled(rows.outside, rows), scaled(s.deep, rows)
    kind = "style" if rows.f.x.ndim == 4 else "columns"
    inputs = {"deep": d, f"deep and {kind}": torch.cat([d, z], 1)}
    if s.body is not s.deep:
        inputs["body"] = scaled(s.body, rows)
    for name, u in inputs.items():
        for kind_of_fit, fit in (("lda", _lda), ("cells", _cells), ("softmax", by_softmax)):
            if (name, kind_of_fit) != ("body", "softmax"):
                yield f"{name} {kind_of_fit}", partial(fit, u.__getitem__, rows)


def _lda(read: Read, rows: Rows) -> Tensor:
    return logits(fit_lda(sums(read, rows)), read, rows)


def _cells(read: Read, rows: Rows) -> Tensor:
    return logits(fit_cells(by_label(read, rows), len(rows.f.labels)), read, rows)


def by_labels(s: Said, rows: Rows) -> Tensor:
    """(R, N), log of what a row's label says of whose it is: sum over labels k of p(k | x) pi_ik / pi_k, with pi_ik the
    shares of labels at client i, pi_k those of all. p is a discriminant analysis of labels in closed form on what the
    head is given. Every client uploads its counts of labels, besides sums."""
    f, z = rows.f, scaled(s.deep, rows)
    counts = f.label_counts.double() + 0.5
    own, whole = counts / counts.sum(1, keepdim=True), counts.sum(0) / counts.sum()
    all_rows = torch.cat(f.train)
    p = fit_lda(sums_by_label(z[all_rows], f.y[all_rows], len(f.labels))).logits(z).log_softmax(1)
    return (p[:, None, :] + (own / whole).log()).logsumexp(2)


def kept(folder: Path, made: Iterator[tuple[str, Callable[[], Tensor]]]) -> dict[str, Tensor]:
    """Name -> logits (R, N), from the folder or fitted now and kept there."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, fit in made:
        path = folder / f"{name.replace(' ', '-')}.safetensors"
        if not path.exists():
            save_file({"logits": fit().contiguous()}, path)
        found[name] = load_file(path)["logits"]
    return found
