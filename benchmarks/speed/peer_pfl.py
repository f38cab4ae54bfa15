"""Contender: pfl (Apple), FedAvg on its SimulatedBackend, in-memory tensors, weighted by data points."""

import os
from collections.abc import Callable

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.speed.turns import Job, Train, serve
from benchmarks.speed.workloads import CLIENTS, LR, SAMPLED

NEVER = 10**9


class Module(nn.Module):
    """The model with the two methods that pfl asks of it."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self.model(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


def build(job: Job) -> tuple[Train, Callable[[], nn.Module]]:
    os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")  # else it looks for a GPU at every batch
    plan, module = job.plan, Module(job.model)
    users = [PyTorchTensorDataset((plan.x[plan.rows(i)], plan.y[plan.rows(i)]), user_id=str(i)) for i in range(CLIENTS)]
    cohort: list[int] = []  # the clients of the rounds to come, in order
    data = FederatedDataset(lambda i: users[i], lambda: cohort.pop(0))
    backend = SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()])
    central = torch.optim.SGD(module.parameters(), lr=1.0)
    model = PyTorchModel(module, torch.optim.SGD, central)
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=job.workload.batch)
    algorithm, done = FederatedAveraging(), 0

    def train(rounds: range) -> None:
        """A further run of one algorithm object goes on where the last ended.

        pfl evaluates in every round that evaluation_frequency divides: in round 0, the warm-up, and in no other.
        """
        nonlocal done
        cohort.extend(i for r in rounds for i in plan.rounds[r])
        done += len(rounds)
        params = NNAlgorithmParams(done, NEVER, SAMPLED, None)
        algorithm.run(params, backend, model, local, send_metrics_to_platform=False)

    return train, lambda: module.model


if __name__ == "__main__":
    serve("pfl", ["pfl", "torch"], build)
