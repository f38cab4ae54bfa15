"""Lines of the ledger and points of the curve that sites make of their own rows are those of a simulation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedroute.data.load import load_federation
from fedroute.errors import InputError
from fedroute.evaluate.curve import curve_point
from fedroute.federation.agreement import Agreement, hub_federation
from fedroute.federation.judging import alone_rounds, curve_here, curve_of, judge_here, ledger_of, train_alone
from fedroute.run import Run
from fedroute.training import fit, global_weights
from tests.federation.agreeing import Sites

SPEC: dict[str, Any] = {"source": "bundled", "name": "digits", "newcomers": ["school"]}
OFFICES = ("archive", "bank", "clinic", "library", "post_office", "school")


@pytest.fixture(scope="module")
def agreed() -> tuple[Sites, Agreement]:
    sites = Sites(Path(), {c: {} for c in OFFICES})
    return sites, sites.agree(SPEC, seed=2)


def run(algorithm: Any, **options: Any) -> Run:
    return fit(
        load_federation(SPEC, seed=2), "mlp", algorithm, seed=2, engine="sequential", rounds=4, batch_size=32, lr=0.1,
        log=lambda text: None, **options,
    )  # fmt: skip


@pytest.mark.parametrize(("algorithm", "sampling"), [("fedavg", 0.5), ({"name": "pfedme", "private": ["head"]}, 1.0)])
def test_as_in_a_simulation(agreed: tuple[Sites, Agreement], algorithm: Any, sampling: float) -> None:
    sites, agreement = agreed
    done = run(algorithm, clients_per_round=sampling)
    alg, t, server = done.algorithm, done.training, done.state.server
    shared, task = global_weights(alg, server), alg.predictor()
    turns = alone_rounds(alg, hub_federation(agreement), t, 2)
    entries, values, early = {}, {}, {}
    for i, c in enumerate(OFFICES):
        own = sites.own(c)
        alone = train_alone(alg, own, t, 2, i, turns[i], stopped=lambda: False)
        models: dict[str, Any] = {"personal": done.personal(i), "global_w": shared}
        told = judge_here(own, agreement, i, task, **models, alone=alone, seed=2)
        entries[c] = json.loads(json.dumps(told))
        values[c] = json.loads(json.dumps(curve_here(own, agreement, i, task, **models)))
        early[c] = values[c] | {"rows": 1} if values[c] else {}
    absent = done.ledger.absent
    made = ledger_of(agreement, entries, no_global=absent.get("global"), no_alone=absent.get("alone"))
    same(made.rows(), done.ledger.rows())
    same(made.summary(), done.ledger.summary())
    point = curve_point(done.federation, task, done.personal, shared)
    same(curve_of(agreement, values), point)
    with pytest.raises(AssertionError):
        same(curve_of(agreement, early), point)


def same(a: Any, b: Any) -> None:
    """Equal, numbers to 1e-6: a batch of other rows beside it changes an answer in its last bits."""
    if isinstance(b, dict):
        assert a.keys() == b.keys()
        for k in b:
            same(a[k], b[k])
    elif isinstance(b, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(b, float):
        assert a == pytest.approx(b, abs=1e-6)
    else:
        assert a == b


def test_alone_to_the_bit(agreed: tuple[Sites, Agreement]) -> None:
    sites, agreement = agreed
    done = run("alone", schedule="cosine", optimizer="adam")
    turns = alone_rounds(done.algorithm, hub_federation(agreement), done.training, 2)
    for i, c in enumerate(OFFICES):
        w = train_alone(done.algorithm, sites.own(c), done.training, 2, i, turns[i])
        if c not in ("school",):  # a newcomer of `alone` adapts, and is no baseline
            assert all((w[k] == v).all() for k, v in done.personal(i).items())


def test_what_is_not_told(agreed: tuple[Sites, Agreement]) -> None:
    sites, agreement = agreed
    done = run("fedavg", alone=False)
    own = sites.own("bank")
    models: dict[str, Any] = {"personal": done.personal(1), "global_w": None}
    with pytest.raises(InputError, match="not of part 'test'"):
        curve_here(own, agreement, 1, done.algorithm.task, **models, part="test")
    with pytest.raises(InputError, match="no part 'all'"):
        judge_here(own, agreement, 1, done.algorithm.task, **models, alone=None, part="all", seed=0)
    idle = replace(own, train=tuple(rows[:0] for rows in own.train))  # nothing to train alone on
    told = judge_here(idle, agreement, 1, done.algorithm.task, **models, alone=done.personal(1), seed=0)
    assert told["scores"]["alone"] is None
    told = judge_here(own, agreement, 1, done.algorithm.task, **models, alone=None, seed=0)
    assert told["scores"]["global"] is None
    for broken in ({}, told | {"better_off": "surely"}, told | {"name": "clinic"}, told | {"scores": []}):
        with pytest.raises(InputError, match="bank: its line of the ledger is none"):
            ledger_of(agreement, {"bank": broken})
