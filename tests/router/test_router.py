"""A router in use: what it answers, that it never knows whose a query is, who joins and leaves, and what is on disk."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch import Tensor, nn

from fedroute import Router
from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.errors import InputError, RunFailed
from fedroute.router.making import evaluate_router
from fedroute.router.routed import Routed
from fedroute.run import Run
from tests.router.runs import opposed, ran, tagged


@pytest.fixture(scope="module")
def run() -> Run:
    return ran(opposed())


@pytest.fixture(scope="module")
def router(run: Run) -> Router:
    assert run.router
    return run.router


def queries(federation: Federation) -> Tensor:
    return federation.x[torch.cat(federation.test)]


def same(a: Routed, b: Routed) -> bool:
    """To the last bit."""
    return all(torch.equal(p, q) for p, q in zip((*a.decision, a.posterior, a.abstained),
                                                 (*b.decision, b.posterior, b.abstained), strict=True))  # fmt: skip


def test_a_query_goes_to_the_client_that_knows_its_kind(run: Run, router: Router) -> None:
    assert run.routing is not None
    shares = run.routing["system_accuracy"]
    assert shares[run.routing["rule"]] > shares["global"] + 0.1
    assert run.routing["pays"] == "yes"
    rows = router.route(torch.tensor([[3.0, 0, 0, 0.5], [0, 3.0, 0, 0.5]])).rows()
    assert [(r["client"], r["answer"]) for r in rows] == [("ash", "yes"), ("birch", "no")]
    assert all(r["reason"] and r["runner_up"] not in (None, r["client"]) for r in rows)


def test_two_evaluations_agree_exactly(run: Run, router: Router) -> None:
    assert evaluate_router(router, run.federation, seed=run.seed) == run.routing
    x = queries(run.federation)
    assert same(router.route(x), router.route(x))


def test_no_prediction_changes_with_whose_a_query_is_said_to_be(run: Run, router: Router) -> None:
    """The rows of each client stand in another's test part. What all rules answer to them stays, and what they are
    worth, but for the oracle, which is the one to look."""
    moved = tagged(run.federation, [2, 0, 1])
    assert run.routing is not None
    before, after = run.routing["system_accuracy"], evaluate_router(router, moved)["system_accuracy"]
    assert after.pop("oracle") < before["oracle"]
    before = {k: v for k, v in before.items() if k not in ("oracle", "random")}
    assert {k: after[k] for k in before} == before


def test_nor_where_each_client_scales_its_own_rows(tmp_path: Path) -> None:
    """Training encodes a row with its client's own statistics; a query is encoded with everybody's."""
    f = opposed(rows=60)
    table = {f"c{k}": f.x[:, k].numpy() for k in range(4)} | {"site": [f.clients[i] for i in f.owner().tolist()]}
    parquet.write_table(pa.table(table | {"ill": [f.labels[k] for k in f.y.tolist()]}), tmp_path / "t.parquet")
    spec = {"source": "parquet", "path": "t.parquet", "client": "site", "label": "ill", "statistics": "client"}
    federation = load_federation(spec, base=tmp_path)
    run = ran(federation, router={"kind": "lda", "random_features": 0})
    assert run.router
    assert run.routing
    assert not torch.equal(federation.x, federation.as_queries().x)
    assert evaluate_router(run.router, federation.as_queries(), seed=run.seed) == run.routing
    moved = evaluate_router(run.router, tagged(federation, [1, 2, 0]))["system_accuracy"]
    for rule, share in run.routing["system_accuracy"].items():
        assert moved[rule] == share or rule in ("oracle", "random")


def test_no_row_of_a_batch_sees_another(run: Run, router: Router) -> None:
    x = queries(run.federation)[:40]
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    whole, turned = router.route(x), router.route(x[order])
    assert torch.equal(whole.decision.client[order], turned.decision.client)
    assert torch.allclose(whole.decision.answer[order], turned.decision.answer, atol=1e-12)
    alone = [router.route(x[i : i + 1]).rows()[0]["client"] for i in range(40)]
    assert alone == [r["client"] for r in whole.rows()]


@pytest.mark.parametrize("rule", ["density", "posterior"])
def test_a_rule_that_asks_one_client_runs_its_model_alone_and_says_what_it_says(
    run: Run, router: Router, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, one = queries(run.federation), replace(router, rule=rule)
    everybody = one.decide(one.scores(x))

    def asked(*_: Any) -> Tensor:
        raise AssertionError("everybody was asked")

    monkeypatch.setattr("fedroute.router.answers.Answering.__call__", asked)
    alone = one.route(x).decision
    assert torch.equal(alone.client, everybody.client)
    assert torch.equal(alone.second, everybody.second)
    assert torch.allclose(alone.answer, everybody.answer, atol=1e-6)


def test_a_client_whose_model_answers_nan_is_passed_over(run: Run, router: Router) -> None:
    broken = {k: torch.full_like(v, torch.nan) for k, v in router.models.personal[0].items()}
    ill = replace(
        router, rule="posterior", models=replace(router.models, personal=(broken, *router.models.personal[1:]))
    )
    routed = ill.route(queries(run.federation))
    assert not (routed.decision.client == 0).any()
    assert torch.isfinite(routed.decision.answer).all()


def test_a_batch_in_pieces_is_the_same_batch(run: Run, router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    x = queries(run.federation)
    whole = router.route(x)
    monkeypatch.setattr("fedroute.router.router.NUMBERS", 60)
    pieces = router.route(x)
    assert torch.equal(whole.decision.client, pieces.decision.client)
    assert len(pieces) == len(x)
    assert [r["reason"] for r in pieces.rows()] == [r["reason"] for r in whole.rows()]


def test_no_query_is_no_route(router: Router) -> None:
    assert router.route(torch.zeros(0, 4)).rows() == []


def test_whoever_is_away_is_not_asked(run: Run, router: Router) -> None:
    x = queries(run.federation)
    routed = router.route(x, away=["birch"])
    assert 1 not in routed.decision.client.tolist()
    assert not (routed.posterior[:, 1] > 0).any()
    for row in routed.rows():
        assert "birch" not in (row["client"], row["runner_up"])
        assert "birch" not in row["reason"]
    with pytest.raises(InputError, match="no client 'brich'; did you mean 'birch'"):
        router.route(x, away=["brich"])
    with pytest.raises(InputError, match="every client is away"):
        router.route(x, away=router.clients)


def test_who_leaves_is_never_chosen_and_nobody_else_is_touched(run: Run, router: Router) -> None:
    x = queries(run.federation)
    left = router.leave("birch")
    assert left.clients == ("ash", "cedar")
    before, after = router.scores(x), left.scores(x)
    assert torch.equal(before.heads[:, [0, 2]], after.heads)
    gap = before.router[:, 0] - before.router[:, 2]
    assert torch.allclose(after.router[:, 0] - after.router[:, 1], gap, atol=1e-9)
    assert {r["client"] for r in left.route(x).rows()} <= {"ash", "cedar", None}
    with pytest.raises(InputError, match="no client 'birch'"):
        left.leave("birch")
    with pytest.raises(InputError, match="nobody would be left"):
        left.leave("ash").leave("cedar")


@pytest.mark.parametrize("kind", ["lda", "ridge", "cells", "softmax"])
def test_who_joins_is_reachable_by_one_upload_and_nobody_else_is_touched(kind: str) -> None:
    whole = opposed(clients=4)
    late = len(whole.clients) - 1
    others = ran(replace(whole, newcomers=(late,)), router={"kind": kind, "input": "columns", "random_features": 0})
    assert others.router
    few = others.router.leave(whole.clients[late])
    assert whole.clients[late] not in few.clients
    weights, rows = others.personal(late), whole.train[late]
    joined = few.join(whole.clients[late], weights, few.upload(whole.x[rows], whole.y[rows]))
    x, mine = queries(whole), whole.x[whole.test[late]]
    before, after = few.scores(x).router, joined.scores(x).router[:, :-1]
    assert torch.allclose(before - before[:, :1], after - after[:, :1], atol=1e-9)
    found = joined.route(mine).posterior.argmax(1) == len(few.clients)
    assert found.double().mean() > 0.8
    with pytest.raises(InputError, match="is there already"):
        joined.join(whole.clients[late], weights, few.upload(whole.x[rows], whole.y[rows]))
    with pytest.raises(InputError, match="of another model"):
        few.join("oak", {"no.such": torch.zeros(1)}, few.upload(whole.x[rows], whole.y[rows]))


def test_newcomers_are_reachable(run: Run) -> None:
    whole = opposed(clients=4)
    federation = replace(whole, newcomers=(1,))
    router = ran(federation, router="lda").router
    assert router
    assert sorted(router.clients) == sorted(whole.clients)
    found = router.route(whole.x[whole.test[1]]).posterior.argmax(1) == router.clients.index(whole.clients[1])
    assert found.double().mean() > 0.8


@pytest.mark.parametrize("wrong", [torch.zeros(2, 3), torch.zeros(2, 4, 1), torch.full((1, 4), torch.nan)])
def test_a_query_of_another_form_is_refused(router: Router, wrong: Tensor) -> None:
    with pytest.raises(InputError, match="the queries"):
        router.route(wrong)


@pytest.mark.parametrize("wrong", [None, "a query", {"x": 1}, [[1, 2], [3]]])
def test_what_is_no_query_at_all_is_refused_in_words(router: Router, wrong: Any) -> None:
    with pytest.raises(InputError, match=r"the queries: .* cannot be read as numbers"):
        router.route(wrong)


@pytest.mark.parametrize("wrong", [None, "a query", 3])
def test_what_is_no_table_is_refused_in_words(wrong: Any, tmp_path: Path) -> None:
    table = pa.table({"h": ["a", "b"] * 30, "v": [i % 7 + 0.5 for i in range(60)], "y": [0, 1, 1] * 20})
    parquet.write_table(table, tmp_path / "t.parquet")
    spec = {"source": "parquet", "path": str(tmp_path / "t.parquet"), "client": "h", "label": "y"}
    run = ran(load_federation(spec), router={"kind": "lda", "random_features": 0})
    assert run.router
    with pytest.raises(InputError, match="is no table; give column -> values, or rows"):
        run.router.route(wrong)


def test_who_joins_without_weights_or_upload_is_refused(run: Run, router: Router) -> None:
    with pytest.raises(InputError, match="late joins with the weights it predicts with"):
        router.join("late", None, None)  # type: ignore[arg-type]


# capacity


def test_nobody_takes_more_than_its_share() -> None:
    federation = opposed()
    router = ran(federation, router={"kind": "lda", "random_features": 0, "capacity": {"ash": 0.2}}).router
    assert router
    x = federation.x[federation.test[0]]  # all of them ash's
    routed = router.route(x)
    assert (routed.decision.client == 0).sum() <= -(-len(x) // 5)
    free = replace(router, capacity=None).route(x)
    assert (free.decision.client == 0).double().mean() > 0.5
    again = replace(router, capacity=replace(router.capacity, share=torch.ones(3).double())).route(x)  # type: ignore[type-var]
    assert torch.equal(again.decision.client, free.decision.client)
    assert torch.allclose(again.decision.answer, free.decision.answer, atol=1e-6)


# abstaining


def test_what_is_like_nobody_is_turned_away_and_what_is_known_is_not() -> None:
    federation = opposed(rows=400)
    run = ran(federation, router={"kind": "lda", "random_features": 0, "abstain": 0.05})
    assert run.router
    assert run.routing
    known, foreign = run.router.route(queries(federation)), run.router.route(torch.full((9, 4), -12.0))
    assert foreign.abstained.all()
    assert known.abstained.double().mean() < 0.08
    assert run.routing["abstain"]["share"] == known.abstained.double().mean()
    row = foreign.rows()[0]
    assert (row["client"], row["answer"], row["abstained"]) == (None, None, True)
    assert row["runner_up"] in federation.clients
    assert "unlike any client's rows" in row["reason"]
    never = ran(federation, router={"kind": "lda", "random_features": 0, "abstain": None}).router
    assert never
    assert not never.route(torch.full((9, 4), -12.0)).abstained.any()


def test_who_joins_is_known_from_then_on_and_who_left_is_not() -> None:
    federation = opposed(rows=400, apart=9.0)
    run = ran(federation, router={"kind": "lda", "random_features": 0})
    assert run.router
    x, rows = federation.x[federation.test[2]], federation.train[2]
    assert not run.router.route(x).abstained.double().mean() > 0.1
    left = run.router.leave("cedar")
    assert left.route(x).abstained.all()
    again = left.join("cedar", run.personal(2), left.upload(federation.x[rows]))
    assert again.route(x).abstained.double().mean() < 0.1
    away = run.router.route(x, away=["cedar"])
    assert away.abstained.all()


# on disk


def test_what_is_loaded_routes_as_what_was_saved(run: Run, router: Router, tmp_path: Path) -> None:
    router.save(tmp_path)
    x = queries(run.federation)
    for place in (tmp_path, tmp_path / "router"):
        loaded = Router.load(place)
        assert same(loaded.route(x), router.route(x))
        assert loaded.route(x).rows() == router.route(x).rows()
        assert evaluate_router(loaded, run.federation, seed=run.seed) == run.routing
    router.leave("ash").save(tmp_path)
    assert Router.load(tmp_path).clients == ("birch", "cedar")
    assert len(list((tmp_path / "router").iterdir())) == 2  # what the one before had is gone


@pytest.mark.parametrize(
    "algorithm", ["fedavg", "fedper", "fedrod", "pfedme", "ditto", "fedbn", "knn_per", "fedavg_ft"]
)
def test_every_way_to_be_personal_survives_the_disk(algorithm: str, tmp_path: Path) -> None:
    """One model for all, heads, whole models, mixtures, stores of rows."""
    federation = opposed(rows=40)
    model = "mlp_bn" if algorithm == "fedbn" else "mlp"
    run = ran(
        federation,
        algorithm,
        model={"name": model, "hidden": [6]},
        rounds=2,
        router={"kind": "lda", "input": "columns"},
    )
    assert run.router
    run.router.save(tmp_path)
    loaded = Router.load(tmp_path)
    assert same(loaded.route(queries(federation)), run.router.route(queries(federation)))
    for i in range(3):
        w = run.personal(i)
        assert all(torch.equal(v, w[k]) for k, v in loaded.models.personal[i].items())


def test_a_model_of_ones_own_must_be_given(tmp_path: Path) -> None:
    federation = opposed(rows=40)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    run = ran(federation, "fedper", model=model, roles={"2.": "head"}, rounds=2)
    assert run.router
    run.router.save(tmp_path)
    with pytest.raises(InputError, match=r"a model of your own: give it, as in Router\.load\(folder, model=\.\.\.\)"):
        Router.load(tmp_path)
    loaded = Router.load(tmp_path, model=model, roles={"2.": "head"})
    assert same(loaded.route(queries(federation)), run.router.route(queries(federation)))


def test_a_write_that_fails_leaves_the_router_that_was_there(
    router: Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router.save(tmp_path)
    from fedroute.router import stored

    def full(path: Path, data: Any) -> None:
        if path.name == stored.FILE:
            raise RunFailed(f"{path}: not written: the disk is full")
        path.write_bytes(data)

    with monkeypatch.context() as m:
        m.setattr(stored, "write", full)
        with pytest.raises(RunFailed, match="the disk is full"):
            router.leave("ash").save(tmp_path)
    assert Router.load(tmp_path).clients == router.clients


def spoil(folder: Path, how: str) -> None:
    document = folder / "router" / "router.json"
    (tensors,) = (folder / "router").glob("*.safetensors")
    match how:
        case "bit":
            data = bytearray(tensors.read_bytes())
            data[-1] ^= 1
            tensors.write_bytes(data)
        case "gone":
            tensors.unlink()
        case "torn":
            document.write_text(document.read_text()[:100])
        case "newer":
            document.write_text(json.dumps(json.loads(document.read_text()) | {"schema": 99}))
        case "none":
            document.unlink()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("bit", "is not what was written"),
        ("gone", "the router is not whole"),
        ("torn", "not readable"),
        ("newer", "a router of schema 99"),
        ("none", "no run here"),
    ],
)
def test_a_damaged_router_is_refused_in_words(router: Router, tmp_path: Path, how: str, words: str) -> None:
    router.save(tmp_path)
    spoil(tmp_path, how)
    with pytest.raises(InputError, match=words) as e:
        Router.load(tmp_path)
    assert str(tmp_path) in str(e.value)


# what a run does with it


def test_a_run_that_was_interrupted_makes_the_same_router(tmp_path: Path) -> None:
    federation = opposed(rows=60)
    whole = ran(federation, out=tmp_path / "whole", rounds=4)

    def stop(phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(federation, out=tmp_path / "two", rounds=4, progress=stop)
    assert not (tmp_path / "two" / "router").exists()
    resumed = ran(federation, out=tmp_path / "two", rounds=4, resume=True)
    assert resumed.routing == whole.routing
    files: Sequence[Path] = sorted((tmp_path / "whole" / "router").iterdir())
    for file in files:
        assert file.read_bytes() == (tmp_path / "two" / "router" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("drm", "the branch is trained by algorithm feddrm"),
        ({"kind": "ldaa"}, "router.kind: 'ldaa'"),
        ({"input": "style"}, "router.input: style is of images"),
        ({"input": "layer:conv9"}, "router.input: the model has no layer 'conv9'"),
        ({"arrival": {"ash": 0.5, "oak": 0.5}}, "router.arrival: trees has no client 'oak'"),
        ({"capacity": {"oak": 0.5}}, "router.capacity: trees has no client 'oak'"),
    ],
)
def test_what_cannot_be_is_refused_before_any_training(spec: Any, words: str) -> None:
    def trained(*_: Any) -> None:
        raise AssertionError("it went on")

    with pytest.raises(InputError) as e:
        ran(opposed(rows=20), router=spec, progress=trained)
    assert words in str(e.value)


def test_an_input_that_private_weights_change_is_refused_before_any_training() -> None:
    def trained(*_: Any) -> None:
        raise AssertionError("it went on")

    with pytest.raises(InputError, match=r"router\.input: deep"):
        ran(opposed(rows=20), "lg_fedavg", model="mlp", router={"input": "deep"}, progress=trained)


def test_numbers_to_predict_have_no_router() -> None:
    federation = replace(opposed(rows=20), y=torch.rand(60), labels=())
    with pytest.raises(InputError, match="router: trees has numbers to predict"):
        ran(federation, "fedavg")
