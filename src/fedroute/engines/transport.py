"""Clients that are elsewhere: what is declared goes there as bytes, they train, and what is declared comes back.

The server knows of a client's private tree only which one counts: `privates[i]` is {"round": ()}, the version that the
client stored after a round (0: the one that it begins with).
"""

import json
import math
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from fedroute.core import Algorithm
from fedroute.engines.base import Answer, Work
from fedroute.federation import wire
from fedroute.federation.patience import Caller, Patience
from fedroute.federation.transfer import CHUNK, number, pull, push, spooled
from fedroute.federation.transport import Away, Late, Payload, Refused, Transport, TransportError
from fedroute.tree import Tree, nbytes, tree_map

LOOK = 0.1  # seconds between two looks at those who are still out
HEADER = 1 << 20  # bytes that an update may have besides its tensors
IN_MEMORY = 64 << 20  # bytes of a tree that is kept in memory while it is sent
FOREVER = 1e9


class Transported:
    """An engine over a Transport.

    clients: the names of the sites, by number. deadline: seconds of a round, after which those who have not answered
    are left out; None: none. away: seconds that the others wait, once they are done, for a site whose connection is
    gone. late: what becomes of an answer after the deadline: "discard": the site is told to stop; "use": it goes on,
    and its answer counts in the first round after it came, with its staleness. form: an update as declared, for the
    largest size that is fetched. keep: client -> versions of its private tree that are still needed, by default all.
    timeout: seconds of a small call; chunk: bytes of a piece of a transfer, and the most that goes within a message."""

    name = "transport"

    def __init__(
        self,
        algorithm: Algorithm,
        clients: Sequence[str],
        transport: Transport,
        *,
        form: Tree,
        deadline: float | None = None,
        away: float = 60.0,
        late: Literal["discard", "use"] = "discard",
        keep: Callable[[int], Sequence[int] | None] = lambda client: None,
        timeout: float = 30.0,
        chunk: int = CHUNK,
        log: Callable[[str], None] = lambda text: None,
    ):
        self.algorithm, self.clients, self.transport, self.form = algorithm, clients, transport, form
        self.deadline, self.away, self.late, self.keep = deadline, away, late, keep
        self.timeout, self.chunk, self.log = timeout, chunk, log
        self.most = nbytes(form) + HEADER
        self.has_left: Callable[[int], bool] = lambda client: False  # for good: nobody waits for it, or asks it again
        self.stale = dict[int, Asked]()  # those who still work on an earlier round
        self.sent = 0  # how often the weights were sent in the last run
        self._folder, self._lock = spooled(), threading.Lock()
        self.folder = Path(self._folder.name)

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        """An answer for each of work.clients, in that order, each as soon as it and those before it are there."""
        self._tidy()
        self.sent = 0
        common, done = self.packed({k: server[k] for k in self.algorithm.broadcast}), queue.SimpleQueue[Asked]()
        out = {i: self.ask(i, server, privates[i], work, common, done.put) for i in work.clients if i not in self.stale}
        waiting, end = list(work.clients), Patience(self.deadline)
        try:
            while waiting:
                for i in waiting:
                    if self.has_left(i) and i in out:
                        self._stop(out[i])  # at once: it may come back, and is not to go on with this round
                i = waiting[0]
                if (i in out and out[i].answer) or self.has_left(i) or self._over(out, end):
                    yield self._settled(waiting.pop(0), out, work)
                else:
                    with suppress(queue.Empty):
                        done.get(timeout=max(0.001, min(LOOK, end.left())))
        finally:
            for i in waiting:
                if i in out and out[i].answer is None:
                    self._stop(out[i])

    def ask(
        self, i: int, server: Tree, private: Tree, work: Work, common: "Blob", tell: Callable[["Asked"], None]
    ) -> "Asked":
        """Lets client i train, in a thread of its own, which tells when there is an answer. common: what all see."""
        self.sent += 1
        patience = Patience(self.deadline if self.late == "discard" else None)
        asked = Asked(i, work.round, Caller(self.transport, self.clients[i], patience, self.timeout, self.log))
        asked.blobs = [common.id]  # from now on: the next round may begin before the thread does
        order: Payload = {
            "round": work.round, "base": int(private["round"]), "seed": work.seed, "lr": float(work.lr),
            "judged": work.judged, "chunk": self.chunk,
        }  # fmt: skip
        if (keep := self.keep(i)) is not None:
            order["keep"] = json.dumps(sorted(keep))
        planned = len(work.batches[i])

        def train() -> None:
            try:
                asked.answer = self._trained(asked, order, self.parts(server, i, common))
            except Refused as e:
                asked.answer = _none(i, planned, f"no update: {e}")
            except Away:
                asked.answer = _none(i, planned, "no answer: its connection is gone")
            except Late:
                self._stop(asked)
                asked.answer = _none(i, planned, self._late_words())
            except Exception:  # one client's fault must not end the others' round; its traceback is told and logged
                asked.answer = _none(i, planned, traceback.format_exc())
            tell(asked)

        threading.Thread(target=train, name=f"fedroute asks {self.clients[i]}", daemon=True).start()
        return asked

    def parts(self, server: Tree, i: int, common: "Blob | None" = None) -> dict[str, "Blob"]:
        """What client i sees of the server's state."""
        own = {k: tree_map(lambda v: v[i], server[k]) for k in self.algorithm.own}
        common = common or self.packed({k: server[k] for k in self.algorithm.broadcast})
        return {"server": common} | ({"own": self.packed(own)} if own else {})

    def placed(self, caller: Caller, parts: Mapping[str, "Blob"]) -> Payload:
        """What a call says of these: the bytes themselves where they are few, else the name of a transfer, which is
        made. Raises TransportError."""
        payload: Payload = {}
        for key, blob in parts.items():
            if isinstance(blob.source, bytes) and len(blob.source) <= self.chunk:
                payload[key] = blob.source
            else:
                push(caller, blob.source, blob.id, self.chunk)
                payload[f"{key}_id"] = blob.id
        return payload

    def packed(self, tree: Tree) -> "Blob":
        """A tree that is to be sent, as bytes; on the disk where it is large."""
        if nbytes(tree) <= IN_MEMORY:
            data = wire.encode(tree)
            return Blob(wire.sha256(data), data)
        with self._lock:
            file = self.folder / ".packing"
            id = wire.write(file, tree)
            return Blob(id, file.replace(self.folder / id))

    def close(self) -> None:
        for asked in self.stale.values():
            self._stop(asked)
        self.stale.clear()
        self._folder.cleanup()

    def _trained(self, asked: "Asked", order: Payload, parts: Mapping[str, "Blob"]) -> Answer:
        """What the client answers, however often the connection breaks. Raises TransportError."""
        caller, asked.blobs = asked.caller, [b.id for b in parts.values()]
        reply = caller.ask("train", order | self.placed(caller, parts), timeout=FOREVER)
        if isinstance(said := reply.get("said"), str) and said:
            self.log(said)
        update = self._fetched(caller, reply)
        loss, quality = reply.get("loss"), reply.get("quality")
        if not isinstance(loss, float | int) or not isinstance(quality, float | int | None):
            raise Refused("loss and quality are numbers")
        receipt = {"round": torch.tensor(number(reply, "version"))}
        q = None if quality is None else float(quality)
        return Answer(asked.client, number(reply, "steps"), update, receipt, float(loss), quality=q)

    def _fetched(self, caller: Caller, reply: Payload) -> Tree:
        data, id = reply.get("update"), reply.get("update_id")
        try:
            if isinstance(data, bytes):
                return wire.decode(data, self.form)
            if (size := number(reply, "size")) > self.most:
                raise Refused(f"{size:,} bytes, and the declared one has {self.most - HEADER:,}")
            file = pull(caller, str(id), size, self.folder / caller.node, self.chunk)
            try:
                return wire.decode(file, self.form)
            finally:
                file.unlink()
        except wire.Garbled as e:
            raise Refused(str(e)) from None

    def _over(self, out: Mapping[int, "Asked"], end: Patience) -> bool:
        """Whether nobody is waited for any longer: all have answered, time is up, or those left are long gone."""
        out_still = (a for a in out.values() if a.answer is None and not self.has_left(a.client))
        return not end.left() or all(a.gone() > self.away for a in out_still)

    def _settled(self, i: int, out: Mapping[int, "Asked"], work: Work) -> Answer:
        """The answer of a client that is not waited for any longer, or why there is none."""
        asked, planned = out.get(i) or self.stale[i], len(work.batches[i])
        if i in self.stale:
            if asked.answer:
                del self.stale[i]
                return asked.answer._replace(staleness=work.round - asked.round)
            if asked.gone() > self.away or self.has_left(i):
                self._stop(self.stale.pop(i))
            return _none(i, planned, f"no answer: still at work on round {asked.round + 1}")
        if self.has_left(i) and (asked.answer is None or asked.answer.error):
            self._stop(asked)
            return _none(i, planned, "no answer: it has left in mid-round")
        if asked.answer:
            return asked.answer
        if gone := asked.gone():
            self._stop(asked)
            return _none(i, planned, f"no answer: its connection has been gone for {gone:.0f} s")
        if self.late == "use":
            self.stale[i] = asked
        else:
            self._stop(asked)
        return _none(i, planned, self._late_words())

    def _late_words(self) -> str:
        return "no answer in time" if self.deadline is None else f"no answer within {self.deadline:g} s"

    def _stop(self, asked: "Asked") -> None:
        """The client is told to stop, once, by a thread of its own: it may be slow to hear."""
        with self._lock:  # the round and the one that asks may find at once that it is late
            if asked.stopped:
                return
            asked.stopped = True
        asked.patience.end()

        def tell() -> None:
            with suppress(TransportError):
                self.transport.call(self.clients[asked.client], "cancel", {"round": asked.round}, self.timeout)

        threading.Thread(target=tell, daemon=True).start()

    def _in_use(self) -> list["Asked"]:
        """Those who work on what was asked in an earlier round."""
        return list(self.stale.values())

    def _tidy(self) -> None:
        """Files of earlier rounds that nobody needs any more."""
        needed = {id for asked in self._in_use() for id in asked.blobs}
        for p in self.folder.iterdir():
            if p.is_file() and p.name not in needed:
                p.unlink()


class Blob(NamedTuple):
    """A tree as bytes, in memory or on the disk, and their SHA-256."""

    id: str
    source: bytes | Path


class Asked:
    """One client's round, from being asked until its answer."""

    def __init__(self, client: int, round: int, caller: Caller):
        self.client, self.round, self.caller, self.patience = client, round, caller, caller.patience
        self.answer: Answer | None = None
        self.blobs: list[str] = []
        self.began, self.stopped = time.monotonic(), False

    def age(self) -> float:
        """Seconds since it was asked."""
        return time.monotonic() - self.began

    def gone(self) -> float:
        """Seconds since its connection broke; 0 while it is there."""
        since = self.caller.gone_since
        return time.monotonic() - since if since else 0.0


def _none(client: int, planned: int, why: str) -> Answer:
    return Answer(client, planned, {}, {}, math.nan, why)
