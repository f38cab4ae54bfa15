"""The manifest says what really travels."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from fedroute.algorithms import ALGORITHMS, make
from fedroute.core import Algorithm, Context, Task, run_client
from fedroute.data.federation import Federation
from fedroute.engines.base import Work, context
from fedroute.errors import InputError
from fedroute.manifest import manifest
from fedroute.models import build
from fedroute.tree import Tree, Weights, flatten, nbytes

Make = Callable[..., Federation]


def real_round(alg: Algorithm, federation: Federation) -> tuple[Tree, Tree, Tree]:
    """(update, broadcast, private state) of a client that really trains two steps."""
    w = alg.task.init()
    server, private = alg.init(w, federation.sizes()), alg.init_client(w)
    steps = [federation.train[0][i : i + 3] for i in (0, 3)]
    ctx = context(alg, server, private, 0, Work(0, 0, 0.1, (0,), {0: steps}), federation)
    update, kept, _ = run_client(alg, ctx, [federation.take(rows) for rows in steps])
    return update, ctx.server, kept


@pytest.mark.parametrize("private", [[], ["norm"], ["head"], ["norm", "head"]], ids="+".join)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_bytes_are_those_of_a_real_round(name: str, private: list[str], federation: Make) -> None:
    data = federation((6,), 3)
    try:
        alg = make({"name": name, "private": private}).bind(Task(*build({"name": "mlp_bn", "hidden": [5]}, data, 0)))
    except InputError as e:
        pytest.skip(f"refused in words: {e}")
    update, broadcast, kept = real_round(alg, data)
    entries = manifest(alg, data)
    assert sum(e.bytes for e in entries if e.leaves) == nbytes(update)
    assert sum(e.down_bytes for e in entries) == nbytes(broadcast)
    assert sum(e.bytes for e in entries if e.direction == "stays") == nbytes(kept)
    assert len({e.tensor for e in entries}) == len(entries)
    assert {e.tensor for e in entries} >= set(alg.task.names)
    assert not {e.tensor for e in entries if e.leaves} & alg.kept
    assert all(e.leaves == (e.direction in ("up", "both")) for e in entries)


def test_fedbn_on_a_resnet18_sends_exactly_the_22_tensors_that_are_no_norms(federation: Make) -> None:
    task = Task(*build("resnet18_bn", federation((3, 8, 8)), 0))
    entries = manifest(make({"name": "fedavg", "private": ["norm"]}).bind(task))
    assert sum(e.leaves for e in entries) == 22
    assert len(entries) == 122
    assert all(e.leaves == (e.role != "norm") for e in entries)


def test_scaffold_sends_control_variates_besides_and_keeps_its_own(federation: Make) -> None:
    data = federation((6,), 3)
    entries = {e.tensor: e for e in manifest(make("scaffold").bind(Task(*build("linear", data, 0))))}
    assert entries["head.weight"].direction == "both"
    assert entries["dc/head.weight"][1:5] == ("head", True, 6 * 3 * 4, "up")
    assert entries["c/head.weight"][1:5] == ("head", False, 6 * 3 * 4, "down")
    assert entries["private/c/head.weight"].direction == "stays"


def test_nothing_leaves_a_client_that_trains_alone(federation: Make) -> None:
    entries = manifest(make("alone").bind(Task(*build("mlp_bn", federation((6,)), 0))))
    assert {(e.leaves, e.direction, e.down_bytes) for e in entries} == {(False, "stays", 0)}


def test_frozen_weights_come_down_and_never_go_up_and_counts_travel_as_floats() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    entries = {e.tensor: e for e in manifest(make("fedavg").bind(Task(module)))}
    assert entries["0.weight"][1:] == ("body", False, 64, "down", 64)
    assert entries["1.num_batches_tracked"][1:] == ("norm", True, 4, "both", 8)


@dataclass(frozen=True, kw_only=True)
class OwnCopy(Algorithm):
    """Keeps a model of its own besides the shared one, and sends a number of no weight."""

    def init_client(self, w: Weights) -> Tree:
        return {"w": dict(w)}

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        update, _ = super().end(carry, ctx)
        return update | {"score": torch.zeros(3)}, {"w": carry["w"]}


def test_a_private_copy_does_not_hide_that_the_weight_leaves(federation: Make) -> None:
    alg = OwnCopy().bind(Task(*build("linear", federation((6,), 3), 0)))
    entries = {e.tensor: e for e in manifest(alg)}
    assert entries["head.bias"].direction == "both"
    assert entries["private/head.bias"][1:5] == ("head", False, 12, "stays")
    assert entries["score"][1:5] == ("state", True, 12, "up")


def test_rows_are_json_with_the_fixed_keys(federation: Make) -> None:
    alg = make("fednova").bind(Task(*build("linear", federation((6,), 3), 0)))
    rows = json.loads(json.dumps([e.row() for e in manifest(alg)]))
    assert all({"tensor", "role", "leaves", "bytes"} <= row.keys() for row in rows)
    update, _, _ = real_round(alg, federation((6,), 3))
    assert len([r for r in rows if r["leaves"]]) == len(flatten(update))
