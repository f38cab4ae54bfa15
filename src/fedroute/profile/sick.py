"""sick(): what is wrong with the data of a federation, who has it, how bad it is and what to do.

Two rounds of small messages. First every client sends quantiles and counts of its columns and of its labels, and gets
the scales on which all standardise, and limits of bins; then it sends counts of its copies, counts by label and bin,
counts of doubtful labels, and keyed hashes of its different rows (see shared_rows). Rows never leave, and the numbers
of rows in a finding about one client's own rows stay with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedroute.data.federation import Federation
from fedroute.profile import row_hashes
from fedroute.profile.classes import class_findings
from fedroute.profile.column_summary import ColumnSummary, Scales, scales, summarised
from fedroute.profile.columns import swaps_found, units_found
from fedroute.profile.comparable import bare_columns, hindrances
from fedroute.profile.dates import date_findings
from fedroute.profile.duplicates import across, within
from fedroute.profile.finding import Finding, worst_first
from fedroute.profile.gaps import absent_columns, marks_found, unequal_gaps
from fedroute.profile.label_noise import Suspects, noise_found, suspects
from fedroute.profile.leaks import LabelCounts, bin_edges, label_counts, leaking_columns, naming_columns
from fedroute.profile.own_rows import Floats, OwnRows, own_rows
from fedroute.profile.repeats import repeats
from fedroute.profile.shared_rows import RowHashes, hashed, shared

BANDS = 8  # that a number to predict is cut into
LEAKS = (
    "a column that gives the answer away", "an identifier", "a column that names the client",
    "test rows that are trained on", "test rows that another client trains on",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Of one client's rows, all parts together. exact, near: rows that equal another one before them, or nearly so;
    effective: the rows it really has; fault: whether a fault wrote rows again (or chance made them equal)."""

    rows: int
    exact: int
    near: int
    effective: int
    fault: bool

    @property
    def written(self) -> float:
        """How many times each row was written, on average."""
        return self.rows / max(1, self.effective)


@dataclass(frozen=True)
class Sick:
    """findings: the worst first; clients: name -> its copies; sent: name -> what it sends -> bytes; private: name of a
    message -> how private it is."""

    findings: tuple[Finding, ...]
    clients: Mapping[str, Copies]
    sent: Mapping[str, Mapping[str, int]]
    private: Mapping[str, str]

    @property
    def leaks(self) -> tuple[Finding, ...]:
        """The findings by which an answer, or a test row, is known before it should be."""
        return tuple(f for f in self.findings if f.kind in LEAKS)

    def of(self, client: str) -> tuple[Finding, ...]:
        """The findings about one client."""
        return tuple(f for f in self.findings if client == f.client or client in f.others)

    def row(self) -> dict[str, Any]:
        """As JSON says it."""
        return {
            "findings": [f.row() for f in self.findings],
            "clients": [
                {"name": name, "rows": c.rows, "effective_rows": c.effective,
                 "duplicates": {"exact": c.exact, "near": c.near}, "fault": c.fault}
                for name, c in self.clients.items()
            ],
            "sent": {name: dict(parts) for name, parts in self.sent.items()},
            "private": dict(self.private),
        }  # fmt: skip


PRIVATE = {
    "columns": "quantiles (the least and largest value included) and counts of each column, and of "
    "a number to predict: statistics, not rows; with few rows a quantile is a value",
    "labels": "counts by label and bin: the server sees them client by client; a secure sum would do",
    "copies": "six counts and two rates",
    "noise": "six numbers",
    "hashes": "8 bytes for each different row and 8 for each of four grids, by a key that the server does not have: it "
    "sees which rows of which clients are equal; who has the key could test a row that it guesses",
}


