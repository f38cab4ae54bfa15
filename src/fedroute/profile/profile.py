"""profile(): how the clients of a federation differ, how sure that is, and what is sick in their data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroute.data.federation import Federation
from fedroute.profile import basis, concept, coverage, feature, label, missing, quantity, sample, sentences, time
from fedroute.profile.comparable import headline, hindrances
from fedroute.profile.dates import date_columns
from fedroute.profile.exchanged import exchanged
from fedroute.profile.finding import Finding, worst_first
from fedroute.profile.pictures import pictures
from fedroute.profile.sends import Sent, of_sick, sent
from fedroute.profile.sick import Copies, Sick, sick
from fedroute.profile.skews import APART, OVERLAP, Top, diagnose, skews
from fedroute.profile.verdict import ALPHA, KINDS, Kind, Skew
from fedroute.profile.wrong_labels import wrong_labels
from fedroute.randomness import seed_of

Floats = NDArray[np.float64]
COPIES = "copied rows"
MANY = 0.01  # of a client's rows that are copies, from which on it is said beside its name
SHOWN = 12  # features, those that differ most


@dataclass(frozen=True, kw_only=True)
class ClientProfile:
    """rows: of all parts; effective: those that are different (copies by a logging fault count once); exact, near:
    copies; labels: rows of each label, over all parts; missing: column -> share of gaps, where there are any, over
    training and validation rows; flags: empty, tiny, one_class, nearly_one_class, missing_labels, dominates,
    odd_features, other_meaning, absent_columns, copies; lacks: labels that it would have if it were as the others;
    weight: share of the training and validation rows; classes: effective number of labels; odd: how far its features
    are from the others', in deviations of a random client of its size; meaning: share of what its features tell that
    the others' miss."""

    name: str
    rows: int
    effective: int
    exact: int
    near: int
    labels: Mapping[str, int]
    missing: Mapping[str, float]
    flags: tuple[str, ...]
    lacks: tuple[str, ...]
    weight: float
    classes: float
    odd: float
    meaning: float | None

    def row(self) -> dict[str, Any]:
        return {
            "name": self.name, "rows": self.rows, "effective_rows": self.effective,
            "duplicates": {"exact": self.exact, "near": self.near}, "labels": dict(self.labels),
            "missing": {c: round(v, 4) for c, v in self.missing.items()}, "flags": list(self.flags),
            "lacks": list(self.lacks), "weight": round(self.weight, 5), "effective_classes": round(self.classes, 3),
            "odd": round(self.odd, 2), "meaning": None if self.meaning is None else round(self.meaning, 4),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What `fedroute profile` tells. skew: by kind; top: the diagnosis; parts: all kinds that are there, the strongest
    first (empty for "iid"); sick: what is wrong with data; sends: what a client sends for all this; shows: numbers for
    the pictures; notes: what was done, for the user."""

    name: str
    clients: tuple[ClientProfile, ...]
    labels: tuple[str, ...]
    skew: Mapping[Kind, Skew]
    top: Top
    parts: tuple[Kind, ...]
    sentences: Mapping[str, str]
    coverage: coverage.Coverage
    missing: tuple[missing.Column, ...]
    sick: Sick
    sends: tuple[Sent, ...]
    shows: Mapping[str, Any]
    notes: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """The JSON object of `fedroute profile --json`."""
        names = tuple(c.name for c in self.clients)
        return {
            "schema": 1, "federation": self.name, "top": self.top, "parts": list(self.parts),
            "sentence": self.sentences["en"], "sentences": dict(self.sentences),
            "labels": list(self.labels), "clients": [c.row() for c in self.clients],
            "skew": {k: self.skew[k].row() for k in KINDS}, "leaks": [f.row() | f.languages() for f in self.sick.leaks],
            "sick": [f.row() | f.languages() for f in self.sick.findings], "coverage": self.coverage.row(self.labels),
            "missing": [c.row(names) for c in self.missing], "sends": [s.row() for s in self.sends],
            "pictures": dict(self.shows), "notes": list(self.notes),
        }  # fmt: skip


def profile(federation: Federation, seed: int = 0, health: bool = True) -> Profile:
    """Strengths and verdicts from training and validation rows; test rows are only counted, and looked at for copies.
    Each client's part is computed from its rows alone and merged from summaries (`Profile.sends` lists them).
    seed: draws rows where a client has more than a test looks at, folds, and random clients; same seed, same profile.
    health: whether sick data are looked for too, which takes the longer part of the time."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):  # many small matrices: threads would cost more than they gain, and change last digits
        return _profile(federation, seed, health)


def _profile(federation: Federation, seed: int, health: bool) -> Profile:
    found = sick(federation, seed) if health else _unlooked(federation)
    drawn = sample.draw(federation, seed, [r for f in found.findings if f.kind == COPIES for r in f.rows])
    rng = np.random.default_rng(seed_of(seed, "profile"))
    n, k = len(drawn.clients), len(drawn.labels)
    base, _ = basis.fit(drawn.x, seed)
    z = [base.scores(v) for v in drawn.x]
    phi = [base.curves(v) for v in z]
    group = [np.full(len(v), i) for i, v in enumerate(drawn.y)]
    edges = time.cut(drawn.time, time.BLOCKS) if drawn.time else np.zeros(0)
    tied = time.confounded(edges, drawn.time) if drawn.time else 0.0
    block = [time.stretch(edges, t) for t in drawn.time] if drawn.time and tied >= time.SPLIT else None
    stretches = len(edges) + 1 if block else 1
    when = block or [np.zeros(len(v), np.int64) for v in drawn.y]
    stratum = [b * k + c for b, c in zip(when, drawn.y, strict=True)]
    counts = drawn.known[:, None, :]
    if block:
        counts = np.zeros((n, stretches, k), dtype=np.int64)
        for i, (b, c) in enumerate(zip(block, drawn.y, strict=True)):
            np.add.at(counts[i], (b, c), 1)
    labels = label.measure(counts, rng)
    told = feature.measure(phi, group, stratum, drawn.fold, n, stretches * k, rng, z[0].shape[1])
    plain = feature.measure(phi, group, when, drawn.fold, n, stretches, rng, pairs=0)
    meaning = concept.at_matched(z, base, group, drawn.y, drawn.fold, told, k, phi, drawn.classes and tied < APART)
    usage = told  # of clients whose labels can be trusted: else wrong labels would look like labels given otherwise
    if meaning.noisy:
        kept = [~np.isin(g, meaning.noisy) for g in group]
        few = [v[m] for v, m in zip(phi, kept, strict=True)]
        whose, cell, turn = ([v[m] for v, m in zip(c, kept, strict=True)] for c in (group, stratum, drawn.fold))
        lot = np.random.default_rng(seed_of(seed, "trusted"))
        usage = feature.measure(few, whose, cell, turn, n, stretches * k, lot)
        wrong = _doubted(found, meaning, drawn.clients) if health else []
        found = replace(found, findings=worst_first([*found.findings, *wrong]))
    overlap = 1.0
    if meaning.p is not None and told.strength > 1 - OVERLAP:
        plainly = [base.curves(feature.align(v, told.off[i], told.ratio[i])) for i, v in enumerate(z)]
        overlap = 1 - feature.measure(plainly, group, stratum, drawn.fold, n, stretches * k, rng).strength
    drift = time.measure(z, base, drawn.y, drawn.time, drawn.fold, told.off, k, rng) if drawn.time else None
    sizes = quantity.measure(drawn.known.sum(1), rng)
    covered = coverage.measure(drawn.known, drawn.classes)
    gaps = missing.measure(drawn.missing, drawn.used, drawn.columns)
    shown = np.argsort(-np.abs(told.shift).max(0), kind="stable")[:SHOWN] if told.shift.size else np.zeros(0, np.int64)
    shown = shown if base.mix is None else shown[:0]  # mixtures have no names
    moved = feature.wasserstein([v[:, shown] for v in z], group, stratum, n, stretches * k)
    if tied >= APART:  # no time in common: nothing between clients can be told from drift
        labels, meaning = replace(labels, strength=0.0, p=None), replace(meaning, strength=0.0, p=None)
    skew = skews(
        drawn, labels, told, plain, usage, sizes, meaning, overlap, drift, shown, moved, date_columns(federation)
    )
    if health and drawn.classes and skew["concept"].present:
        wrong = exchanged(meaning, drawn.clients, drawn.labels)
        found = replace(found, findings=worst_first([*found.findings, *wrong]))
    top, parts = diagnose(skew, plain.test is not None and plain.test.p < ALPHA)
    unknown = [k for k in KINDS if k != "time" and skew[k].verdict == "unknown"]
    instead = headline(found.findings if health else hindrances(federation), alike=not parts)
    return Profile(
        name=federation.name, clients=_clients(drawn, found, covered, gaps, labels, told, meaning, skew),
        labels=drawn.labels, skew=skew, top=top, parts=parts, coverage=covered,
        sentences=sentences.of_all(top, parts, unknown, instead), missing=gaps, sick=found,
        shows=pictures(drawn, told, shown, moved, drift),
        notes=_notes(federation, drawn, block is not None),
        sends=sent(
            clients=n, labels=k, features=z[0].shape[1], curves=phi[0].shape[1], columns=len(drawn.columns),
            missing=bool(gaps), blocks=time.BLOCKS if drift else 0, fine=time.FINE,
            pairs=int(np.bincount(told.pairs.ravel(), minlength=1).max()) if len(told.pairs) else 0,
        ) + of_sick(found.sent, found.private),
    )  # fmt: skip


def _doubted(found: Sick, meaning: concept.Meaning, clients: Sequence[str]) -> list[Finding]:
    """Of clients whose rows were not doubted one by one."""
    there = {f.client for f in found.findings if f.kind == "doubtful labels"}
    return wrong_labels(meaning.doubt, [g for g in meaning.noisy if clients[g] not in there], clients)


def _unlooked(federation: Federation) -> Sick:
    rows = [int(n) for n in sum(federation.sizes(p) for p in ("train", "validation", "test"))]  # type: ignore[union-attr]
    copies = [Copies(rows=n, exact=0, near=0, effective=n, fault=False) for n in rows]
    return Sick((), dict(zip(federation.clients, copies, strict=True)), {}, {})


def _clients(
    drawn: sample.Sample, found: Sick, covered: coverage.Coverage, gaps: tuple[missing.Column, ...],
    labels: label.LabelMix, told: feature.Telling, meaning: concept.Meaning, skew: Mapping[Kind, Skew],
) -> tuple[ClientProfile, ...]:  # fmt: skip
    total = max(int(drawn.used.sum()), 1)
    clients = list[ClientProfile]()
    for i, name in enumerate(drawn.clients):
        own, flags = found.clients[name], list(covered.flags[i])
        if skew["feature"].present and told.odd[i] > 10 and told.odd[i] > 3 * np.median(told.odd):
            flags.append("odd_features")
        means = None if np.isnan(meaning.by_group[i]) else float(meaning.by_group[i])
        if skew["concept"].present and means is not None and means > 0.2 and meaning.p_by_group[i] < ALPHA:
            flags.append("other_meaning")
        if any(i in c.absent for c in gaps):
            flags.append("absent_columns")
        if own.fault and own.rows - own.effective > MANY * own.rows:
            flags.append("copies")
        clients.append(ClientProfile(
            name=name, rows=int(drawn.rows[i]), effective=own.effective, exact=own.exact, near=own.near,
            labels=dict(zip(drawn.labels, drawn.counts[i].tolist(), strict=True)),
            missing={c.name: float(c.by_client[i]) for c in gaps if c.by_client[i] > 0}, flags=tuple(flags),
            lacks=tuple(drawn.labels[j] for j in covered.lacking[i]), weight=float(drawn.used[i] / total),
            classes=float(labels.effective[i]), odd=float(told.odd[i]), meaning=means,
        ))  # fmt: skip
    return tuple(clients)


def _notes(federation: Federation, drawn: sample.Sample, tied: bool) -> tuple[str, ...]:
    notes = [*federation.notes]
    if drawn.capped:
        notes.append(
            f"of each client up to {drawn.cap:,} rows, drawn by lot, are looked at for features, time and meaning"
        )
    if not drawn.classes and len(drawn.labels) > 1:
        notes.append("the number to predict is looked at in five equally frequent kinds")
    if tied:
        notes.append("clients have rows of different times: they are compared within stretches of time they share")
    return tuple(notes)
