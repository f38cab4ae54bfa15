"""pFedMe, FedDyn, MOON, FedRoD, FedDBE and kNN-Per in use: runs with a ledger, what they refuse, what they keep."""

import pickle
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call

from fedroute.algorithms import make
from fedroute.algorithms.feddbe import FedDBE
from fedroute.algorithms.fedrod import FedRoD, TwoHeads
from fedroute.algorithms.knn_per import KnnPer
from fedroute.algorithms.moon import Moon
from fedroute.algorithms.pfedme import PFedMe
from fedroute.algorithms.pfedme_fedbn import PFedMeFedBN
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Algorithm, Task
from fedroute.data.federation import Federation
from fedroute.data.spec import Dirichlet, Split
from fedroute.engines.base import Work, context
from fedroute.errors import InputError
from fedroute.evaluate.ledger import make_ledger
from fedroute.heads import TellingHead, replace_head
from fedroute.manifest import manifest
from fedroute.models import adopt, build
from fedroute.rounds import prepare, start
from fedroute.training import fit
from fedroute.tree import nbytes, sha256

NAMES = ["feddbe", "feddyn", "fedrod", "knn_per", "moon", "pfedme", "pfedme_fedbn"]
WITHOUT_GLOBAL = {"feddbe", "pfedme_fedbn"}  # a part of the model stays with the clients


@pytest.fixture(scope="module")
def digits() -> Federation:
    found = load_digits()
    x, y = torch.tensor(found.data[:900], dtype=torch.float32) / 16, torch.tensor(found.target[:900])
    names = [str(k) for k in range(10)]
    split = Split(validation=0.1, test=0.3)
    return Federation.from_arrays(x, y, partition=Dirichlet(alpha=0.3, clients=5), labels=names, split=split)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_from_its_name_to_its_ledger(name: str, digits: Federation, tmp_path: Any) -> None:
    run = fit(
        digits, "mlp_bn", name, rounds=3, batch_size=16, lr=0.1, clients_per_round=0.8, out=tmp_path / "run",
        engine="sequential", log=lambda text: None,
    )  # fmt: skip
    summary = run.summary()
    accuracy = summary["accuracy"]
    assert not summary["quarantined"]
    assert accuracy["personal"]["mean"] > 0.2
    assert accuracy["alone"]["mean"] > 0.2
    assert (accuracy["global"]["mean"] is None) == (name in WITHOUT_GLOBAL)
    if name in ("pfedme", "fedrod", "knn_per"):
        assert accuracy["global"]["mean"] != accuracy["personal"]["mean"], "reported apart"
    if name in ("feddyn", "moon"):
        assert accuracy["global"]["mean"] == accuracy["personal"]["mean"]
    out = run.predict(0, digits.x[:7])
    assert out.shape == (7, 10)
    assert bool(torch.isfinite(out).all())
    again = fit(
        digits, "mlp_bn", name, rounds=3, batch_size=16, lr=0.1, clients_per_round=0.8, out=tmp_path / "run",
        resume=True, log=lambda text: None,
    )  # fmt: skip
    assert again.summary()["weights_sha256"] == summary["weights_sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_what_leaves_is_what_is_said(name: str) -> None:
    alg = make(name).bind(network())
    entries = {e.tensor: e for e in manifest(alg)}
    assert sum(e.bytes for e in entries.values() if e.leaves) > 0
    theirs = {"feddbe": "client_", "fedrod": "personal_"}.get(name)
    if theirs:
        assert [k for k in entries if theirs in k]
        assert not [k for k, e in entries.items() if theirs in k and e.leaves]
    assert not [
        k for k, e in entries.items() if k.startswith(("private/theta", "private/before", "private/g")) and e.leaves
    ]
    if name == "pfedme_fedbn":
        assert {k for k, e in entries.items() if e.role == "norm" and e.direction != "stays"} == set()
    plain = sum(e.bytes for e in manifest(make("fedavg").bind(network())) if e.leaves)
    more = {"feddbe": 7 * 8, "pfedme_fedbn": -(7 * 4 * 8 + 4)}.get(name, 0)  # a mean of features; norms and a count
    assert sum(e.bytes for e in entries.values() if e.leaves) == plain + more


# what they refuse


def test_pfedme_refuses_an_inner_rate_that_runs_away() -> None:
    with pytest.raises(InputError, match=r"algorithm.inner_lr: 0.05 with lam 40 .* take inner_lr at most 0.025"):
        PFedMe(lam=40.0).bind(network())
    PFedMe(lam=40.0, inner_lr=0.025).bind(network())


def test_pfedme_fedbn_refuses_a_model_without_norms() -> None:
    with pytest.raises(InputError, match=r"pfedme_fedbn keeps the normalisation layers .* none"):
        PFedMeFedBN().bind(network(norm=False))


@pytest.mark.parametrize("name", ["moon", "fedrod", "feddbe", "knn_per"])
def test_a_model_whose_features_are_not_known(name: str) -> None:
    two = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2))
    for task in (Task(two), Task(two, {"2.": "head", "3.": "head"}), Task(nn.Linear(3, 2), {"weight": "head"})):
        with pytest.raises(InputError, match=r"the head must be one linear layer .*roles=\{'fc.': 'head'\}"):
            make(name).bind(task)
    make(name).bind(Task(two, {"3.": "head"}))


