"""What remains of a real federation's run after its last round: adapting, training alone, ledger, hashes, a guide."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedroute.config import Config
from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.errors import RunFailed
from fedroute.evaluate.ledger import NO_ALONE, NO_GLOBAL
from fedroute.federation.asking import everyone
from fedroute.federation.course import Course, receipt
from fedroute.federation.judging import alone_rounds, curve_of, ledger_of
from fedroute.federation.patience import SELDOM, Patience
from fedroute.federation.same_rows import NOT_NOW
from fedroute.federation.transport import Payload, Refused
from fedroute.rounds import State, weighting_of
from fedroute.run import Run
from fedroute.say import Say
from fedroute.training import adapt_epochs, global_weights

if TYPE_CHECKING:
    from fedroute.router.guide import Guide


@dataclass
class HubRun(Run):
    """A finished run of a real federation. told: the hash of each site's private weights, as the site tells it;
    besides: what else summary.json holds."""

    told: dict[str, str] = field(default_factory=dict)
    besides: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """As that of a simulation; hashes of private weights are those that sites told."""
        found = super().summary()
        return found | {"weights_sha256": found["weights_sha256"] | {"clients": self.told}} | self.besides


class Last:
    """Questions to sites about the weights of the last round. members: those who are asked, by number; one that gives
    no answer is asked no more. silent: why it gave none, by name."""

    def __init__(self, course: Course, state: State, members: Sequence[int]):
        self.course, self.state, self.members = course, state, list(members)
        self.silent = dict[str, str]()
        self.common = course.engine.packed({k: state.server[k] for k in course.alg.broadcast})

    def all(
        self, method: str, payload: Callable[[int], Payload], who: Sequence[int] | None = None,
        seconds: float | None = None,
    ) -> dict[int, Payload]:  # fmt: skip
        """What each of them answers, within so many seconds, or hub.wait; one whose data cannot be read now is asked
        again for hub.away seconds. Raises RunFailed where nobody answers."""
        who, spec = [i for i in self.members if who is None or i in who], self.course.sites.spec

        def ask(i: int) -> Payload:
            patience, until = Patience(max(seconds or 0.0, spec.wait)), 0.0
            while True:
                try:
                    return self.course.told_by(i, method, payload(i), self.state.server, self.common, patience)
                except Refused as e:
                    if NOT_NOW not in str(e) or (until and time.monotonic() > until):
                        raise
                    if not until:
                        until = time.monotonic() + spec.away
                        name = self.course.agreement.clients[i]
                        self.course.log(f"{name}: {method}: {e}; it is asked again for at most {spec.away:g} s")
                    self.course.sites.pause(min(SELDOM, spec.away))

        found = everyone(who, ask)
        for i, e in found.items():
            if isinstance(e, Exception):
                name = self.course.agreement.clients[i]
                self.members.remove(i)
                self.silent[name] = f"{method}: {e}"
                self.course.log(f"{name} gave no answer to {method}, and is left out from here on: {e}")
        if who and not self.members:
            why = "; ".join(f"{c}: {words}" for c, words in self.silent.items())
            raise RunFailed(f"no site answers any more ({why}); a hub that runs goes on from here when one comes")
        return {i: reply for i, reply in found.items() if not isinstance(reply, Exception)}

    def adapted(self, passes: dict[int, int]) -> None:
        """So many passes over its own rows for each of these, which get a new private tree by it."""
        t, versions = self.course.t, {i: int(p["round"]) for i, p in self.state.privates.items()}
        last = 1 + max([t.rounds, *versions.values()])
        order: Payload = {"round": t.rounds, "seed": self.course.seed, "lr": float(t.lr), "version": last}
        who = [i for i in self.members if passes[i]]
        deadline = self.course.sites.spec.deadline
        done = self.all("adapt", lambda i: order | {"passes": passes[i], "base": versions.get(i, 0)}, who, deadline)
        self.state = replace(self.state, privates=self.state.privates | {i: receipt(last) for i in done})

    def trained_alone(self, rounds: Mapping[int, Sequence[int]]) -> None:
        """Each trains without the others in its rounds."""
        seconds = self.course.sites.spec.deadline * self.course.t.rounds
        self.all("alone", lambda i: {"rounds": json.dumps(rounds[i])}, None, seconds)

    def version(self, i: int) -> int:
        return int(self.state.privates[i]["round"])

    def judged(self, what: str) -> dict[str, Any]:
        """client -> its line of the ledger, or its values of a curve."""
        alone, names = self.course.t.alone, self.course.agreement.clients
        told = self.all("judge", lambda i: {"what": what, "version": self.version(i), "alone": alone})
        return {names[i]: json.loads(str(reply["entry"])) for i, reply in told.items()}

    def hashes(self) -> dict[str, str]:
        """client -> SHA-256 of its private tree."""
        told = self.all("hash", lambda i: {"version": self.version(i)})
        return {self.course.agreement.clients[i]: str(reply["sha256"]) for i, reply in sorted(told.items())}

    def serve(self) -> None:
        """From now on they answer queries with these weights."""
        self.all("serve", lambda i: {"round": self.state.round, "version": self.version(i)})


def finished(course: Course, state: State, says: list[Say], from_round: int) -> HubRun:
    """The run, once the sites have told how they do; one that does not answer in time is left out, and that is said.
    Raises RunFailed where none does."""
    alg, t, names, before = course.alg, course.t, course.agreement.clients, time.perf_counter()
    federation: Federation = course.whole
    last = Last(course, state, [i for i in range(len(names)) if i not in course.left])
    epochs, new = adapt_epochs(alg), set(federation.newcomers)
    last.adapted({i: epochs or int(i in new) for i in last.members})
    if t.alone:
        rounds = alone_rounds(alg, federation, t, course.seed, state.losses)
        course.progress("alone", 0, t.rounds, {})
        last.trained_alone(rounds)
        course.progress("alone", t.rounds, t.rounds, {})
    alone_s = time.perf_counter() - before
    ledger = ledger_of(
        course.agreement,
        last.judged("ledger"),
        no_global=None if global_weights(alg, state.server) is not None else NO_GLOBAL,
        no_alone=None if t.alone else NO_ALONE,
    )
    validation = curve_of(course.agreement, last.judged("curve"))
    hashes = last.hashes()
    last.serve()
    seconds = {"from_round": float(from_round), "alone_s": alone_s, "ledger_s": time.perf_counter() - before - alone_s}
    course.seconds |= seconds
    hub: dict[str, Any] = {"sites": list(names), "left": sorted(names[i] for i in course.left)}
    if last.silent:
        hub["silent"] = last.silent
    if counted := getattr(course.engine, "counted", None):
        hub["versions"] = counted
    return HubRun(
        federation, alg, t, course.seed, course.engine.name, last.state, ledger, course.seconds, course.samples,
        validation, say=says, told=hashes, besides={"hub": hub},
    )  # fmt: skip


def made_of(config: Config, alg: Algorithm) -> dict[str, Any]:
    """What a guide that reads the model is made of."""
    return {"model": config.model, "algorithm": alg.describe(), "seed": config.seed}


def guide_of(course: Course, state: State, config: Config, absent: set[str], log: Callable[[str], None]) -> "Guide":
    """Who should answer a query, from sums of all sites but those that are absent, to which no query can go. Raises
    InputError where router, data and model do not fit, RunFailed where a site does not answer."""
    from fedroute.federation.guide_fit import fit_guide

    assert config.router
    alg, agreement = course.alg, course.agreement
    gone = sorted(map(agreement.place, absent))
    agreement = agreement.model_copy(
        update={
            "newcomers": tuple(sorted({*agreement.newcomers, *gone})),
            "sizes": agreement.sizes | dict.fromkeys(absent, (0, 0, 0)),
        }
    )
    weighting = weighting_of(alg, course.whole, course.t)
    shares = weighting.say(weighting.counted(course.whole))
    ask = Sums(course, state, gone)
    return fit_guide(
        agreement, config.router, alg.task, state.server["w"], shares, ask, made_of=made_of(config, alg),
        seed=course.seed, log=log,
    )  # fmt: skip


class Sums:
    """As `guide_fit.AskSums`. without: numbers of the sites of which nobody is to take notice."""

    def __init__(self, course: Course, state: State, without: Sequence[int] = ()):
        self.course, self.state, self.without = course, state, json.dumps(list(without))

    def __call__(self, payloads: Mapping[str, Payload]) -> dict[str, Payload]:
        names = {self.course.agreement.place(c): c for c in payloads}
        last = Last(self.course, self.state, list(names))
        told = last.all("sums", lambda i: payloads[names[i]] | {"without": self.without})
        if last.silent:
            raise RunFailed("\n".join(f"{c}: {why}" for c, why in last.silent.items()))
        return {names[i]: reply for i, reply in told.items()}
