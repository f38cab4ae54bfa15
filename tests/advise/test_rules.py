"""What is advised for what: the rules on made-up profiles, on worlds of which the skew is known, and on real data."""

import json
import os
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.advise.advice import Advice
from fedroute.advise.job import advise_federation
from fedroute.advise.methods import METHODS
from fedroute.advise.proof import concluded
from fedroute.advise.rules import advise
from fedroute.algorithms import ALGORITHMS, make
from fedroute.config import from_dict
from fedroute.data.federation import Federation
from fedroute.models import build
from fedroute.rounds import prepare
from fedroute.task import Task, loss_for
from tests.advise.rows import client, profile
from tests.profile.worlds import world

MODEL = {"name": "mlp_bn"}
GLOBAL = ("fedavg", "fedprox")
KEYS = {"algorithm", "private", "router", "why", "runner_up", "would_change_mind"}


def advised(row: Any, norms: bool = True) -> Advice:
    return advise(row, MODEL if norms else {"name": "mlp"}, norms)


def test_nearly_iid_data_get_fedavg_and_no_router() -> None:
    a = advised(profile())
    assert (a.algorithm, a.private, a.router, a.schedule) == ("fedavg", (), False, "constant")


def test_what_chance_would_do_does_not_count_however_large() -> None:
    row = profile(feature=0.9, label=0.9, mix=0.2)
    for kind in ("feature", "label"):
        row["skew"][kind]["verdict"] = "none" if kind == "feature" else "unknown"
    a = advised(row)
    assert (a.label, a.schedule, a.router) == ("fedavg", "constant", False)


def test_features_alone_get_fedbn_and_with_labels_heads_stay_too() -> None:
    assert advised(profile(feature=0.8)).label == "fedbn"
    assert advised(profile(feature=0.8), norms=False).label == "interpolation"
    both = advised(profile(feature=0.8, label=0.6, mix=0.5))
    assert both.algorithm == "fedper"
    assert set(both.private) == {"head", "norm"}


def test_other_meanings_keep_heads_at_home_and_want_a_router_where_features_tell() -> None:
    for norms in (True, False):
        a = advised(profile(concept=0.6, feature=0.3, own=0.9, others=0.3), norms)
        assert a.algorithm == "fedper"
        assert a.router
        assert "concept skew 0.60" in a.why[0]
        alike = advised(profile(concept=0.6, own=0.9, others=0.3), norms)
        assert not alike.router
        assert "no router can" in alike.router_why
        assert "feature skew none" in alike.router_why


@pytest.mark.parametrize(("feature", "router", "words"), [
    (0.0, False, "fits all clients about equally"), (0.35, False, "feature skew 0.35, clear"),
    (0.6, True, "feature skew 0.60"),
])  # fmt: skip
def test_a_router_goes_by_what_features_tell(feature: float, router: bool, words: str) -> None:
    a = advised(profile(feature=feature))
    assert a.router is router
    assert words in a.router_why
    assert ("equally" in a.router_why) == (not feature)


def test_where_features_cannot_be_compared_no_likeness_is_claimed() -> None:
    row = profile()
    row["skew"]["feature"]["verdict"] = "unknown"
    a = advised(row)
    assert not a.router
    assert "is unknown" in a.router_why


def test_a_model_that_is_all_head_is_not_told_to_keep_its_head() -> None:
    """With the head at home nothing would be left to learn together, and a run would refuse it."""
    a = advise(profile(concept=0.6, own=0.9, others=0.3), {"name": "linear"}, False)
    assert (a.label, a.runner_up, a.router) == ("alone", "apfl", False)
    assert "all head" in a.why[1]


def test_few_classes_each_get_a_model_each() -> None:
    a = advised(profile(label=0.9, mix=0.2))
    assert (a.label, a.runner_up) == ("apfl", "alone")
    assert "2.0 of 10 classes" in a.why[0]


def test_labels_apart_are_mixed_in_by_each_client() -> None:
    assert advised(profile(label=0.4, mix=0.7)).label == "interpolation"


def test_two_labels_are_not_few_classes() -> None:
    """With two labels in all, a client with only one of them has half of them."""
    assert advised(profile(labels=2, label=0.9, mix=0.5)).label == "interpolation"


skews = st.fixed_dictionaries(
    {k: st.sampled_from([0.0, 0.03, 0.1, 0.3, 0.6, 1.0]) for k in ("label", "feature", "quantity", "time", "concept")}
)
flags = st.lists(st.sampled_from(["tiny", "one_class", "nearly_one_class", "other_meaning", "dominates"]), max_size=2)


@pytest.mark.parametrize("own", [-0.0175, 0.0, 0.001])
def test_of_what_a_clients_own_rows_do_not_tell_nothing_can_be_missed(own: float) -> None:
    a = advised(profile(feature=0.82, own=own, others=-0.16), True)
    shares = [int(n) for n in re.findall(r"(\d+)%", " ".join(a.why))]
    assert all(n <= 100 for n in shares), a.why
    if own <= 0:
        assert not any("the others' rows do not tell" in why for why in a.why)


