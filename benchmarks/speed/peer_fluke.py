"""Contender: fluke, FedAvg with its FastDataLoader (slices, no shuffling), every evaluation off, models in memory."""

from collections.abc import Callable, Mapping, Sequence

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from fluke.utils import FederationObserver
from torch import nn

from benchmarks.speed.turns import Job, Spent, Train, serve
from benchmarks.speed.workloads import CLASSES, CLIENTS, LR, SAMPLED


class PlannedServer(Server):
    """Takes the clients of the plan instead of drawing some."""

    planned: list[tuple[int, ...]]

    def get_eligible_clients(self, eligible_perc: float) -> Sequence[Client]:
        return [self.clients[i] for i in self.planned.pop(0)]


class Clock(FederationObserver):
    """The time of the rounds only: a fluke run ends with a last broadcast to everybody, which is not training."""

    def __init__(self) -> None:
        self.spent = self._start = Spent(0.0, 0.0)

    def start_round(self, round: int, global_model: object) -> None:
        self._start = Spent.now()

    def end_round(self, round: int) -> None:
        more = Spent.now().since(self._start)
        self.spent = Spent(self.spent.wall + more.wall, self.spent.cpu + more.cpu)


def build(job: Job) -> tuple[Train, Callable[[], nn.Module]]:
    env = FlukeENV()
    env.set_device("cpu")
    env.set_inmemory(True)
    env.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    plan, optimizer = job.plan, OptimizerConfigurator(DDict(name="SGD", lr=LR))

    def client(i: int) -> Client:
        x, y = plan.x[plan.rows(i)], plan.y[plan.rows(i)]
        loader = FastDataLoader(x, y, num_labels=CLASSES, batch_size=job.workload.batch, skip_singleton=False)
        return Client(i, loader, None, optimizer, nn.CrossEntropyLoss(), local_epochs=1)

    clients = [client(i) for i in range(CLIENTS)]
    server = PlannedServer(job.model, None, clients, weighted=True)
    algorithm = FedAVG(CLIENTS, None, None, clients=clients, server=server)
    clock = Clock()
    algorithm.set_callbacks([clock])

    def train(rounds: range) -> Mapping[str, float | None]:
        server.planned, clock.spent = [plan.rounds[r] for r in rounds], Spent(0.0, 0.0)
        algorithm.run(len(rounds), SAMPLED / CLIENTS)
        return {"seconds": clock.spent.wall, "cpu_seconds": clock.spent.cpu}

    return train, lambda: server.model


if __name__ == "__main__":
    serve("fluke", ["fluke-fl", "torch"], build)