def test_fedrod_wants_labels_for_its_outputs() -> None:
    f, task = classes([9, 12]), network()
    with pytest.raises(RuntimeError, match="names 0 labels where the model has 3 outputs"):
        train(FedRoD(), f, task, Training(rounds=1))
    train(FedRoD(gamma=0.0), f, task, Training(rounds=1))
    with pytest.raises(RuntimeError, match="names 2 labels where the model has 3 outputs"):
        train(FedRoD(), replace(f, y=f.y.clamp(max=1), labels=("a", "b")), task, Training(rounds=1))


def test_knn_per_wants_classes() -> None:
    f = classes([9, 12])
    alg, state = train(KnnPer(), f, network(), Training(rounds=1))
    batch = f.take(f.train[0])
    with pytest.raises(InputError, match="give targets that are classes"):
        alg.adapt(around(alg, state, f), [batch | {"y": batch["y"].double()}])


def around(alg: Algorithm, state: Any, f: Federation, client: int = 0) -> Any:
    work = Work(9, 0, 0.1, (client,), {client: [f.train[client]]})
    return context(alg, state.server, state.privates[client], client, work, f)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"name": "pfedme", "lam": -1}, "algorithm.lam: Input should be greater than or equal to 0"),
        ({"name": "pfedme", "inner_steps": 0}, "algorithm.inner_steps: Input should be greater than or equal to 1"),
        ({"name": "feddyn", "alpha": 0}, "algorithm.alpha: Input should be greater than 0"),
        ({"name": "moon", "tau": 0}, "algorithm.tau: Input should be greater than 0"),
        ({"name": "knn_per", "lam": 1.5}, "algorithm.lam: Input should be less than or equal to 1"),
        ({"name": "feddbe", "mu": 0}, "algorithm.mu: Input should be greater than 0"),
    ],
)
def test_options_out_of_range(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        make(spec)


# pFedMe


def test_the_ledger_judges_theta() -> None:
    """Planted: client i's theta names class i, w names class 0, client i's rows are all of class i."""
    f = classes([6, 6, 6])
    y = torch.arange(3).repeat_interleave(6)
    f = replace(f, y=y, labels=("a", "b", "c"), test=f.train)
    task = network(norm=False)
    alg = prepare(PFedMe(), task, Training())
    state = start(alg, f)
    naming = [{k: torch.zeros_like(v) for k, v in task.init().items()} for _ in range(3)]
    for label, w in enumerate(naming):
        w["2.bias"][label] = 1
    privates = {i: p | {"theta": naming[i], "met": torch.tensor(True)} for i, p in state.privates.items()}
    server = state.server | {"w": naming[0]}
    ledger = make_ledger(
        f, alg.predictor(), personal=lambda i: alg.personal(server, privates[i]), global_w=server["w"], alone=None,
        seed=0,
    )  # fmt: skip
    accuracy = ledger.summary()["accuracy"]
    assert accuracy["personal"]["mean"] == 1
    assert accuracy["global"]["mean"] == pytest.approx(1 / 3)


def test_who_never_trained_predicts_with_w() -> None:
    f, t = classes([9, 20, 14, 11]), Training(rounds=1, lr=0.1, batch_size=8, clients_per_round=0.5)
    alg, state = train(PFedMe(), f, network(), t)
    met = [bool(p["met"]) for p in state.privates.values()]
    assert sorted(met) == [False, False, True, True]
    for i, p in state.privates.items():
        apart = gap(alg.personal(state.server, p), state.server["w"])
        assert (apart > 1e-6) == met[i]


def test_adaptive_springs_are_bounded_where_the_inner_descent_would_overshoot() -> None:
    f = replace(classes([2, 400]), labels=("a", "b", "c"))
    alg = PFedMe(lam=1.0, inner_lr=0.1, adaptive=True).bind(network(norm=False))
    state = start(alg, f)
    springs = [float(alg.spring(around(alg, state, f, i))) for i in range(2)]
    assert springs == pytest.approx([10.0, 201 / 400])  # 201 rows on average; lam 201 / 2 is over 1 / inner_lr
    with pytest.raises(RuntimeError, match=r"algorithm.adaptive: counts a client's rows by their labels"):
        train(PFedMe(adaptive=True), classes([9, 12]), network(), Training(rounds=1))


@pytest.mark.parametrize("private", ["norm", "head", "body"])
def test_pfedme_with_private_parts(private: str) -> None:
    f, task = classes([9, 20]), network(norm=private == "norm")
    alg, state = train(PFedMe(private=(private,)), f, task, Training(rounds=2, lr=0.1, batch_size=8))
    mine = task.named(private)
    assert not mine & state.server["w"].keys()
    assert not mine & state.privates[0]["theta"].keys()
    a, b = (alg.personal(state.server, p) for p in state.privates.values())
    assert a.keys() == set(task.names)
    assert all(gap({k: a[k]}, {k: b[k]}) > 0 for k in mine if k in task.trainable)


# heads


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.ReLU())
        self.top = nn.ModuleDict({"mid": nn.Linear(7, 5), "out": nn.Linear(5, 3, bias=False)})

    def forward(self, x: Tensor) -> Any:
        return self.top["out"](self.top["mid"](self.body(x)).relu())