def sick(federation: Federation, seed: int = 0, shared_rows: bool = True) -> Sick:
    """All findings. seed: draws grids, halves, folds and probes. shared_rows: whether clients also send keyed hashes of
    their rows, without which rows that two clients have are not found."""
    first = [(summarised(own), _answers(own)) for own in own_rows(federation) if len(own)]
    if not first:
        return Sick(tuple(class_findings(federation)), {c: _none() for c in federation.clients}, {}, PRIVATE)
    summaries = [s for s, _ in first]
    images = federation.x.ndim > 2
    scale, edges = scales(summaries, images), bin_edges(summaries)
    bands = _bands(federation, [a for _, a in first])
    key = row_hashes.key_of(seed)
    findings, clients = list[Finding](), {c: _none() for c in federation.clients}
    sent = dict[str, dict[str, int]]()
    hashes, counted, doubts = list[RowHashes](), list[LabelCounts](), list[Suspects]()
    columns: tuple[str, ...] = ()
    for (summary, answers), own in zip(first, (o for o in own_rows(federation) if len(o)), strict=True):
        columns = own.columns
        found, messages, copies, told = _one(own, scale, edges, bands, key, seed, shared_rows)
        findings += found
        clients[own.client] = copies
        sent[own.client] = {"columns": summary.sent + (0 if answers is None else answers.nbytes), **told}
        hashes += [m for m in messages if isinstance(m, RowHashes)]
        counted += [m for m in messages if isinstance(m, LabelCounts)]
        doubts += [m for m in messages if isinstance(m, Suspects)]
    findings += across(hashes, shared(hashes)) if len(hashes) > 1 else []
    findings += noise_found(doubts) + class_findings(federation) + hindrances(federation)
    if columns:
        cut = 0 if bands is None or len(bands) == 1 else BANDS
        findings += _of_columns(federation, summaries, columns, scale) + leaking_columns(counted, columns, cut)
    return Sick(worst_first(findings), clients, sent, PRIVATE)


def _none() -> Copies:
    return Copies(rows=0, exact=0, near=0, effective=0, fault=False)


def _one(
    own: OwnRows, scale: Scales, edges: Floats, bands: Floats | None, key: bytes, seed: int, shared_rows: bool
) -> tuple[list[Finding], list[RowHashes | LabelCounts | Suspects], Copies, dict[str, int]]:
    """One client's second round: findings about its own rows, and what it sends."""
    z = scale.standardised(own.values)
    exact = row_hashes.exact(own, key)
    found = repeats(own, exact, z, seed)
    messages = list[RowHashes | LabelCounts | Suspects]()
    told = {"copies": 64}
    if shared_rows:
        sent = hashed(own, exact, z.astype(np.float32), found, seed, key)
        messages.append(sent)
        told["hashes"] = sent.sent
    y, labels = (own.y.astype(np.int64), int(bands[0])) if bands is not None and len(bands) == 1 else (None, BANDS)
    if bands is not None and y is None:
        y = np.searchsorted(bands, own.y).astype(np.int64)
    if own.table and y is not None:
        counts = label_counts(own, y, labels, edges, seed)
        messages.append(counts)
        told["labels"] = counts.sent
    doubts = suspects(own, z, found, seed)
    if doubts is not None:
        messages.append(doubts)
        told["noise"] = 48
    copies = Copies(rows=found.rows, exact=found.exact, near=found.near, effective=found.effective, fault=found.fault)
    return within(own, found), messages, copies, told


def _of_columns(
    federation: Federation, summaries: list[ColumnSummary], columns: tuple[str, ...], scale: Scales
) -> list[Finding]:
    declared = federation.table.missing if federation.table else {}
    return [
        *marks_found(summaries, columns), *absent_columns(summaries, columns, declared),
        *units_found(summaries, columns), *swaps_found(summaries, columns, scale),
        *naming_columns(summaries, columns, federation.notes), *bare_columns(summaries, columns),
        *date_findings(federation), *unequal_gaps(summaries, columns),
    ]  # fmt: skip


def _answers(own: OwnRows) -> Floats | None:
    """Quantiles of numbers to predict, None for classes and other targets."""
    if own.y.ndim != 1 or own.y.dtype.kind != "f":
        return None
    return np.quantile(own.y.astype(np.float64), np.linspace(0, 1, BANDS + 1))


def _bands(federation: Federation, answers: list[Floats | None]) -> Floats | None:
    """The number of classes, (1,); or the limits of bands of numbers, (7,); or None for other targets."""
    if federation.labels and federation.y.ndim == 1:
        return np.array([float(len(federation.labels))])
    known = [a for a in answers if a is not None]
    return np.quantile(np.concatenate(known), np.linspace(0, 1, BANDS + 1)[1:-1]) if known else None
