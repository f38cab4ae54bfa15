"""A guide routes as the router that it is of, without a model of anybody's, and is small, whole and safe as bytes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedroute import Router
from fedroute.data.federation import Federation
from fedroute.data.queries import QueryForm
from fedroute.data.table import Statistics, TableSchema
from fedroute.errors import InputError
from fedroute.router.guide import RULES, Guide
from fedroute.router.routed import Routed
from tests.router.runs import opposed, ran

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("fedrod", {"kind": "lda", "random_features": 0}),
    ("fedrod", {"kind": "ridge", "input": "deep"}),
    ("fedrod", {"kind": "cells", "random_features": 0, "arrival": "uniform"}),
    ("fedavg", {"kind": "softmax", "random_features": 20}),
    ("fedrod", {"kind": "ratio", "random_features": 0}),
    ("fedrod", {"kind": "aggregator", "random_features": 0}),
    ("feddrm", {"kind": "drm"}),
]


def router_of(way: int) -> tuple[Federation, Router]:
    algorithm, spec = WAYS[way]
    f = opposed(rows=60)
    run = ran(f, algorithm, router=spec, model={"name": "mlp", "hidden": [8]}, rounds=3)
    assert run.router
    return f, run.router


@pytest.fixture(scope="module", params=range(len(WAYS)), ids=[f"{a}-{s['kind']}" for a, s in WAYS])
def made(request: pytest.FixtureRequest) -> tuple[Federation, Router]:
    return router_of(request.param)


def asked(f: Federation) -> Tensor:
    g = torch.Generator().manual_seed(1)
    return torch.cat([f.x[torch.cat(f.test)], 40 * torch.randn(5, *f.x.shape[1:], generator=g)])  # some are like nobody


def same(a: Routed, b: Routed) -> bool:
    """Client, score, runner-up, posterior and abstention to the last bit, and the words."""
    pairs = [(getattr(a.decision, k), getattr(b.decision, k)) for k in ("client", "score", "second")]
    pairs += [(a.posterior, b.posterior), (a.abstained, b.abstained)]
    return all(torch.equal(p, q) for p, q in pairs) and [*a.because] == [*b.because]


@pytest.mark.parametrize("rule", RULES)
def test_it_routes_as_its_router_bit_for_bit(made: tuple[Federation, Router], rule: str) -> None:
    f, router = made[0], replace(made[1], rule=rule, capacity=None)
    guide, x = Guide.of(router), asked(f)
    assert guide.rule == rule
    again = Guide.unpacked(guide.packed())
    for away in ([], ["birch"]):
        routed = router.route(x, away)
        assert bool(routed.abstained.any())
        assert same(guide.choose(x, away).routed, routed)
        assert same(again.choose(x, away).routed, routed)
        kept = ("client", "score", "runner_up", "abstained", "reason")
        rows = again.choose(x, away).rows()
        assert [{k: r[k] for k in kept} for r in rows] == [{k: r[k] for k in kept} for r in routed.rows()]


def test_the_order_of_fallbacks_is_what_routing_without_the_first_says(made: tuple[Federation, Router]) -> None:
    guide, x = Guide.of(made[1]), asked(made[0])
    for row, one in zip(guide.choose(x).rows(), x, strict=True):
        if row["abstained"]:
            assert row["client"] is None
            assert row["order"] == []
            continue
        assert row["order"][0] == row["client"]
        assert row["order"][1] == row["runner_up"]
        assert sorted(row["order"]) == sorted(guide.clients)
        following = guide.choose(one[None], away=row["order"][:1]).routed
        assert guide.clients[int(following.decision.client[0])] == row["order"][1]


def test_nobody_s_model_and_no_head_is_in_it(made: tuple[Federation, Router]) -> None:
    router = made[1]
    data = Guide.of(router).packed()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    shared = {k.removeprefix("shared/") for k in header} & {*router.models.trunk.roles}
    assert not {k for k in shared if router.models.trunk.roles[k] == "head"}
    assert bool(shared) == (not {*router.read.kinds} <= {"columns"})
    own = [v for w in router.models.personal for k, v in w.items() if k not in shared and v.numel() > 3]
    assert own
    assert not any(v.numpy().tobytes() in data for v in own)


def test_a_rule_that_needs_answers_becomes_one_that_does_not_and_says_so() -> None:
    _, router = router_of(0)
    told = Guide.of(replace(router, rule="consensus"))
    assert told.rule == "posterior"
    assert told.chosen["rule"] == "posterior"
    assert "consensus" in told.chosen["guide"][0]
    law = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    assert Guide.of(replace(router, rule="mixture", law=law)).rule == "arrival"
    with pytest.raises(InputError, match="needs the clients' answers"):
        replace(told, rule="consensus")


@pytest.mark.parametrize("way", [0, 1, 2], ids=["lda", "ridge", "cells"])
def test_who_joins_and_who_leaves_is_as_with_the_router(way: int) -> None:
    f, router = router_of(way)
    router = replace(router, rule="posterior", capacity=None)
    x, rows = asked(f), f.train[1]
    upload = router.upload(f.x[rows], f.y[rows])
    mine = Guide.of(router).upload(f.x[rows], f.y[rows])
    assert torch.equal(mine.sums.total, upload.sums.total)
    weights = router.models.personal[1]
    away, gone = Guide.of(router).leave("birch"), router.leave("birch")
    assert same(away.choose(x).routed, gone.route(x))
    assert same(away.join("birch", mine).choose(x).routed, gone.join("birch", weights, upload).route(x))
    with pytest.raises(InputError, match="already"):
        away.join("ash", mine)
    with pytest.raises(InputError, match="no client 'oak'"):
        away.leave("oak")


def test_statistics_of_single_clients_stay_at_the_hub() -> None:
    _, router = router_of(0)
    own = Statistics(fill=(77.125,), mean=(77.125,), scale=(1.0,), common=())
    all_of = Statistics(fill=(0.0,), mean=(0.0,), scale=(1.0,), common=())
    schema = TableSchema(numeric=("a",), flags=(), categorical={}, federated=all_of, clients={"ash": own})
    data = Guide.of(replace(router, form=QueryForm(shape=router.form.shape, table=schema))).packed()
    assert b"77.125" not in data


@pytest.mark.parametrize("how", ["cut", "empty", "words", "schema", "pickle"])
def test_what_is_no_guide_is_refused_in_words(how: str) -> None:
    import pickle

    data = Guide.of(router_of(0)[1]).packed()
    bad = {
        "cut": data[: len(data) // 2], "empty": b"", "words": b"hello there, this is no guide",
        "schema": data.replace(b'\\"schema\\": 1', b'\\"schema\\": 9'), "pickle": pickle.dumps({"a": 1}),
    }[how]  # fmt: skip
    with pytest.raises(InputError, match="guide"):
        Guide.unpacked(bad)


def test_a_guide_apart_reads_through_a_model_of_its_own(made: tuple[Federation, Router]) -> None:
    f, router = made
    guide, x = Guide.of(router), asked(f)
    apart = guide.apart()
    expected = guide.choose(x).routed
    for read in (guide.read, guide.seen):
        if read is not None and read.task is not None:
            mine = apart.read if read is guide.read else apart.seen
            assert mine is not None
            assert mine.task is not None
            assert mine.task.module is not read.task.module
            own = {id(p) for p in mine.task.module.parameters()}
            assert not own & {id(p) for p in read.task.module.parameters()}
    assert same(apart.choose(x).routed, expected)


def test_it_survives_a_disk(tmp_path: Path) -> None:
    f, router = router_of(0)
    guide = Guide.of(replace(router, rule="density"))
    guide.save(tmp_path / "guide.safetensors")
    assert same(Guide.load(tmp_path / "guide.safetensors").choose(f.x).routed, guide.choose(f.x).routed)
    with pytest.raises(InputError, match=r"nowhere.*cannot be read"):
        Guide.load(tmp_path / "nowhere")
