"""A site that has agreed: its rows, its algorithm, what it trains, what it tells of how it does, and what it serves."""

import copy
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.durable import write
from fedroute.errors import InputError
from fedroute.evaluate.predict import predict
from fedroute.federation import wire
from fedroute.federation.agreed import Terms, bound
from fedroute.federation.agreement import Agreement
from fedroute.federation.lanes import ONE
from fedroute.federation.patience import STOPPED
from fedroute.federation.store import Store
from fedroute.federation.trainer import Trainer
from fedroute.federation.transfer import Spool, number
from fedroute.federation.transport import Payload, Refused
from fedroute.rounds import client_batches
from fedroute.training import global_weights
from fedroute.tree import Tree, Weights, nbytes

if TYPE_CHECKING:
    from fedroute.service.answers import Own

SERVED, SERVED_WEIGHTS = "served.json", "served.safetensors"
ALONE, ALONE_ROUNDS = "alone.safetensors", "alone.json"
HEADER = 1 << 20  # bytes that a transfer may have besides its tensors
QUERIES = 4096  # rows of one query


class Membership:
    """One client in one federation, after its agreement.

    agreed: terms and, as `data`, the Agreement for this site; agreement: that. own: its rows by it. folder: of this
    federation at this site.
    Raises InputError where the agreement does not fit this machine, or the folder is another federation's."""

    def __init__(
        self,
        client: str,
        agreed: Terms,
        agreement: Agreement,
        own: Federation,
        folder: Path,
        spool: Spool,
        log: Callable[[str], None],
    ):
        self.agreed, self.agreement, self.own, self.folder, self.log = agreed, agreement, own, folder, log
        self.algorithm, self.training = bound(agreed, self.own)
        self.seed, self.number = int(agreed["seed"]), self.agreement.place(client)
        alg, clients = self.algorithm, len(agreed["clients"])
        if self.number >= clients and alg.own:
            raise InputError(f"{alg.describe()['name']} sends each client something of its own, and a new one has none")
        identity = {
            "federation": agreed["federation"],
            "model": f"{type(alg.task.module).__name__} {agreed['initial'][:16]}",
            "algorithm": json.dumps(alg.describe(), sort_keys=True, default=str),
            "client": client,
        }
        self.store = Store(folder / "private", identity, lambda: alg.init_client(alg.task.init()), log)
        self.trainer = Trainer(
            alg, self.own, self._plan, self.store, spool, place=self.number, number=self.number, clients=clients,
            folder=folder, bound=self.training.update_bound, log=log,
        )  # fmt: skip
        spool.most = max(map(nbytes, (self.trainer.form.seen, self.trainer.form.update))) + HEADER
        self._judging, self._asking, self._lane, self._serving = (threading.Lock() for _ in range(4))
        self._read: Task = copy.deepcopy(alg.task)
        self._stop = threading.Event()
        self._judged: Task = copy.deepcopy(alg.predictor())  # training changes the module while it runs
        self._served = self._served_before()
        self._own: tuple[object, Own] | None = None

    def __call__(self, method: str, payload: Payload) -> Payload:
        match method:
            case "judge":
                return self._judge(payload)
            case "alone":
                return self._train_alone(payload)
            case "serve":
                return self._serve(payload)
            case "query":
                return self._query(payload)
            case "sums":
                return self._sums(payload)
            case _:
                return self.trainer(method, payload)

    @property
    def serving(self) -> bool:
        return self._served is not None

    def stop(self) -> None:
        """Stops what is trained."""
        self._stop.set()
        self.trainer.cancel()

    def personal(self, server: Tree, version: int) -> Weights:
        """The weights that this client predicts with."""
        return self.algorithm.personal(server, self.store.get(version).tree)

    def _plan(self, round: int, passes: int) -> list[Tensor]:
        t = self.training
        if passes:
            t = t.model_copy(update={"local_epochs": passes, "local_steps": None})
        return client_batches(self.algorithm, self.own, t, self.seed, round, self.number)

    def _judge(self, payload: Payload) -> Payload:
        """How the models do on own rows: numbers, as JSON."""
        from fedroute.federation.judging import curve_here, judge_here

        server, what = self.trainer.seen(payload)[0], payload.get("what")
        if what not in ("curve", "ledger"):
            raise Refused(f"judge: {what!r} is neither curve nor ledger")
        with self._judging:
            where = self.own, self.agreement, self.number, self._judged
            personal = self.personal(server, number(payload, "version"))
            shared = global_weights(self.algorithm, server)
            if what == "curve":
                entry = curve_here(*where, personal=personal, global_w=shared)
            else:
                apart = self._alone() if payload.get("alone") is True else None
                entry = judge_here(*where, personal=personal, global_w=shared, alone=apart, seed=self.seed)
        return {"entry": json.dumps(entry)}

    def _sums(self, payload: Payload) -> Payload:
        """What a guide is made of; see `guide_sums`."""
        from fedroute.federation import guide_sums

        server = self.trainer.seen(payload)[0]
        without = {*self.agreement.newcomers, *_numbers(payload, "without")}
        agreement = self.agreement.model_copy(update={"newcomers": tuple(sorted(without))})
        with self._judging:
            return guide_sums.answer(self.own, agreement, self.number, self._read, server["w"], payload)

    # alone

    def _train_alone(self, payload: Payload) -> Payload:
        """Trains without the others, in these rounds (a JSON list of counts, from 0), once."""
        from fedroute.federation.judging import train_alone

        text = str(payload.get("rounds"))
        with self._lane:
            if not (self.folder / ALONE).exists() or (self.folder / ALONE_ROUNDS).read_text() != text:
                rounds = _numbers(payload, "rounds")
                where = self.own, self.training, self.seed, self.number
                try:
                    with ONE:
                        w = train_alone(self.algorithm, *where, rounds, self.log, self._stop.is_set)
                except RuntimeError:
                    if self._stop.is_set():
                        raise Refused(f"training alone {STOPPED}") from None
                    raise
                wire.write(self.folder / ".alone", w)
                write(self.folder / ALONE_ROUNDS, text)
                (self.folder / ".alone").replace(self.folder / ALONE)
        return {"done": True}

    def _alone(self) -> Weights | None:
        file = self.folder / ALONE
        return wire.decode(file) if file.exists() else None

    # serving

    def _serve(self, payload: Payload) -> Payload:
        """From now on queries are answered with these weights, also after a restart."""
        server, version, round = self.trainer.seen(payload)[0], number(payload, "version"), number(payload, "round")
        with self._serving:  # of two calls the weights and what is said of them are from the same one
            self._served = self._loaded(server, version, round)
            wire.write(self.folder / ".serving", server)
            (self.folder / ".serving").replace(self.folder / SERVED_WEIGHTS)
            write(self.folder / SERVED, json.dumps({"version": version, "round": round}))
        return {"round": round}

    def _loaded(self, server: Tree, version: int, round: int) -> tuple[Task, Weights, int]:
        return copy.deepcopy(self.algorithm.predictor()), self.personal(server, version), round

    def _served_before(self) -> tuple[Task, Weights, int] | None:
        if not (self.folder / SERVED).exists():
            return None
        try:
            said = json.loads((self.folder / SERVED).read_text())
            server = wire.decode(
                self.folder / SERVED_WEIGHTS, {k: self.trainer.form.seen[k] for k in self.algorithm.broadcast}
            )
            return self._loaded(server, said["version"], said["round"])
        except (ValueError, KeyError, OSError) as e:
            self.log(f"{self.folder / SERVED}: cannot be read ({e}): no query is answered until the hub says with what")
            return None

    def own_model(self) -> "Own | None":
        """What is served, for who asks this client alone: the same as long as that is; None while nothing is."""
        from fedroute.data.queries import QueryForm
        from fedroute.data.spec import both_sides
        from fedroute.federation.agreement import hub_federation
        from fedroute.service.answers import Own

        if (served := self._served) is None or not self.own.labels:
            return None
        if self._own is None or self._own[0] is not served:
            form, size = QueryForm.of(hub_federation(self.agreement)), both_sides(self.agreement.spec.get("size"))
            client = self.agreement.clients[self.number]
            self._own = served, Own(client, self.agreement.labels, form, *served[:2], size=size)
        return self._own[1]

    def _query(self, payload: Payload) -> Payload:
        """(B, K) float64 log-probabilities for x (B, ...), encoded as the federation's; of targets that are numbers the
        numbers."""
        served, data, own = self._served, payload.get("x"), self.own.x
        if served is None:
            raise Refused("serves no model yet")
        if not isinstance(data, bytes):
            raise Refused("query: x is not bytes")
        try:
            x = wire.plain(data, "x")
        except wire.Garbled as e:
            raise Refused(f"query: {e}") from None
        if x.shape[1:] != own.shape[1:] or x.dtype not in (own.dtype, torch.float32) or not 0 < len(x) <= QUERIES:
            form = f"{own.dtype} {tuple(own.shape[1:])}"
            raise Refused(f"query: x is {x.dtype} {tuple(x.shape)}; 1 to {QUERIES:,} rows of {form} are answered")
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise Refused("query: x has NaN or Inf")
        task, w, round = served
        with self._asking:
            out = predict(task, w, x).double()
        return {"p": wire.plain_bytes("p", out.log_softmax(1) if self.own.labels else out), "version": round}


def _numbers(payload: Payload, key: str) -> list[int]:
    """A JSON list of counts. Raises Refused where it is none."""
    try:
        found = json.loads(str(payload.get(key)))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(v, int) and v >= 0 for v in found):
        raise Refused(f"{key}: no list of counts")
    return found
