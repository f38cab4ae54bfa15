"""The hub's side of a run: from waiting for sites to a run directory such as `fit` leaves."""

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.checkpoint import load_newest
from fedroute.config import Config
from fedroute.durable import write
from fedroute.engines.transport import Transported
from fedroute.errors import InputError, RunFailed
from fedroute.federation.agreed import Terms, bound, check, task_of, terms
from fedroute.federation.agreement import Agreement, hub_federation, reach
from fedroute.federation.asking import LEFT, NotAccepted, Sites, everyone, named
from fedroute.federation.course import Course, begin, engine_of
from fedroute.federation.departed import Departed
from fedroute.federation.finishing import finished, guide_of
from fedroute.federation.joining import admit, readmit
from fedroute.federation.patience import Patience
from fedroute.federation.run_before import AGREED, DEPARTED, JOINED, same_run
from fedroute.federation.spec import HubSpec
from fedroute.federation.standing import Standing
from fedroute.federation.statistics import settle
from fedroute.federation.transport import Transport, TransportError
from fedroute.jobs import logged, write_report
from fedroute.quarantine import Quarantined
from fedroute.rounds import State, update_pattern
from fedroute.run_directory import RunDirectory, fingerprint
from fedroute.say import announce, planned
from fedroute.training import LOOKED_AT, Progress
from fedroute.tree import sha256

if TYPE_CHECKING:
    from fedroute.router.guide import Guide

GUIDE = "guide.safetensors"
LATE = "has joined after the run"
IN_AGAIN = "took part in the run, gave no answer at its end, and is let in again"
SOONEST, LONGEST = 5.0, 60.0  # seconds between two tries to let in one that was refused; doubled each time


