"""What trains at a site: it keeps the private trees, checks what comes and goes, and does each round once.

It knows the algorithm, its own rows and nothing of the network. The methods: have, put, get, drop (transfers), train,
cancel, adapt, hash.
"""

import json
import math
import re
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedroute.core import Algorithm, Context, run_client
from fedroute.data.federation import Federation
from fedroute.durable import write
from fedroute.engines.base import Work, context
from fedroute.engines.by_hand import by_hand
from fedroute.engines.sequential import answer, at_client
from fedroute.federation import wire
from fedroute.federation.lanes import ONE
from fedroute.federation.orders import Job, Order, Steps
from fedroute.federation.patience import STOPPED
from fedroute.federation.store import Found
from fedroute.federation.transfer import CHUNK, Spool, number
from fedroute.federation.transport import Payload, Refused
from fedroute.quarantine import misfit
from fedroute.tree import Tree, nbytes, sha256, tree_map

METHODS = frozenset({"have", "put", "get", "drop", "train", "cancel", "adapt", "hash"})
TRAINED = "trained.json"  # the last round, so that it is answered again and not done again

Plan = Callable[[int, int], list[Tensor]]
"""(round, passes) -> the rows of each step; passes: over all rows, 0 for those of a round of the training."""


class Private(Protocol):
    """Where the private trees are: `store.Store` or `store.Memory`."""

    def put(self, version: int, tree: Tree) -> None: ...

    def get(self, version: int) -> Found: ...

    def prune(self, keep: Iterable[int]) -> None: ...


class Form(NamedTuple):
    """Trees without values: what a client of this algorithm sees, sends and keeps."""

    seen: Tree
    update: Tree
    private: Tree


