"""Every way to fit a posterior, by name; the one open number of each is chosen on validation rows."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedroute.data.spec import nearest
from fedroute.errors import InputError
from fedroute.router.base import Posterior
from fedroute.router.cells import fit_cells, sums_by_label
from fedroute.router.inputs import RouterInput
from fedroute.router.lda import fit_lda
from fedroute.router.ratio import fit_ratio, reference_rows
from fedroute.router.reading import Reading
from fedroute.router.ridge import fit_ridge
from fedroute.router.softmax import Softmax, fit_softmax
from fedroute.router.sums import Sums

NUMBER = 8  # bytes of a number that is sent
REFERENCES = 4000  # reference rows of `ratio`
PATIENCE = 40  # rounds of `softmax` for each decay


class Fitted(NamedTuple):
    """A posterior, and what it took: the number that was open (a shrinkage, or a decay), the rounds in which clients
    were asked for sums, and the bytes that each of them sent in all of these."""

    posterior: Posterior
    option: float
    rounds: int
    upload: int


class Rows(NamedTuple):
    """What a fit is made from, of N clients."""

    train: Sequence[Tensor]  # (n_i, D), what is read of its rows
    labels: Sequence[Tensor]  # (n_i,) codes of the same rows
    classes: int  # K; 0 where targets are no classes
    sums: Sums
    seed: int


def _lda(rows: Rows) -> Iterator[Fitted]:
    for shrink in (3e-4, 1e-2, 0.3):
        yield Fitted(fit_lda(rows.sums, shrink), shrink, 1, rows.sums.upload_bytes(NUMBER))


def _ridge(rows: Rows) -> Iterator[Fitted]:
    for shrink in (3e-4, 1e-2, 0.3):
        yield Fitted(fit_ridge(rows.sums, shrink), shrink, 1, rows.sums.upload_bytes(NUMBER))


def _cells(rows: Rows) -> Iterator[Fitted]:
    if not rows.classes:
        raise InputError("router.kind: cells are of labels, and targets here are no classes; take lda")
    parts = zip(rows.train, rows.labels, strict=True)
    sums = Sums.together(sums_by_label(z, y, rows.classes) for z, y in parts)
    upload = sums.upload_bytes(NUMBER) + NUMBER * (rows.classes - 1) * (1 + sums.width)
    for shrink in (3e-4, 1e-2, 0.3):
        yield Fitted(fit_cells(sums, rows.classes, shrink), shrink, 1, upload)


def _ratio(rows: Rows) -> Iterator[Fitted]:
    reference = reference_rows(rows.sums, REFERENCES, rows.seed)
    for k, decay in enumerate((1e-3, 1e-2, 1e-1), 1):
        upload = rows.sums.upload_bytes(NUMBER) + k * NUMBER * (rows.sums.width + 2)
        yield Fitted(fit_ratio(rows.train, reference, decay), decay, 1 + k, upload)


def _softmax(rows: Rows) -> Iterator[Fitted]:
    """From little decay to much, each beginning where the last ended."""
    start: Softmax | None = None
    rounds, upload = 1, rows.sums.upload_bytes(NUMBER)
    for decay in (3e-5, 3e-4, 3e-3, 3e-2, 0.3):
        fit = fit_softmax(rows.train, decay, PATIENCE, rows.sums, tolerance=3e-4, start=start)
        rounds, upload, start = rounds + fit.rounds, upload + NUMBER * fit.upload * fit.rounds, fit.posterior
        yield Fitted(start, decay, rounds, upload)


FITS: dict[str, Callable[[Rows], Iterator[Fitted]]] = {
    "softmax": _softmax, "lda": _lda, "ridge": _ridge, "cells": _cells, "ratio": _ratio,
}  # fmt: skip
"""kind -> the fits with each value of its open number; rounds and upload are of all so far."""


def fit(kind: str, reading: Reading, read: RouterInput, *, seed: int = 0) -> Fitted:
    """Fitted to the training rows of all clients but newcomers, who have a prior of 0. Values of its open number are
    tried in turn, until the cross entropy of the owner on validation rows rises; the least is taken, the first where
    there are no such rows. rounds and upload are of all that were tried.

    Raises InputError for a kind that is not there, or cells where there are no labels."""
    if kind not in FITS:
        raise InputError(f"router.kind: no fit {kind!r}{nearest(kind, FITS)}")
    f = reading.federation
    train, held = reading.rows(read), reading.rows(read, "validation")
    labels = [f.y[rows[: len(z)]] for rows, z in zip(f.train, train, strict=True)]
    classes = len(f.labels) if f.y.dtype == torch.int64 else 0
    rows = Rows(train, labels, classes, Sums.together(map(Sums.of, train)), seed)
    best: tuple[float, Fitted] | None = None
    spent = (0, 0)
    for made in FITS[kind](rows):
        loss = owner_loss(made.posterior, held)
        spent = made.rounds, made.upload
        if best is not None and not loss < best[0]:
            break
        best = loss, made
        if math.isnan(loss):  # nothing to choose by
            break
    assert best is not None
    return best[1]._replace(rounds=spent[0], upload=spent[1])


def owner_loss(posterior: Posterior, rows: Sequence[Tensor]) -> float:
    """Mean cross entropy of the owner, in nat, of rows of each client (n_i, D); NaN where there are none."""
    pairs = [(z, i) for i, z in enumerate(rows) if len(z) and posterior.prior[i] > 0]
    if not pairs:
        return float("nan")
    losses = [cross_entropy(posterior.logits(z), torch.full((len(z),), i), reduction="sum") for z, i in pairs]
    return float(torch.stack(losses).sum()) / sum(len(z) for z, _ in pairs)
