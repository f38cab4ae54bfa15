"""What a newcomer gets by default: its private weights fitted to the shared ones."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.rig import classes, mean_of_outputs, network, quadratics
from fedroute.config import Training
from fedroute.core import Task
from fedroute.engines.base import Work, context
from fedroute.rounds import client_batches, prepare, start


class Sum(nn.Module):
    """f = (shared + own - a)^2 / 2 for a row x = (h, a)."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.tensor([0.7], dtype=torch.float64))
        self.own = nn.Parameter(torch.tensor([0.0], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * (self.shared + self.own - x[:, 1]) ** 2


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_private_weights_go_down_their_own_slope_and_the_shared_ones_stay(momentum: float) -> None:
    """With s = shared fixed: own <- own - lr (s + own - a), so own = (a - s) (1 - (1 - lr)^n)."""
    lr, a, n, s = 0.1, 2.0, 7, 0.7
    federation, _ = quadratics([1.0], [a], [n])
    task = Task(Sum(), loss=mean_of_outputs)
    alg = prepare(FedAvg(private=("own",)), task, Training(batch_size=1, lr=lr, momentum=momentum))
    state = start(alg, federation)
    batches = [federation.take(rows) for rows in federation.train[0].split(1)]
    work = Work(0, 0, lr, (0,), {0: list(federation.train[0].split(1))})
    private = alg.adapt(context(alg, state.server, state.privates[0], 0, work), batches)
    own, v = 0.0, 0.0
    for _ in range(n):
        v = momentum * v + (s + own - a)
        own -= lr * v
    if not momentum:
        assert abs(own - (a - s) * (1 - (1 - lr) ** n)) < 1e-12
    w = alg.personal(state.server, private)
    assert abs(float(w["own"]) - own) < 1e-12
    assert float(w["shared"]) == s


def test_without_private_weights_a_newcomer_predicts_with_the_global_model() -> None:
    federation = classes([10, 20])
    alg = prepare(FedAvg(), network(), Training())
    state = start(alg, federation)
    work = Work(0, 0, 0.1, (1,), {1: client_batches(alg, federation, Training(), 0, 0, 1)})
    private = alg.adapt(context(alg, state.server, state.privates[1], 1, work), map(federation.take, work.batches[1]))
    assert all(v is state.server["w"][k] for k, v in alg.personal(state.server, private).items())


def test_kept_statistics_of_batch_norm_are_learned_from_the_newcomers_rows() -> None:
    federation = classes([10, 400])
    federation = replace(federation, x=federation.x + 5)
    alg = prepare(FedAvg(private=("norm",)), network(), Training(batch_size=20))
    state = start(alg, federation)
    work = Work(0, 0, 0.1, (1,), {1: client_batches(alg, federation, Training(batch_size=20), 0, 0, 1)})
    private = alg.adapt(context(alg, state.server, state.privates[1], 1, work), map(federation.take, work.batches[1]))
    mean = alg.personal(state.server, private)["1.running_mean"]
    there = nn.functional.linear(
        federation.x[federation.train[1]], state.server["w"]["0.weight"], state.server["w"]["0.bias"]
    ).mean(0)
    assert float((mean - there).abs().max() / there.abs().max()) < 0.2  # 20 batches: 0.9^20 of the start is left