class Trainer:
    """One client's training.

    federation: with the rows of this client alone; place: its place in there. number: its place among the `clients` of
    the whole federation. plan: its batches.
    folder: where the last round is kept over a restart; None: nowhere. form, quick: as `form_of_client` and `by_hand`
    give them, where they are there already. bound: as training.update_bound."""

    def __init__(
        self,
        algorithm: Algorithm,
        federation: Federation,
        plan: Plan,
        store: Private,
        spool: Spool,
        *,
        place: int = 0,
        number: int = 0,
        clients: int = 1,
        folder: Path | None = None,
        form: Form | None = None,
        quick: Algorithm | None = None,
        bound: float = math.inf,
        log: Callable[[str], None] = lambda text: None,
    ):
        self.algorithm, self.federation, self.plan, self.place = algorithm, federation, plan, place
        self.store, self.spool, self.number, self.folder = store, spool, number, folder
        self.bound, self.log = bound, log
        self.form, self._quick = form or form_of_client(algorithm, number, clients), quick or by_hand(algorithm)
        self._lock, self._job = threading.Lock(), self._remembered()
        self._sending: dict[str, str] = {}  # transfer -> what it is, for the log

    def __call__(self, method: str, payload: Payload) -> Payload:
        match method:
            case "train" | "adapt":
                return self._once(method, payload)
            case "cancel":
                return {"stopped": self.cancel(number(payload, "round"))}
            case "hash":
                found = self.store.get(number(payload, "version"))
                return {"sha256": sha256(found.tree), "version": found.version, "said": found.said}
            case "get":
                reply = self.spool.handle(method, payload)
                self._log_leaving(payload, reply)
                return reply
            case _:
                return self.spool.handle(method, payload)

    def cancel(self, round: int | None = None) -> bool:
        """Stops the work of a round (None: any) between two batches; whether there was any."""
        with self._lock:
            job = self._job
            found = job is not None and not job.done.is_set() and round in (None, job.order.round)
            if job and found:
                job.stop.set()
            return found

    @property
    def busy(self) -> int | None:
        """The round that is worked on."""
        job = self._job
        return job.order.round if job and not job.done.is_set() else None

    def seen(self, payload: Payload) -> tuple[Tree, str, str]:
        """(what the server sends this client, the SHA-256 of the bytes of both its parts). Raises Refused."""
        both, names = Tree(), []
        for key in ("server", "own"):
            data, id = payload.get(key), payload.get(f"{key}_id")
            if isinstance(id, str):
                source: bytes | Path = self.spool.complete(id)
            elif isinstance(data, bytes):
                source, id = data, wire.sha256(data)
            elif key == "own" and not self.algorithm.own:
                names.append("")
                continue
            else:
                raise Refused(f"{key}: neither bytes nor the name of a transfer")
            want = self.algorithm.broadcast if key == "server" else self.algorithm.own
            try:
                both |= wire.decode(source, {k: self.form.seen[k] for k in want})
            except wire.Garbled as e:
                raise Refused(f"what the server sent is refused: {e}") from None
            names.append(id)
        return both, names[0], names[1]

    def _once(self, method: str, payload: Payload) -> Payload:
        """The work of an order, done by the first who asks; who asks again meanwhile, or afterwards, gets its answer.
        Another order stops it: there is one server, and it has gone on."""
        server, *names = self.seen(payload)
        order = Order.read(method, payload, *names)
        with self._lock:
            before, job = self._job, None
            if before and before.order == order and not before.stop.is_set():
                job, mine = before, False
            else:
                if before:
                    before.stop.set()
                job, mine = Job(order), True
                self._job = job
        if mine:
            if before:
                before.done.wait()
            try:
                job.reply = self._do(method, order, server, payload, job.stop)
            except Refused as e:
                job.reply = e
                job.stop.set()  # asked again, it is tried again
            except BaseException as e:
                self.log(f"round {order.round + 1}: {traceback.format_exc()}".rstrip())
                job.reply = Refused(f"{method} raised {type(e).__name__}; the traceback is in the log of this site")
                job.stop.set()
                if not isinstance(e, Exception):
                    raise
            finally:
                job.done.set()
        job.done.wait()
        if isinstance(job.reply, Refused):
            raise job.reply
        return job.reply

    def _do(self, method: str, order: Order, server: Tree, payload: Payload, stop: threading.Event) -> Payload:
        found, i = self.store.get(order.base), self.place
        passes = number(payload, "passes") if method == "adapt" else 0
        steps = Steps(self.plan(order.round, passes), stop)
        work = Work(order.round, order.seed, order.lr, (i,), {i: steps}, order.judged)
        counts, none = self.federation.label_counts[i], torch.tensor(0)
        ctx = Context(
            server, found.tree, torch.tensor(self.number), torch.tensor(len(steps)), none, order.lr, counts=counts
        )
        reply: Payload = {"round": order.round, "version": order.version, "said": found.said}
        if method == "adapt":
            with ONE, at_client(work, self.federation.clients[i]):
                private = self.algorithm.adapt(ctx, (self.federation.take(rows) for rows in steps))
        else:
            with ONE:
                a = answer(self._quick, self.federation, {}, found.tree, i, work, ctx)
            if stop.is_set():
                raise Refused(f"round {order.round + 1} {STOPPED}")
            if a.error:
                self.log(f"round {order.round + 1}: {a.error}".rstrip())
                raise Refused(f"its training raised {_kind(a.error)}; the traceback is in the log of this site")
            private = a.private
            reply |= {"steps": a.steps, "loss": a.loss, "quality": a.quality}
            self._check(a.update, self.form.update, "send")
        self._check(private, private if method == "adapt" else self.form.private, "keep")  # adapting may add to it
        self.store.put(order.version, private)
        if method == "train":
            reply |= self._packed(a.update, order, min(CHUNK, number(payload, "chunk")))
        if isinstance(keep := payload.get("keep"), str):
            with suppress(ValueError):
                self.store.prune({order.base, *(v for v in json.loads(keep) if isinstance(v, int))})
        self._remember(order, reply)
        return reply

    def _check(self, tree: Tree, form: Tree, verb: str) -> None:
        if why := misfit(tree, form, self.bound):
            self.log(f"{verb}s nothing: {why}")
            raise Refused(f"would {verb} what it must not: {why}")

    def _packed(self, update: Tree, order: Order, most: int) -> Payload:
        """The update: within the reply where it has at most so many bytes, else the name of a transfer."""
        what = f"the update of round {order.round + 1}"
        if nbytes(update) <= most:
            data = wire.encode(update)
            if self.folder:
                self.spool.keep({self.spool.add(data)})
            self.log(f"sends {what}: {len(data):,} bytes")
            return {"update": data}
        file = self.spool.folder / ".update"
        id = wire.write(file, update)
        size = file.stat().st_size
        self.spool.take(file, id)
        self.spool.keep({id, order.server, order.own})
        self._sending = {id: what}
        return {"update_id": id, "size": size}

    def _log_leaving(self, payload: Payload, reply: Payload) -> None:
        what, data, size = self._sending.get(str(payload.get("id"))), reply["data"], reply["size"]
        assert isinstance(data, bytes)
        if what and number(payload, "offset") + len(data) == size:
            self.log(f"has sent {what}: {size:,} bytes")

    # over a restart

    def _remember(self, order: Order, reply: Payload) -> None:
        if self.folder:
            plain = {k: v for k, v in reply.items() if not isinstance(v, bytes)}
            data = reply.get("update")
            held = wire.sha256(data) if isinstance(data, bytes) else ""
            write(self.folder / TRAINED, json.dumps({"order": order, "reply": plain, "update": held}))

    def _remembered(self) -> Job | None:
        if not self.folder or not (self.folder / TRAINED).exists():
            return None
        try:
            said = json.loads((self.folder / TRAINED).read_text())
            job = Job(Order(*said["order"]))
            reply: Payload = said["reply"]
            if said["update"]:
                reply["update"] = self.spool.complete(said["update"]).read_bytes()
        except (ValueError, KeyError, TypeError, OSError, Refused):
            return None  # it is done once more, to the same end
        job.reply = reply
        job.done.set()
        return job


def _kind(trace: str) -> str:
    """The type of the exception in a traceback, and nothing of its message, which may hold rows."""
    for line in trace.partition("Traceback (most recent call last):")[2].splitlines()[1:]:
        if line and not line[0].isspace():
            found = re.match(r"[A-Za-z_][\w.]*(?=:|$)", line)
            return found[0] if found else "an error"
    return "an error"


def form_of_client(algorithm: Algorithm, number: int, clients: int) -> Form:
    """What crosses for client `number` of so many, as trees without values."""
    w = algorithm.task.init()
    server, private = algorithm.init(w, torch.ones(clients, dtype=torch.int64)), algorithm.init_client(w)
    seen = context(algorithm, server, private, min(number, clients - 1), Work(0, 0, 1.0, (0,), _Idle())).server
    none = torch.tensor(0)
    update, kept, _ = run_client(algorithm, Context(seen, private, none, none, none, 1.0), [])
    return Form(
        *(tree_map(lambda t: torch.empty(t.shape, dtype=t.dtype, device="meta"), t) for t in (seen, update, kept))
    )


class _Idle(dict[int, list[Tensor]]):
    def __missing__(self, client: int) -> list[Tensor]:
        return []
