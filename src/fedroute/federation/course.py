"""The rounds of a real federation: the round loop of `training`, its clients elsewhere, its curve told by the sites."""

import json
import math
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import torch

from fedroute.config import Training
from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.engines.base import Work
from fedroute.engines.transport import Blob, Transported
from fedroute.errors import RunFailed
from fedroute.federation.agreement import Agreement
from fedroute.federation.asking import LEFT, LONG, Sites, everyone
from fedroute.federation.buffered import Buffered
from fedroute.federation.judging import curve_of
from fedroute.federation.patience import Patience
from fedroute.federation.spec import HubSpec
from fedroute.federation.transport import Payload, Transport
from fedroute.rounds import State, client_batches, start
from fedroute.training import Loop
from fedroute.tree import Tree
from fedroute.words import count

Receipt = dict[str, torch.Tensor]
KEPT = 2  # checkpoints, as `checkpoint` keeps them


def receipt(version: int) -> Receipt:
    """What the hub knows of a private tree: the version that counts."""
    return {"round": torch.tensor(version)}


def begin(algorithm: Algorithm, federation: Federation) -> State:
    """The state before the first round."""
    state = start(algorithm, federation)
    return replace(state, privates={i: receipt(0) for i in state.privates})


def engine_of(
    algorithm: Algorithm, clients: tuple[str, ...], transport: Transport, spec: HubSpec, form: Tree, t: Training,
    log: Callable[[str], None],
) -> Transported:  # fmt: skip
    """The engine that `hub:` names. form: an update as declared. Raises InputError where it does not go with the
    algorithm."""
    options: dict[str, Any] = {
        "form": form, "deadline": spec.deadline, "away": spec.away, "timeout": spec.answer_timeout,
        "chunk": spec.chunk, "log": log,
    }  # fmt: skip
    if spec.asynchronous:
        return Buffered(algorithm, clients, transport, asynchronous=spec.asynchronous, bound=t.update_bound, **options)
    return Transported(algorithm, clients, transport, late=spec.late, **options)


class Course(Loop):
    """As `training.Loop`, with receipts in the place of private trees. left: sites that are gone for good, by number;
    their rows count no more from then on."""

    engine: Transported

    def prepared(
        self, sites: Sites, agreement: Agreement, left: set[int], told: Callable[[State], None],
        leaves: Callable[[str], None], gone: Callable[[], AbstractSet[str]],
    ) -> None:  # fmt: skip
        """What it needs besides. told: hears the state after each round. leaves: hears who says that it has left; gone:
        all who have, however that was heard."""
        self.sites, self.agreement, self.left, self.told = sites, agreement, left, told
        self.leaves, self.gone = leaves, gone
        self.whole, self.state = self.federation, State(0, {}, {})
        self.kept: list[dict[int, int]] = []
        self.engine.keep, self.engine.has_left = self.needed, lambda i: agreement.clients[i] in gone()
        self.without_left()

    def without_left(self) -> None:
        """The federation without the rows of those who have left."""
        train = tuple(rows[:0] if i in self.left else rows for i, rows in enumerate(self.whole.train))
        self.federation = replace(self.whole, train=train) if self.left else self.whole

    def work(self, round: int) -> Work:
        """Who is asked in this round, once enough of them are here; those who are late from an earlier one besides."""
        work = super().work(round)
        self._enough(work)
        late = sorted({*getattr(self.engine, "stale", {})} - {*work.clients} - self.left)
        plan = dict(work.batches)
        for i in late:
            plan[i] = client_batches(self.alg, self.federation, self.t, self.seed, round, i)
        return work._replace(clients=tuple(sorted({*work.clients, *late})), batches=plan)

    def evaluated(self, state: State, first: int, work: Work) -> State:
        self.state = state
        self.told(state)
        self._leaving(state)
        return super().evaluated(state, first, work)

    def curve(self, state: State) -> dict[str, Any]:
        """A point of the curve, from those who tell; sites answer queries with these weights from then on."""
        common = self.engine.packed({k: state.server[k] for k in self.alg.broadcast})
        late = {q.client for q in state.quarantined if q.round == state.round and q.reason.startswith("no answer")}
        here = {*self.sites.transport.nodes()} - late  # who did not answer just now would keep the others waiting
        asked = [i for i in self._members() if self.agreement.clients[i] in here]
        found = everyone(asked, lambda i: self._judged(i, state, common))
        entries = {self.agreement.clients[i]: e for i, e in found.items() if not isinstance(e, Exception)}
        if silent := sorted({self.agreement.clients[i] for i in self._members()} - set(entries)):
            self.log(f"round {state.round}: evaluated without {', '.join(silent)}")
        return curve_of(self.agreement, entries)

    def _judged(self, i: int, state: State, common: Blob) -> dict[str, Any]:
        version, patience = int(state.privates[i]["round"]), Patience(self.sites.spec.deadline)
        payload: Payload = {"what": "curve", "version": version}
        entry = self.told_by(i, "judge", payload, state.server, common, patience)["entry"]
        self.told_by(i, "serve", {"round": state.round, "version": version}, state.server, common, patience)
        found: dict[str, Any] = json.loads(str(entry))
        return found

    def told_by(
        self, i: int, method: str, payload: Payload, server: Tree, common: Blob | None = None,
        patience: Patience | None = None,
    ) -> Payload:  # fmt: skip
        """What site i answers to a question about the server's weights. Raises TransportError."""
        caller = self.sites.caller(self.agreement.clients[i], patience)
        parts = self.engine.placed(caller, self.engine.parts(server, i, common))
        return caller.ask(method, payload | parts, LONG)

    def save(self, state: State) -> None:
        super().save(state)
        self.kept = [*self.kept, {i: int(p["round"]) for i, p in state.privates.items()}][-KEPT:]

    def needed(self, i: int) -> list[int] | None:
        """The versions of a private tree that a checkpoint may lead back to; None: not known, so all."""
        if len(self.kept) < KEPT:
            return None
        return sorted({k[i] for k in self.kept})

    def _members(self) -> list[int]:
        return [i for i in range(len(self.agreement.clients)) if i not in self.left]

    def _enough(self, work: Work) -> None:
        """Waits until a quorum of those who are asked is connected. Raises RunFailed, KeyboardInterrupt."""
        names = {self.agreement.clients[i] for i in work.clients}
        if not names:
            raise RunFailed("no site is left that could train")
        needs, end, said = max(1, math.ceil(self.t.quorum * len(names))), time.monotonic() + self.sites.spec.wait, False
        while len(here := names & set(self.sites.transport.nodes())) < needs:
            if not said:
                self.log(f"{count(len(here), 'site is', 'sites are')} here of {len(names)}; waiting until {needs} are")
                said = True
            if time.monotonic() > end:
                who = ", ".join(sorted(here)) or "none"
                raise RunFailed(
                    f"waited {self.sites.spec.wait:g} s for a quorum of {needs}; here: {who}. "
                    "Start the others (`fedroute site start`): a hub that runs goes on from its checkpoint when one "
                    "comes"
                )
            self.sites.pause(0.1)
        self.sites.pause(0)

    def _leaving(self, state: State) -> None:
        """Takes note of those who have left since the last round."""
        for name in sorted({q.client for q in state.quarantined if q.round == state.round and LEFT in q.reason}):
            self.leaves(name)
        if new := {self.agreement.place(c) for c in self.gone() & {*self.agreement.clients}} - self.left:
            self.left |= new
            self.without_left()