@settings(max_examples=300, deadline=None)
@given(
    skews, st.lists(flags, min_size=1, max_size=7), st.booleans(), st.floats(0.1, 1), st.floats(0, 1), st.floats(0, 1)
)
def test_whatever_the_profile(
    strengths: dict[str, Any], of: list[list[str]], norms: bool, mix: float, own: float, others: float
) -> None:
    row = profile(
        [client(f"c{i}", 5 * (i + 1), *f) for i, f in enumerate(of)], mix=mix, own=own, others=others, **strengths
    )
    a = advised(row, norms)
    assert norms or not any(
        METHODS[label].norms or "norm" in METHODS[label].private for label in (a.label, a.runner_up)
    )
    assert a.label != a.runner_up
    assert a.algorithm in ALGORITHMS
    if len(of) > 1 and any("one_class" in f for f in of):
        assert a.algorithm not in GLOBAL
    strange = {f"c{i}" for i, f in enumerate(of) if "other_meaning" in f}
    assert {c.client for c in a.personal} == {
        f"c{i}" for i, f in enumerate(of) if set(f) & {"tiny", "one_class", "nearly_one_class"}
    } | (strange if 3 * len(strange) <= len(of) else set())
    assert a.why
    assert a.would_change_mind
    out = json.loads(json.dumps(a.row()))
    assert out.keys() >= KEYS
    whole = out["config"] | {"federation": {"source": "bundled", "name": "digits"}}
    assert from_dict(whole).algorithm["name"] == a.algorithm


def test_the_tiny_need_one_model_where_all_are_tiny() -> None:
    tiny = [client(f"c{i}", 20, "tiny") for i in range(6)]
    assert advised(profile(tiny)).label == "fedavg"
    assert advised(profile([*tiny[:2], *(client(f"d{i}") for i in range(4))])).label == "interpolation"
    assert len(advised(profile(tiny)).personal) == 6


def test_a_client_with_one_class_is_named_with_its_label() -> None:
    rows = [*(client(f"c{i}") for i in range(4)), client("swiss", 100, "one_class", labels={"ill": 100, "well": 0})]
    a = advised(profile(rows))
    assert a.label == "interpolation"
    assert [(c.client, c.do) for c in a.personal] == [("swiss", "personal or alone")]
    assert "100 of its 100 rows are 'ill'" in a.personal[0].why


def test_a_few_clients_of_another_meaning_are_kept_in_by_the_method_and_named() -> None:
    rows = [client(f"c{i}", 200, *(["other_meaning"] if i == 0 else [])) for i in range(6)]
    a = advised(profile(rows, concept=0.3))
    assert a.algorithm == "fedper"
    assert not a.leave_out
    assert [(c.client, c.do) for c in a.personal] == [("c0", "personal")]
    half = [client(f"c{i}", 200, *(["other_meaning"] if i < 3 else [])) for i in range(6)]
    assert not advised(profile(half, concept=0.9)).personal


def test_a_client_in_another_unit_is_mended_first() -> None:
    finding = {
        "kind": "another unit", "client": "c1", "severity": "severe", "sentence": "weight is in pounds.",
        "mend": "Divide it by 2.2046.",
    }  # fmt: skip
    a = advised(profile(sick=(finding, finding | {"client": "c2", "severity": "note"})))
    assert [(c.client, c.do, c.why) for c in a.leave_out] == [
        ("c1", "mend", "weight is in pounds. Divide it by 2.2046.")
    ]
    assert a.would_change_mind[0].startswith("c1 mended, or left out: ask again")
    told = finding | {"sentences": {"en": "", "zh": "单位是磅。"}, "mends": {"en": "", "zh": "除以 2.2046。"}}
    assert advised(profile(sick=(told,))).leave_out[0].why.zh == "单位是磅。除以 2.2046。"


def test_copies_do_not_count_and_nobody_decides_alone() -> None:
    plain = [client(f"c{i}") for i in range(5)]
    assert advised(profile(plain)).weighting == {"by": "examples"}
    a = advised(profile([*plain, client("copier", 100, copies=2900)]))
    assert a.weighting == {"by": "effective"}
    assert any("100 different rows written 30.0 times each" in w for w in a.why)
    assert advised(profile([*plain, client("giant", 5000)])).weighting == {"by": "examples", "cap": 0.4}


def test_copies_that_are_not_exact_are_not_left_to_a_weighting_that_knows_exact_ones_only() -> None:
    plain = [client(f"c{i}") for i in range(5)]
    near = client("photos", 100, copies=50)
    near["duplicates"] = {"exact": 2, "near": 48}
    a = advised(profile([*plain, near]))
    assert a.weighting == {"by": "uniform"}
    assert any("100 different rows written 1.5 times each, not exactly alike" in w for w in a.why)
    unequal = advised(profile([*plain, client("giant", 400), near], quantity=0.4))
    assert unequal.weighting == {"by": "examples", "cap": 0.27}
    both = advised(profile([*plain, client("copier", 100, copies=900), near], quantity=0.4))
    assert both.weighting == {"by": "effective", "cap": 0.17}