def test_another_head_leaves_the_model_and_its_names_as_they_are() -> None:
    module = Nested().double()
    task = Task(*adopt(module, {"top.out": "head"}))
    names, before = task.names, sha256(dict(module.state_dict()))
    out = module.top["out"]
    assert isinstance(out, nn.Linear)
    two = replace_head(task, TwoHeads.of(out), place=1)
    assert set(two.names) == {*names, "top.out.personal_weight"}
    assert type(module.top["out"]) is nn.Linear
    assert tuple(Task(module).names) == names
    assert sha256(dict(module.state_dict())) == before
    f = classes([12])
    batch = f.take(f.train[0])
    telling = replace_head(task, TellingHead.of(out))
    again = pickle.loads(pickle.dumps(telling))
    logits, z = again.module(batch["x"])
    assert z.shape == (12, 5)
    torch.testing.assert_close(logits, z @ out.weight.T)
    assert torch.equal(again.loss((logits, z), batch), task.loss(logits, batch))


@pytest.mark.parametrize("name", ["moon", "fedrod", "feddbe", "knn_per"])
def test_a_head_that_lies_deep_and_has_no_bias(name: str) -> None:
    f = replace(classes([9, 20]), labels=("a", "b", "c"))
    module, roles = adopt(Nested().double(), {"top.out": "head"})
    alg, state = train(make(name), f, Task(module, roles), Training(rounds=2, lr=0.1, batch_size=8))
    private = alg.adapt(around(alg, state, f), [f.take(f.train[0])])
    out = functional_call(alg.predictor().module.eval(), alg.personal(state.server, private), (f.x[:4],))
    assert (out[0] if isinstance(out, tuple) else out).shape == (4, 3)


def test_binding_twice_is_binding_once() -> None:
    for alg in (Moon(), FedRoD(), FedDBE()):
        once = alg.bind(network())
        twice = alg.bind(once.task)
        assert twice.task.names == once.task.names
        assert twice.task.roles == once.task.roles
        assert twice.kept == once.kept


@pytest.mark.parametrize("name", ["moon", "feddbe", "fedrod"])
def test_a_convolutional_model_of_the_zoo_on_both_engines(name: str) -> None:
    x = torch.tensor(load_digits().images[:60], dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(load_digits().target[:60])
    names = [str(k) for k in range(10)]
    f = Federation.from_arrays(x, y, ["a"] * 25 + ["b"] * 35, labels=names, split=Split(validation=0.0, test=0.2))
    hashes = []
    for engine in ("sequential", "stacked"):
        run = fit(
            f, {"name": "lenet_bn", "hidden": [16], "neck": 8}, name, rounds=2, batch_size=12, lr=0.05, engine=engine,
            log=lambda text: None,
        )  # fmt: skip
        assert not run.state.quarantined
        hashes.append(run.state.server["w"])
    assert gap(*hashes) < 1e-4


# kNN-Per


def test_knn_per_helps_where_labels_mean_other_things_at_each_client() -> None:
    """Two clients who name the same rows differently: no one model can be right, neighbours are."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=g, dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    y[200:] = 1 - y[200:]
    split = Split(validation=0.0, test=0.3)
    f = Federation.from_arrays(x, y, ["a"] * 200 + ["b"] * 200, labels=("no", "yes"), split=split)
    module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).double()
    run = fit(
        f, module, KnnPer(lam=1.0, k=7), rounds=3, lr=0.1, batch_size=20, engine="sequential", log=lambda text: None
    )
    accuracy = run.summary()["accuracy"]
    assert accuracy["personal"]["mean"] > 0.75
    assert accuracy["global"]["mean"] < 0.65
    stores = [run.state.privates[i]["store"] for i in range(2)]
    assert [len(s) for s in stores] == [len(rows) for rows in f.train]
    assert nbytes({"store": stores[0]}) == stores[0].numel() * 8


def test_a_store_never_changes_the_rounds_or_the_zoo_model(digits: Federation) -> None:
    module, roles = build("mlp", digits, 0)
    alg = KnnPer().bind(Task(module, roles))
    assert alg.task.module is module
    assert set(alg.predictor().names) == {*alg.task.names, "head.store", "head.answers"}
    assert tuple(Task(module, roles).names) == alg.task.names