class Hub:
    """One run over a transport.

    config: its `federation:` part says what the rows mean, and no path; `hub:` how it is run. out: the run directory; a
    run that is there is gone on with. log hears a line for people, progress is called after each round, as in `fit`.
    stop: set from outside it ends the run after the last whole round, which is saved; a later Hub goes on.

    Raises InputError where the parts of the config do not fit together, or are not those of the run that is there."""

    def __init__(
        self,
        config: Config,
        out: Path,
        transport: Transport,
        *,
        log: Callable[[str], None] = print,
        progress: Progress = lambda phase, done, rounds, line: None,
        stop: threading.Event | None = None,
    ):
        self.config, self.out, self.transport, self.log, self.progress = config, Path(out), transport, log, progress
        self.spec, self.stop = config.hub or HubSpec(), stop or threading.Event()
        goes_with(config, self.spec)
        same_run(config, self.out)
        self._phase, self._round, self._clients = "waiting", 0, tuple[str, ...](self.spec.sites or ())
        self._common, self._terms = dict[str, Any](), dict[str, Terms]()
        self._left, self._new, self._refused = set[str](), set[str](), dict[str, str]()  # _left: out of the rounds
        self._trying = set[str]()  # those refused that are tried again
        self._admitting, self._guiding, self._listening = threading.Lock(), threading.Lock(), False
        self._guide, self._joined, self._agreed = self._kept_guide(), self._kept_joined(), self._kept()
        self._silent = self._kept_silent()  # who gave no answer when the run ended, and why; they may come again
        if self._agreed is not None:
            self._common, agreement, self._left = self._agreed
            self._clients, self._terms = agreement.clients, self._for_all(agreement)
        self._departed, self._standing = Departed(self.out / DEPARTED, self._left), Standing()

    def clients(self) -> tuple[str, ...]:
        """The sites that have agreed, and those that have joined since, without those that have left; none before there
        is an agreement."""
        gone = self._departed.names()
        return tuple(c for c in dict.fromkeys((*self._clients, *self._joined)) if c not in gone) if self._agreed else ()

    def guide(self) -> "Guide | None":
        """Who should answer a query; None where there is no guide, or not yet."""
        return self._guide

    def status(self) -> dict[str, Any]:
        """{phase, round, rounds, sites: [{client, here, state}]}: at once, from any thread. state: here, away, or
        that it has left for good; words: that it has joined after the run, or is not let in, and why."""
        here = {*self.transport.nodes()} - self._out()
        names = sorted({*self._clients, *self._joined, *self._departed.names(), *here})
        return {
            "phase": self._phase,
            "round": self._round,
            "rounds": self.config.training.rounds,
            "sites": [
                {"client": c, "here": c in here, "state": self._state_of(c, here), "words": self._words_on(c)}
                for c in names
            ],
        }

    def run(self) -> dict[str, Any]:
        """The run to its end; its summary. Where it has ended already nothing is done, but for sites that come later:
        they are let in, for as long as this object is there.

        Raises InputError where config or data are wrong, RunFailed where the run cannot go on, KeyboardInterrupt where
        it was stopped: then, and after a kill, a later call goes on from the last checkpoint."""
        directory = RunDirectory(self.out)
        if (self.out / "config.yaml").exists():
            directory.open()
            if self._agreed is None:  # nothing was done by what stands there
                directory.write_config(self.config.resolved())
        else:
            directory.check_free()
            directory.create().write_config(self.config.resolved())
        with directory:
            log = directory.logging(self.log)
            try:
                self.transport.start()
                self._listen(log)
                if not directory.ended:
                    with logged(directory):
                        self._run(directory, log)
            except Exception:  # raised on; whoever asks for the state must see that the run has ended
                self._phase = "failed"
                raise
            self._phase, self._round = "done", self.config.training.rounds
            past = [Quarantined(**q) for q in directory.read_summary().get("quarantined", ())]
            self._standing.ended(past, self._round)
        for node in self.transport.nodes():  # they may have come before anybody listened
            self._came(node, log)
        for node in sorted(self._new):
            self._admit(node)
        return directory.read_summary()

    def _run(self, directory: RunDirectory, log: Callable[[str], None]) -> None:
        sites = Sites(self.transport, self.spec, log, self.stop.is_set)
        self._standing.sites = sites
        agreement = self._agreement(directory, sites)
        course, state = self._course(directory, agreement, sites, log)
        says = planned(course.alg, course.whole, course.t, course.seed, LOOKED_AT)
        for text in announce(says, course.alg, course.whole, course.t):
            log(text)
        if state.round:
            log(f"going on after round {state.round}")
            self._went(state)
        self._phase, began = "training", state.round
        try:
            state = course.run(state)
            self._phase = "judging"
            run = finished(course, state, says, began)
            if self.config.router and self._guide is None:
                absent = {*run.besides["hub"]["left"], *run.besides["hub"].get("silent", ())}
                absent |= self._departed.names() & {*agreement.clients}
                self._set_guide(guide_of(course, state, self.config, absent, log))
        finally:
            course.engine.close()
            self._left = {agreement.clients[i] for i in course.left}
            self._keep(agreement)
        directory.finish(run)
        self._silent = self._kept_silent()
        write_report(directory.path)

    def _course(
        self, directory: RunDirectory, agreement: Agreement, sites: Sites, log: Callable[[str], None]
    ) -> tuple[Course, State]:
        """The rounds, and where they stand."""
        federation, seed = hub_federation(agreement), self.config.seed
        alg, t = bound(self._terms[agreement.clients[0]], federation)
        directory.fingerprint = fingerprint(federation, alg, t, seed)
        before = (
            load_newest(self.out / "checkpoint", directory.fingerprint)
            if directory.ended
            else directory.load_checkpoint()
        )
        state = before or replace(begin(alg, federation), engine=Transported.name)
        if self.spec.asynchronous:
            t = t.model_copy(update={"quorum": 0.0})
        engine = engine_of(alg, agreement.clients, self.transport, self.spec, update_pattern(alg, state), t, log)
        course = Course(alg, engine, federation, t, seed, directory, self.progress, log)
        left = {agreement.place(c) for c in self._left}
        course.prepared(sites, agreement, left, self._went, lambda c: self._gone(c, sites), self._departed.names)
        return course, state

    # agreeing

    def _agreement(self, directory: RunDirectory, sites: Sites) -> Agreement:
        """That of the run in the directory, or a new one, accepted by all."""
        if (kept := self._agreed) is not None:
            self._common, made, self._left = kept
        else:
            self._phase = "waiting"
            names = self._greet(sites.gather(self.spec.sites), sites)
            self._phase = "agreeing"
            made = reach(self.config.federation, names, self.config.seed, sites.ask)
            self._common = self._bound(made)
            for text in made.sole.values():
                sites.log(text)
            sites.accepted(self._for_all(made))
            made = settle(made, sites.ask)
        self._clients, self._terms = made.clients, self._for_all(made)
        if kept is None:
            sites.accepted(self._terms)
            self._keep(made)
        else:
            here = [c for c in made.clients if c in self.transport.nodes()]
            for c, e in everyone(here, lambda c: sites.agree(c, self._terms[c], self.spec.wait)).items():
                if isinstance(e, Exception):
                    sites.log(f"{c}: {e}")
        return made

    def _bound(self, agreement: Agreement) -> Terms:
        """The terms, with the hash of the weights that training starts from. Raises InputError where model and
        algorithm do not go together, before any site hears of them."""
        federation = hub_federation(agreement)
        try:
            initial = sha256(task_of(self.config.model, federation, self.config.seed).init())
            made = terms(self.config, agreement.clients, initial, secrets.token_hex(8))
            bound(made, federation)
        except InputError as e:
            raise InputError(f"the hub's own config: {e}") from None
        return made

    def _for_all(self, agreement: Agreement) -> dict[str, Terms]:
        """Each site's own terms: it learns the sizes and counts of no other."""
        return {c: self._common | {"data": agreement.for_site(c).model_dump_json()} for c in agreement.clients}

    def _keep(self, agreement: Agreement) -> None:
        kept = {"terms": self._common, "data": agreement.model_dump_json(), "left": sorted(self._left)}
        write(self.out / AGREED, json.dumps(kept, ensure_ascii=False))
        self._agreed = self._common, agreement, set(self._left)

    def _kept(self) -> tuple[Terms, Agreement, set[str]] | None:
        """(terms, agreement, who has left) of the run in the directory."""
        file = self.out / AGREED
        if not file.exists():
            return None
        kept = json.loads(file.read_text(encoding="utf-8"))
        return check(kept["terms"]), Agreement.model_validate_json(kept["data"]), set(kept["left"])

    def _kept_guide(self) -> "Guide | None":
        if not (self.out / GUIDE).exists():
            return None
        from fedroute.router.guide import Guide

        return Guide.load(self.out / GUIDE)

    def _greet(self, names: tuple[str, ...], sites: Sites) -> tuple[str, ...]:
        """Those of them that have not left. Says where a site is of another version, or its clock is wrong.

        Raises RunFailed where one has left that the config names, or all have."""
        import fedroute

        hellos = sites.all("hello", {c: {} for c in names})
        gone = [c for c, hello in hellos.items() if hello.get("state") == "left"]
        for c in names:
            self._gone(c, sites) if c in gone else self._departed.back(c)
        if gone and (self.spec.sites or len(gone) == len(names)):
            raise RunFailed(f"{', '.join(gone)} {LEFT}: take it out of hub.sites, or let it join anew")
        for c, hello in hellos.items():
            if c in gone:
                continue
            if hello.get("client") != c:
                raise InputError(f"{c}: its site calls itself {hello.get('client')!r}: give both one name")
            if hello.get("version") != fedroute.__version__:
                sites.log(
                    f"{c}: runs fedroute {hello.get('version')!s}, this is {fedroute.__version__}: use one version"
                )
            clock = hello.get("clock")
            if isinstance(clock, float) and abs(clock - time.time()) > 60:
                sites.log(f"{c}: its clock is {abs(clock - time.time()):.0f} s off")
        return tuple(c for c in names if c not in gone)

    # who comes and goes

    def _listen(self, log: Callable[[str], None]) -> None:
        if not self._listening:
            self._listening = True
            self.transport.on_change(lambda node, here: self._came(node, log) if here else None)

    def _came(self, node: str, log: Callable[[str], None]) -> None:
        """A site that comes back is brought its terms, one that has left is taken note of, and a new one is let in once
        the run has ended. In a thread of its own."""
        if self._terms and (node not in self._terms or node in self._silent) and node not in self._joined:
            self._new.add(node)
        ended = self._phase == "done"
        threading.Thread(target=self._meet, args=(node, log, ended), daemon=True).start()

    def _meet(self, node: str, log: Callable[[str], None], ended: bool) -> None:
        sites = Sites(self.transport, self.spec, log, self.stop.is_set)
        try:
            if sites.caller(node).ask("hello", {}).get("state") == "left":
                self._new.discard(node)
                self._gone(node, sites)
            elif node in self._departed.names() and self._terms:
                self._new.add(node)  # it has joined anew
            elif node in self._terms and node not in self._joined and not ended:
                sites.agree(node, self._terms[node], self.spec.wait)
        except TransportError as e:
            self.log(named(node, e))
        if node in self._new:
            if self._phase == "done":
                self._admit(node)
            else:
                log(f"{node} is new: it is let in once the run has ended")

    def _gone(self, node: str, sites: Sites) -> None:
        """Takes note that a site has left, from now on, and lets it know that this was heard."""
        self._refused.pop(node, None)
        if self._departed.add(node):
            self.log(f"{node} {LEFT}; the others go on")
            self._set_guide(self._guide)
        try:
            sites.caller(node, Patience(self.spec.answer_timeout)).ask("leave", {})
        except TransportError as e:
            self.log(f"{node} does not know yet that its leaving was heard: {e}")

    def _set_guide(self, guide: "Guide | None") -> None:
        """It is in force from now on, without those that have left."""
        with self._guiding:
            if guide is None:
                return
            for c in sorted({*guide.clients} & self._departed.names()):
                if len(guide.clients) > 1:
                    guide = guide.leave(c)
            guide.save(self.out / GUIDE)
            self._guide = guide

    def _kept_joined(self) -> dict[str, Any]:
        """client -> what is known of a site that came later."""
        file = self.out / JOINED
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}

    def _kept_silent(self) -> dict[str, str]:
        """client -> why it gave no answer when the run ended; of those that have not been let in again."""
        file = self.out / "summary.json"
        told = json.loads(file.read_text(encoding="utf-8")).get("hub", {}) if file.exists() else {}
        return {c: str(why) for c, why in told.get("silent", {}).items() if c not in self._joined}

    def _admit(self, node: str) -> bool:
        """Lets in a new site, or one that was silent at the end, or says why not. Whether to try again."""
        sites = Sites(self.transport, self.spec, self.log, self.stop.is_set)
        with self._admitting:
            self._new.discard(node)
            gone = node in self._departed.names()
            there = node in {*self._terms, *self._joined} - {*self._silent}
            if (kept := self._agreed) is None or (there and not gone):
                return False
            try:
                told, guide = self._let_in(node, kept[1], sites, node in self._silent and not gone)
            except NotAccepted as e:
                self._refused[node] = str(e)
                threading.Thread(target=self._admit_later, args=(node, e.terms), daemon=True).start()
                return False
            except (InputError, RunFailed) as e:
                self._not_in(node, e, sites)
                return True
            except KeyboardInterrupt:
                if not self.stop.is_set():
                    raise
                return False
            self._refused.pop(node, None)
            self._silent.pop(node, None)
            self._departed.back(node)
            self._set_guide(guide)
            joined = self._joined | {node: told}
            write(self.out / JOINED, json.dumps(joined, ensure_ascii=False, indent=1) + "\n")
            self._joined = joined
        return False

    def _let_in(
        self, node: str, agreement: Agreement, sites: Sites, again: bool
    ) -> tuple[dict[str, Any], "Guide | None"]:
        """As `admit`. again: it took part in the run."""
        course, state = self._course(RunDirectory(self.out), agreement, sites, self.log)
        try:
            if again and (done := readmit(node, course, state, self._terms[node], sites, self._guide, self.log)):
                return done
            return admit(node, course, state, self._common, sites, self._guide, self.log)
        finally:
            course.engine.close()

    def _admit_later(self, node: str, terms: Mapping[str, Terms]) -> None:
        """Lets a new site in once its owner has accepted; the others do not wait for that."""
        sites = Sites(self.transport, self.spec, self.log, self.stop.is_set)
        try:
            sites.accepted(terms)
        except KeyboardInterrupt:
            return
        except RunFailed as e:
            self._not_in(node, e, sites)
            return
        self._admit(node)

    def _not_in(self, node: str, e: Exception, sites: Sites) -> None:
        """Takes note of why it is not let in; it is tried again, for its data may be mended."""
        if LEFT in str(e):
            self._refused.pop(node, None)
            self._gone(node, sites)
            return
        if self._refused.get(node) != str(e):
            self.log(f"{node} is not let in: {e}; it is tried again")
        self._refused[node] = str(e)
        if node not in self._trying:
            self._trying.add(node)
            threading.Thread(target=self._try_again, args=(node,), daemon=True).start()

    def _try_again(self, node: str) -> None:
        """For as long as it is connected and refused: one that comes anew is tried then."""
        pause = SOONEST
        while not self.stop.wait(pause) and node in self._refused and node in self.transport.nodes():
            pause = min(2 * pause, LONGEST)
            if not self._admit(node):
                break
        self._trying.discard(node)

    def _went(self, state: State) -> None:
        self._round = state.round
        self._standing.after(state.quarantined, state.round)

    def _out(self) -> frozenset[str]:
        """Those who have left and have not come back, approved anew."""
        return self._departed.names() - self._new - {*self._refused}

    def _state_of(self, client: str, here: set[str]) -> str:
        if client in self._out():
            return LEFT
        return "here" if client in here else "away"

    def _words_on(self, client: str) -> str:
        if client in self._refused:
            return f"is not let in: {self._refused[client]}"
        if client in self._new:
            return "is not let in yet"
        if client in self._silent:
            return f"gave no answer when the run ended ({self._silent[client]}); it is let in again when it comes"
        if notes := self.transport.notes().get(client):
            return notes
        if client in self._joined:
            return IN_AGAIN if self._joined[client].get("again") else LATE
        return self._standing.words(client)


def run_hub(config: Config, out: Path, transport: Transport, **options: Any) -> dict[str, Any]:
    """`Hub(...).run()`."""
    return Hub(config, out, transport, **options).run()


def goes_with(config: Config, spec: HubSpec) -> None:
    """Raises InputError for options that together would not do what they say."""
    t = config.training
    if spec.asynchronous and (t.clients_per_round != 1 or t.sampling == "loss"):
        raise InputError(
            "hub.asynchronous: every site trains all the time: leave training.clients_per_round and sampling out"
        )
    if t.robust and t.robust.rule != "clip" and (spec.asynchronous or spec.late == "use"):
        raise InputError(
            f"training.robust: {t.robust.rule} counts each answer once, and a late one counts less: take one"
        )