def test_of_many_clients_some_are_asked_with_a_mix_of_labels_like_all() -> None:
    many = [client(f"c{i:03}") for i in range(200)]
    a = advised(profile(many, label=0.4, mix=0.7))
    assert (a.clients_per_round, a.sampling) == (0.1, "stratified")
    assert advised(profile(many)).sampling == "uniform"


def test_one_client_is_alone() -> None:
    a = advised(profile([client("c0"), client("c1", 0, "empty")]))
    assert a.label == "alone"
    assert not a.cost["sends"]
    assert "weighting" not in a.config()["training"]


@pytest.mark.parametrize("label", METHODS)
def test_every_method_takes_what_may_go_with_it(label: str) -> None:
    """Weighting with a cap, a schedule, clients by turns; and it keeps at home what the advice says it keeps."""
    with_it: dict[str, Any] = {
        "weighting": {"by": "effective", "cap": 0.4},
        "sampling": "stratified",
        "schedule": "cosine",
    }
    a = replace(advised(profile()), label=label, clients_per_round=0.5, **with_it)
    config = from_dict(a.config() | {"federation": {"source": "bundled", "name": "digits"}})
    f = world("iid", seed=0)
    task = Task(*build(config.model, f, 0), loss_for(f.y))
    bound = prepare(make(config.algorithm), task, config.training)
    roles = {"norm": task.named("norm"), "head": task.named("head"), "all": frozenset(task.names)}
    assert bound.kept == frozenset().union(*(roles[r] for r in a.private))


@pytest.mark.parametrize(
    ("kinds", "norms", "labels"),
    [
        (("iid",), True, {"fedavg"}),
        (("feature",), True, {"fedbn"}),
        (("feature",), False, {"interpolation", "fedper", "apfl"}),
        (("label", "feature"), True, {"fedper_fedbn"}),
        (("concept",), True, {"fedper_fedbn"}),
        (("concept",), False, {"fedper"}),
        (("label",), True, {"interpolation", "apfl"}),
        (("quantity",), True, {"interpolation"}),
    ],
    ids=lambda v: "+".join(v) if isinstance(v, tuple) else None,
)
def test_worlds_of_which_the_skew_is_known(kinds: tuple[str, ...], norms: bool, labels: set[str]) -> None:
    a = advise_federation(world(*kinds, seed=0), MODEL if norms else {"name": "mlp"})
    assert a.label in labels


def test_where_no_model_is_given_one_with_norms_is_taken_for_features_that_differ() -> None:
    assert advise_federation(world("feature", seed=0)).model == {"name": "mlp_bn"}
    assert advise_federation(world("iid", seed=0)).model == {"name": "mlp"}


def test_a_log_that_wrote_rows_thirty_times_is_weighed_by_its_rows() -> None:
    f = world("iid", seed=1)
    rows = f.train[0][:40]
    again = torch.cat([f.train[0], *[torch.arange(len(f.x) + 40 * k, len(f.x) + 40 * (k + 1)) for k in range(29)]])
    copied = Federation(
        name="copied", x=torch.cat([f.x, f.x[rows].repeat(29, 1)]), y=torch.cat([f.y, f.y[rows].repeat(29)]),
        clients=f.clients, labels=f.labels, train=(again, *f.train[1:]), validation=f.validation, test=f.test,
    )  # fmt: skip
    assert advise_federation(copied, MODEL).weighting["by"] == "effective"


@pytest.mark.skipif("FEDROUTE_DATA" not in os.environ, reason="FEDROUTE_DATA is not set")
def test_heart_disease_in_four_hospitals() -> None:
    from fedroute.data.load import load_federation

    a = advise_federation(load_federation("registry:heart4"), {"name": "mlp"})
    assert a.algorithm not in GLOBAL
    assert [c.client for c in a.personal] == ["switzerland"]


def test_a_proof_that_overturns_takes_the_advice_s_place() -> None:
    a = advised(profile(label=0.4, mix=0.7), False)
    means = {a.label: [0.5], "alone": [0.9]}
    found = {"interpolation": 0.5, "alone": 0.9}
    rows = {k: {"c": (np.random.default_rng(1).random((1, 200)) < p).astype(float)} for k, p in found.items()}
    proof = concluded({k: {} for k in found}, means, rows, metric="accuracy", higher=True, rounds=1, ratio=0.5)
    after = a.proven(proof)
    assert (after.label, after.runner_up) == ("alone", "interpolation")
    assert after.why[0] == proof.words
    assert after.row()["proof"]["verdict"] == "overturned"
    assert not after.router
    assert "weighting" not in after.config()["training"]
