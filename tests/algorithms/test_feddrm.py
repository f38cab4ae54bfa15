"""FedDRM in use: what its branch shares with the labels, what it refuses, what it does round by round."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedroute.algorithms import make
from fedroute.algorithms.feddrm import SKETCH, FedDRM
from fedroute.algorithms.fedper import FedPer
from fedroute.branch import Branched
from fedroute.certificates.rig import classes, federation, gap, network, train
from fedroute.config import Training
from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.data.spec import Dirichlet, Split
from fedroute.engines.base import Work, context
from fedroute.engines.sequential import Sequential
from fedroute.errors import InputError
from fedroute.evaluate.predict import predict
from fedroute.manifest import manifest
from fedroute.models import build
from fedroute.rounds import State, prepare, run_round, start, work_of_round
from fedroute.training import fit
from fedroute.tree import Tree, nbytes, pick

TRAINING = Training(rounds=2, lr=0.1, batch_size=8)
WHOLE = Training(rounds=1, lr=0.1, batch_size=1000)


@pytest.fixture(scope="module")
def digits() -> Federation:
    found = load_digits()
    x, y = torch.tensor(found.data[:900], dtype=torch.float32) / 16, torch.tensor(found.target[:900])
    names = [str(k) for k in range(10)]
    split = Split(validation=0.1, test=0.3)
    return Federation.from_arrays(x, y, partition=Dirichlet(alpha=0.3, clients=5), labels=names, split=split)


def images(clients: int = 8, size: int = 32) -> Federation:
    """A row for each client, of colour."""
    y = torch.arange(clients) % 10
    f = federation(torch.rand(clients, 3, size, size), y, [1] * clients)
    return replace(f, labels=tuple(map(str, range(10))))


def trained(f: Federation, task: Task, t: Training = TRAINING, **options: Any) -> tuple[FedDRM, State]:
    alg, state = train(FedDRM(**options), f, task, t)
    assert isinstance(alg, FedDRM)
    return alg, state


def gradient(alg: FedDRM, f: Federation, state: State, w: Tree, client: int) -> tuple[Tree, Tensor]:
    ctx = context(alg, state.server, state.privates[client], client, Work(0, 0, 0.1, (client,), {client: []}), f)
    g, _, loss = alg.grad(w, f.take(f.train[client]), ctx)
    return g, loss


def test_the_papers_resnet_has_the_papers_sizes() -> None:
    """11,168,832 of the body, 134,410 of the labels' path, 133,896 of the router's; private the last 2,570."""
    f = images()
    task = Task(*build({"name": "resnet18_gn", "neck": 256}, f, 0))
    alg = FedDRM(branch=256).bind(task)
    server, private = alg.init(task.init() | alg.task.init(), f.sizes()), alg.init_client(alg.task.init())
    count = {k: v.numel() for k, v in (server["w"] | private["w"]).items()}
    parts = {"features": 11_168_832, "branch": 133_896, "neck": 134_410 - 2_570, "head": 2_570}
    assert {p: sum(n for k, n in count.items() if k.startswith(p)) for p in parts} == parts
    assert {*private["w"]} == {"head.weight", "head.bias"}


@pytest.mark.parametrize(("share", "layers"), [("none", 0), ("shallow", 1), ("mid", 2), ("deep", 4)])
def test_what_labels_and_router_share_of_a_lenet(share: Any, layers: int) -> None:
    """Of two convolutions and two linear layers; each has a norm, and both a weight and a bias."""
    f = images()
    task = Task(*build("lenet_gn", f, 0))
    alg = FedDRM(share=share).bind(task)
    body = [k for k in task.names if k.startswith("features.")]
    own = alg.model.branch - alg.model.by_client - {f"branch.{k}" for k in ("weight", "bias", "scale", "shift")}
    assert alg.model.trunk == {*body[: 4 * layers]}
    assert len(own) == len(body) - 4 * layers
    assert {alg.task.roles[k] for k in alg.model.branch} == {"router"}


@pytest.mark.parametrize("share", ["none", "shallow", "mid", "deep"])
def test_detached_the_labels_learn_as_in_fedper_at_every_level(share: Any, digits: Federation) -> None:
    task, t = Task(*build("mlp", digits, 0)), Training(rounds=2, batch_size=32, momentum=0.9)
    alg, a = trained(digits, task, t, share=share, detach=True)
    _, b = train(FedPer(), digits, task, t)
    assert gap(pick(a.server["w"], task.names), b.server["w"]) == 0
    moved = {k for k in alg.model.branch if not torch.equal(a.server["w"][k], start(alg, digits).server["w"][k])}
    assert moved == alg.model.branch


def test_with_nothing_shared_the_labels_do_not_feel_the_router(digits: Federation) -> None:
    """lam is a learning rate then."""
    task = Task(*build("mlp", digits, 0))
    _, a = trained(digits, task, Training(rounds=1, lr=0.1), share="none", lam=0.5)
    _, b = train(FedPer(), digits, task, Training(rounds=1, lr=0.05))
    assert gap(pick(a.server["w"], task.names), b.server["w"]) < 1e-6


def test_more_than_one_step_drifts() -> None:
    f, task = classes([5, 40, 20, 12]), network(norm=False)
    _, once = trained(f, task, WHOLE.model_copy(update={"rounds": 2}), lam=0.5)
    _, twice = trained(f, task, WHOLE.model_copy(update={"local_steps": 2}), lam=0.5)
    assert gap(once.server["w"], twice.server["w"]) > 1e-3


def test_the_gradient_is_that_of_the_loss() -> None:
    """Central differences, of one number of each weight."""
    f, task = classes([5, 40, 20]), network()
    alg, state = trained(f, task, lam=0.3, cells=True)
    w = state.server["w"] | state.privates[1]["w"]
    g, _ = gradient(alg, f, state, w, 1)
    for k in alg.task.trainable:
        step = torch.zeros_like(w[k]).flatten()
        step[0] = 1e-5
        up, down = (gradient(alg, f, state, w | {k: w[k] + s * step.view_as(w[k])}, 1)[1] for s in (1, -1))
        assert abs(float((up - down) / 2e-5 - g[k].flatten()[0])) < 1e-7, k


def test_other_clients_logits_are_only_pushed_down() -> None:
    f, task = classes([5, 40, 20]), network(norm=False)
    alg, state = trained(f, task, lam=0.5)
    for i in range(3):
        g, _ = gradient(alg, f, state, state.server["w"] | state.privates[i]["w"], i)
        offsets = g[next(k for k in g if k.endswith("offsets"))].squeeze(1)
        assert float(offsets[i]) < 0
        assert bool((offsets[torch.arange(3) != i] > 0).all())


def test_heads_stay_and_the_router_has_a_row_for_each_client() -> None:
    f, task = classes([9, 20, 17]), network()
    alg, state = trained(f, task)
    assert not {k for k in state.server["w"] if alg.task.roles[k] == "head"}
    assert {tuple(state.server["w"][k].shape[:2]) for k in alg.model.by_client} == {(3, 1)}
    heads = [p["w"] for p in state.privates.values()]
    assert all({*w} == alg.kept for w in heads)
    assert gap(heads[0], heads[1]) > 0.01, "heads do not differ"


def test_a_client_without_rows_changes_nothing_with_cells_either() -> None:
    f, task = classes([0, 9, 20, 17]), network()
    without = replace(f, clients=f.clients[1:], train=f.train[1:], validation=f.validation[1:], test=f.test[1:])
    (alg, a), (_, b) = (trained(g, task, cells=True) for g in (f, without))
    for k, v in a.server["w"].items():
        if k in alg.model.by_client:
            assert not v[0].any()
            v = v[1:]
        assert gap({k: v}, {k: b.server["w"][k]}) < 1e-12


def test_clients_in_another_order_are_rows_in_another_order() -> None:
    """One step of all rows a round, so that no name decides about a batch, from the same rows at the start."""
    f, task, order = classes([9, 20, 17]), network(norm=False), [2, 0, 1]
    found = []
    for g, places in ((f, [0, 1, 2]), (replace(f, train=tuple(f.train[i] for i in order)), order)):
        alg = prepare(FedDRM(lam=0.5), task, WHOLE)
        assert isinstance(alg, FedDRM)
        state, names = start(alg, g), alg.model.by_client
        begun = start(alg, f).server["w"]
        state.server["w"] |= {k: begun[k][places] for k in names}
        for r in range(3):
            state = run_round(alg, Sequential(alg, g), g, WHOLE, state, work_of_round(alg, g, WHOLE, 0, r))
        found.append(state.server["w"])
    for k, v in found[0].items():
        assert gap({k: v[order] if k in names else v}, {k: found[1][k]}) < 1e-12


def test_one_client_is_certain() -> None:
    alg, state = trained(classes([20]), network())
    z = predict(alg.router(), state.server["w"], classes([20]).x)
    assert torch.equal(z.softmax(1), torch.ones(20, 1, dtype=torch.float64))


@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("kind", ["of the zoo", "of one's own"])
def test_the_router_needs_no_head_and_says_what_training_saw(kind: str, cells: bool, digits: Federation) -> None:
    if kind == "of the zoo":
        f, task = digits, Task(*build({"name": "mlp", "hidden": [32]}, digits, 0))
    else:
        f, task = replace(classes([9, 20, 17]), labels=("a", "b", "c")), network(norm=False)
    alg, state = trained(f, task, cells=cells, lam=0.5)
    both = alg.task(state.server["w"] | state.privates[0]["w"], f.x[:5])[1]
    assert both.shape == (5, len(f.clients), *([len(f.labels)] if cells else []))
    z = predict(alg.router(), state.server["w"], f.x[:5])
    assert torch.allclose(z, both.logsumexp(2) if cells else both)
    assert predict(alg.predictor(), alg.personal(state.server, state.privates[0]), f.x[:5]).shape == (5, len(f.labels))


def test_lam_tunes_itself_and_the_sketch_keeps_lengths(digits: Federation) -> None:
    task = Task(*build("mlp", digits, 0))
    alg, state = trained(digits, task, Training(rounds=4, batch_size=32))
    assert 0 < float(state.server["lam"]) < 1
    assert abs(float(state.server["lam"]) - 0.5) > 0.02
    first = start(alg, digits)
    g, _ = gradient(alg, digits, first, first.server["w"] | first.privates[0]["w"], 0)
    length = sum(float(g[k].square().sum()) for k in alg.signs)
    assert {*alg.signs} == alg.model.trunk
    assert 0.6 < float(alg.sketch(g)[-1]) / length < 1.6


def test_a_fixed_lam_measures_nothing_and_sends_nothing_for_it() -> None:
    f, task = classes([9, 20]), network()
    for options in ({"lam": 0.9}, {"lam": "auto", "detach": True}):
        alg, state = trained(f, task, **options)
        assert float(state.server["lam"]) == (0.9 if options["lam"] == 0.9 else 0.5)
        assert sum(e.bytes for e in manifest(alg, f) if e.tensor == "dg") == 0
    alg, _ = trained(f, task)
    assert sum(e.bytes for e in manifest(alg, f) if e.tensor == "dg") == 2 * (SKETCH + 1) * 8


def test_the_manifest_says_what_leaves(digits: Federation) -> None:
    alg = prepare(FedDRM(), Task(*build("mlp", digits, 0)), TRAINING)
    assert isinstance(alg, FedDRM)
    rows = {e.tensor: e for e in manifest(alg, digits)}
    assert {rows[k].direction for k in alg.model.branch} == {"both"}
    assert {rows[k].role for k in alg.model.branch} == {"router"}
    assert {rows[k].direction for k in ("head.weight", "head.bias")} == {"stays"}
    assert rows["branch.rows"].bytes == 5 * 128 * 4


def test_a_run_from_its_name_to_its_ledger(digits: Federation, tmp_path: Any) -> None:
    run = fit(digits, "mlp", "feddrm", rounds=20, batch_size=16, lr=0.1, out=tmp_path / "run", log=lambda text: None)
    summary = run.summary()
    assert not summary["quarantined"]
    assert summary["accuracy"]["personal"]["mean"] > 0.5
    assert summary["accuracy"]["global"]["mean"] is None
    again = fit(
        digits,
        "mlp",
        "feddrm",
        rounds=20,
        batch_size=16,
        lr=0.1,
        out=tmp_path / "run",
        resume=True,
        log=lambda text: None,
    )
    assert again.summary()["weights_sha256"] == summary["weights_sha256"]
    assert isinstance(run.algorithm, FedDRM)
    z = predict(run.algorithm.router(), run.state.server["w"], digits.x)
    own = torch.cat([(z[rows].argmax(1) == i) for i, rows in enumerate(digits.test)]).double().mean()
    assert float(own) > 0.3, "five clients, told apart at chance"
    assert nbytes(run.state.privates[0]) == 4 * (32 + 1) * 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lam": 1.5}, "algorithm.lam"),
        ({"lam": "aut"}, "algorithm.lam"),
        ({"branch": 0}, "algorithm.branch: Input should be greater than or equal to 1"),
        ({"share": "deeper"}, "algorithm.share: Input should be 'none', 'shallow', 'mid' or 'deep'"),
        ({"lamda": 0.5}, "algorithm.lamda: unknown key; did you mean lam?"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        make({"name": "feddrm", **options})


def test_what_it_refuses() -> None:
    with pytest.raises(InputError, match=r"1\.bias would stay with its client, and the router reads with it"):
        FedDRM(private=("norm",)).bind(network())
    with pytest.raises(InputError, match="feddrm treats the head by itself"):
        FedDRM().bind(Task(nn.Linear(3, 2)))
    with pytest.raises(InputError, match=r"algorithm\.share: mid parts a net of the zoo.*take deep"):
        FedDRM(share="mid").bind(network())
    numbers = federation(torch.rand(20, 3), torch.rand(20), [10, 10])
    with pytest.raises(InputError, match="needs targets that are classes"):
        fit(numbers, "mlp", {"name": "feddrm", "cells": True}, rounds=1, log=lambda text: None)


def test_numbers_may_be_predicted() -> None:
    f = federation(torch.rand(40, 3), torch.rand(40), [20, 20])
    run = fit(f, "mlp", "feddrm", rounds=1, alone=False, log=lambda text: None)
    assert isinstance(run.algorithm.task, Branched)
    assert not run.state.quarantined
