"""The right model under the right name: what the ledger calls personal is what a client predicts with, for every
algorithm, and what it calls global is the server's."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import fedroute
from fedroute.algorithms import ALGORITHMS
from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.data.spec import Split
from fedroute.evaluate.ledger import make_ledger
from fedroute.run import Run
from fedroute.tree import Weights

CLIENTS = 3
ONE_MODEL = {"afl", "fedavg", "feddyn", "fednova", "fedprox", "fedprox_adaptive", "moon", "qffl", "scaffold"}
NONE_SHARED = {  # nobody has a whole model in common
    "alone", "fedamp", "fedbn", "feddbe", "feddrm", "fedfomo", "fedpac", "fedper", "fedrep", "ifca", "lg_fedavg",
    "pfedme_fedbn",
}  # fmt: skip
# enough local steps at the end, or a pull weak enough, for a client to say what all its rows say
OPTIONS: dict[str, dict[str, Any]] = {
    "fedavg_ft": {"adapt_epochs": 20},
    "fedbabu": {"adapt_epochs": 20},
    "fedprox_ft": {"adapt_epochs": 20},
    "interpolation": {"adapt_epochs": 20},
    "perfedavg": {"alpha": 0.2, "adapt_epochs": 30},
    "pfedme": {"lam": 1.0, "inner_lr": 0.2},
    "pfedme_fedbn": {"lam": 1.0, "inner_lr": 0.2},
    "ifca": {"k": 3},
}
ROUNDS = {"fedbn": 40, "lg_fedavg": 40}


def one_label_each() -> Federation:
    """Client i's rows all say i, and its features tell nothing: they are drawn alike for all."""
    x = torch.rand(CLIENTS * 40, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(CLIENTS).repeat_interleave(40)
    owner = [f"client_{i}" for i in y.tolist()]
    return Federation.from_arrays(x, y, owner, labels=["a", "b", "c"], split=Split(validation=0.0, test=0.25))


def right(task: Task, w: Weights, x: Tensor, y: Tensor) -> float:
    """The accuracy of a module that has these weights, without a word of fedroute's own evaluation."""
    module = copy.deepcopy(task.module).eval()
    assert w.keys() == module.state_dict().keys()
    with torch.no_grad():
        out = functional_call(module, w, (x,))
    logits = out[0] if isinstance(out, tuple) else out  # MOON's module also gives what it contrasts
    return float((logits.argmax(1) == y).double().mean())


def trained(name: str) -> Run:
    return fedroute.fit(
        one_label_each(), {"name": "mlp_bn", "hidden": [8]}, {"name": name, **OPTIONS.get(name, {})},
        rounds=ROUNDS.get(name, 12), batch_size=10, lr=0.2, alone=False, engine={"name": "sequential"},
        log=lambda text: None,
    )  # fmt: skip


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_number_is_that_of_its_model(name: str) -> None:
    run = trained(name)
    f, task = run.federation, run.algorithm.predictor()
    for i, entry in enumerate(run.ledger.entries):
        x, y = f.x[f.test[i]], f.y[f.test[i]]
        assert entry.name == f"client_{i}"
        personal = run.algorithm.personal(run.state.server, run.state.privates[i])
        assert entry.value("personal", "accuracy") == pytest.approx(right(task, personal, x, y))
        if name in NONE_SHARED:
            assert entry.scores["global"] is None
        else:
            besides = {k: v for k, v in task.init().items() if k not in run.algorithm.task.names}  # an empty store
            everybody = run.state.server["w"] | besides
            assert entry.value("global", "accuracy") == pytest.approx(right(task, everybody, x, y))
    own, shared = (
        [v for e in run.ledger.entries if (v := e.value(kind, "accuracy")) is not None]
        for kind in ("personal", "global")
    )
    if name in ONE_MODEL:
        assert own == shared
        assert sum(own) <= 1 + 0.5  # one model cannot say three things about the same features
    else:
        assert own == [1.0] * CLIENTS
        assert not shared or sum(shared) <= 1 + 0.5


def test_planted_weights_come_back_under_their_names() -> None:
    """Client i's personal model always says i, the global one always 0, the one trained alone always i + 1."""
    f, module = one_label_each(), nn.Linear(4, 3)
    task = Task(module)

    def always(label: int) -> Weights:
        return {"weight": torch.zeros(3, 4), "bias": torch.eye(3)[label % 3]}

    ledger = make_ledger(f, task, personal=always, global_w=always(0), alone=lambda i: always(i + 1), seed=0)
    assert [e.value("personal", "accuracy") for e in ledger.entries] == [1.0, 1.0, 1.0]
    assert [e.value("global", "accuracy") for e in ledger.entries] == [1.0, 0.0, 0.0]
    assert [e.value("alone", "accuracy") for e in ledger.entries] == [0.0, 0.0, 0.0]
    assert [e.better_off for e in ledger.entries] == ["yes", "yes", "yes"]
    rows = {r["client"]: r for r in ledger.rows()}
    assert [rows[f"client_{i}"]["personal"] for i in range(3)] == [1.0, 1.0, 1.0]
    assert [c["global"] for c in ledger.summary()["clients"]] == [1.0, 0.0, 0.0]
