"""Contender: FedLab, FedAvg with its serial trainer and StandalonePipeline, batches as slices, not a DataLoader."""

import sys
from collections.abc import Callable, Iterable
from types import ModuleType

from torch import Tensor, nn

from benchmarks.speed.turns import Job, Train, serve
from benchmarks.speed.workloads import CLIENTS, LR, SAMPLED, Plan

# FedLab imports torchvision for data sets that are not used here; torchvision has no build for every torch.
_transforms = sys.modules.setdefault("torchvision.transforms", ModuleType("transforms"))
sys.modules.setdefault("torchvision", ModuleType("torchvision")).__dict__.setdefault("transforms", _transforms)

from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.contrib.dataset import FedDataset  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402


class PlannedData(FedDataset):
    """A client's batches: views into one tensor, the cheapest that the trainer accepts."""

    def __init__(self, plan: Plan):
        self.plan = plan

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Iterable[tuple[Tensor, Tensor]]:
        rows = self.plan.rows(id)
        return zip(self.plan.x[rows].split(batch_size), self.plan.y[rows].split(batch_size), strict=True)


class PlannedHandler(FedAvgServerHandler):
    """Takes the clients of the plan instead of drawing some."""

    planned: list[tuple[int, ...]]

    def sample_clients(self) -> list[int]:
        return list(self.planned.pop(0))


class Pipeline(StandalonePipeline):
    """Evaluation off."""

    def evaluate(self) -> None:
        pass


def build(job: Job) -> tuple[Train, Callable[[], nn.Module]]:
    handler = PlannedHandler(job.model, 0, SAMPLED / CLIENTS)
    trainer = FedAvgSerialClientTrainer(job.model, CLIENTS)
    trainer.setup_dataset(PlannedData(job.plan))
    trainer.setup_optim(1, job.workload.batch, LR)
    pipeline = Pipeline(handler, trainer)

    def train(rounds: range) -> None:
        handler.planned = [job.plan.rounds[r] for r in rounds]
        handler.global_round += len(rounds)
        pipeline.main()

    return train, lambda: handler.model


if __name__ == "__main__":
    serve("fedlab", ["fedlab", "torch"], build)
