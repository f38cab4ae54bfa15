"""An ordinary federation run as if its clients were elsewhere: each a site of this process, and all that crosses is
bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.engines.base import Answer, Work
from fedroute.engines.by_hand import by_hand
from fedroute.engines.transport import Transported
from fedroute.federation.inprocess import InProcess
from fedroute.federation.store import Memory
from fedroute.federation.trainer import Trainer, form_of_client
from fedroute.federation.transfer import CHUNK, Spool, spooled
from fedroute.tree import Tree


class Simulated:
    """`engine: transport`. Each site has a federation of its own client alone. Clients train one after the other, since
    they share a process; they are asked at the same time."""

    name = "transport"

    def __init__(self, algorithm: Algorithm, federation: Federation, chunk: int = CHUNK):
        self._folder = spooled()
        self._work: Work | None = None
        self._form, self._quick, self._algorithm = (
            form_of_client(algorithm, 0, len(federation.clients)), by_hand(algorithm), algorithm
        )  # fmt: skip
        self.stores = [Memory(lambda: algorithm.init_client(algorithm.task.init())) for _ in federation.clients]
        self.trainers = [self._trainer(federation, i) for i in range(len(federation.clients))]
        self.network = InProcess(dict(zip(federation.clients, self.trainers, strict=True)))
        self.network.start()
        self._engine = Transported(
            algorithm, federation.clients, self.network, form=self._form.update, timeout=1e9, chunk=chunk
        )

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        self._work, receipt = work, {"round": torch.tensor(work.round)}
        for i in work.clients:
            self.stores[i].put(work.round, privates[i])
        for a in self._engine.run(server, dict.fromkeys(work.clients, receipt), work):
            store = self.stores[a.client]
            yield a if a.error else a._replace(private=store.get(int(a.private["round"])).tree)
            store.clear()

    def close(self) -> None:
        self._engine.close()
        self.network.close()
        self._folder.cleanup()

    def _trainer(self, federation: Federation, i: int) -> Trainer:
        def plan(round: int, passes: int) -> list[Tensor]:
            assert self._work
            return self._work.batches[i]

        return Trainer(
            self._algorithm, alone(federation, i), plan, self.stores[i], Spool(Path(self._folder.name) / str(i)),
            number=i, form=self._form, quick=self._quick,
        )  # fmt: skip


def alone(federation: Federation, i: int) -> Federation:
    """A federation of client i only, with the same rows in the same places."""
    return replace(
        federation,
        clients=(federation.clients[i],),
        train=(federation.train[i],),
        validation=(federation.validation[i],),
        test=(federation.test[i],),
        newcomers=(0,) if i in federation.newcomers else (),
    )
