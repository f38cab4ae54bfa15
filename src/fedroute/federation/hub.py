"""The hub's side of a run: from waiting for sites to a run directory such as `fit` leaves."""

import json
import secrets
import threading
import time
from collections.abc import Callable
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
from fedroute.federation.asking import LEFT, Sites, everyone
from fedroute.federation.course import Course, begin, engine_of
from fedroute.federation.finishing import finished, guide_of
from fedroute.federation.joining import admit
from fedroute.federation.spec import HubSpec
from fedroute.federation.statistics import settle
from fedroute.federation.transport import Transport, TransportError
from fedroute.jobs import logged, write_report
from fedroute.rounds import State, update_pattern
from fedroute.run_directory import RunDirectory, fingerprint
from fedroute.say import announce, planned
from fedroute.training import LOOKED_AT, Progress
from fedroute.tree import sha256

if TYPE_CHECKING:
    from fedroute.router.guide import Guide

AGREED, GUIDE, JOINED = "agreement.json", "guide.safetensors", "joined.json"


class Hub:
    """One run over a transport.

    config: its `federation:` part says what the rows mean, and no path; `hub:` how it is run. out: the run directory; a
    run that is there is gone on with. log hears a line for people, progress is called after each round, as in `fit`.
    stop: set from outside it ends the run after the last whole round, which is saved; a later Hub goes on.

    Raises InputError where the parts of the config do not fit together."""

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
        self._phase, self._round, self._clients = "waiting", 0, tuple[str, ...](self.spec.sites or ())
        self._common, self._terms = dict[str, Any](), dict[str, Terms]()
        self._left, self._new = set[str](), set[str]()
        self._admitting, self._listening, self._guide = threading.Lock(), False, self._kept_guide()
        if (kept := self._kept()) is not None:
            self._common, agreement, self._left = kept
            self._clients, self._terms = agreement.clients, self._for_all(agreement)

    def clients(self) -> tuple[str, ...]:
        """The sites that have agreed, and those that have joined since; none before there is an agreement."""
        return (*self._clients, *self._joined()) if self._kept() else ()

    def guide(self) -> "Guide | None":
        """Who should answer a query; None where there is no guide, or not yet."""
        return self._guide

    def status(self) -> dict[str, Any]:
        """{phase, round, rounds, sites: [{client, here, state}]}: at once, from any thread."""
        here = self.transport.nodes()
        names = sorted({*self._clients, *here})
        return {
            "phase": self._phase,
            "round": self._round,
            "rounds": self.config.training.rounds,
            "sites": [{"client": c, "here": c in here, "state": self._state_of(c, here)} for c in names],
        }

    def run(self) -> dict[str, Any]:
        """The run to its end; its summary. Where it has ended already nothing is done, but for sites that come later:
        they are let in, for as long as this object is there.

        Raises InputError where config or data are wrong, RunFailed where the run cannot go on, KeyboardInterrupt where
        it was stopped: then, and after a kill, a later call goes on from the last checkpoint."""
        directory = RunDirectory(self.out)
        if (self.out / "config.yaml").exists():
            directory.open()
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
            except Exception:
                self._phase = "failed"
                raise
            self._phase = "done"
        for node in sorted(self._new):
            self._admit(node)
        return directory.read_summary()

    def _run(self, directory: RunDirectory, log: Callable[[str], None]) -> None:
        sites = Sites(self.transport, self.spec, log, self.stop.is_set)
        agreement = self._agreement(directory, sites)
        course, state = self._course(directory, agreement, sites, log)
        says = planned(course.alg, course.whole, course.t, course.seed, LOOKED_AT)
        for text in announce(says, course.alg, course.whole, course.t):
            log(text)
        if state.round:
            log(f"going on after round {state.round}")
        self._phase, began = "training", state.round
        try:
            state = course.run(state)
            self._phase = "judging"
            run = finished(course, state, says, began)
            if self.config.router and self._guide is None:
                absent = {*run.besides["hub"]["left"], *run.besides["hub"].get("silent", ())}
                guide = guide_of(course, state, self.config, absent, log)
                guide.save(directory.path / GUIDE)
                self._guide = guide
        finally:
            course.engine.close()
            self._left = {agreement.clients[i] for i in course.left}
            self._keep(agreement)
        directory.finish(run)
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
        course.prepared(sites, agreement, {agreement.place(c) for c in self._left}, self._went)
        return course, state

    # agreeing

    def _agreement(self, directory: RunDirectory, sites: Sites) -> Agreement:
        """That of the run in the directory, or a new one, accepted by all."""
        if (kept := self._kept()) is not None:
            self._common, made, self._left = kept
        else:
            self._phase = "waiting"
            names = sites.gather(self.spec.sites)
            self._greet(names, sites)
            self._phase = "agreeing"
            made = reach(self.config.federation, names, self.config.seed, sites.ask)
            self._common = terms(self.config, made.clients, self._initial(made), secrets.token_hex(8))
            sites.accepted(self._for_all(made))
            made = settle(made, sites.ask)
        self._clients, self._terms = made.clients, self._for_all(made)
        if kept is None:
            sites.accepted(self._terms)
            self._keep(made)
        else:
            here = [c for c in made.clients if c in self.transport.nodes()]
            everyone(here, lambda c: sites.agree(c, self._terms[c], self.spec.wait))
        return made

    def _initial(self, agreement: Agreement) -> str:
        """The hash of the weights that training starts from."""
        return sha256(task_of(self.config.model, hub_federation(agreement), self.config.seed).init())

    def _for_all(self, agreement: Agreement) -> dict[str, Terms]:
        """Each site's own terms: it learns the sizes and counts of no other."""
        return {c: self._common | {"data": agreement.for_site(c).model_dump_json()} for c in agreement.clients}

    def _keep(self, agreement: Agreement) -> None:
        kept = {"terms": self._common, "data": agreement.model_dump_json(), "left": sorted(self._left)}
        write(self.out / AGREED, json.dumps(kept, ensure_ascii=False))

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

    def _greet(self, names: tuple[str, ...], sites: Sites) -> None:
        """Says where a site is of another version, or its clock is wrong."""
        import fedroute

        for c, hello in sites.all("hello", {c: {} for c in names}).items():
            if hello.get("client") != c:
                raise InputError(f"{c}: its site calls itself {hello.get('client')!r}: give both one name")
            if hello.get("version") != fedroute.__version__:
                sites.log(
                    f"{c}: runs fedroute {hello.get('version')!s}, this is {fedroute.__version__}: use one version"
                )
            clock = hello.get("clock")
            if isinstance(clock, float) and abs(clock - time.time()) > 60:
                sites.log(f"{c}: its clock is {abs(clock - time.time()):.0f} s off")

    # who comes and goes

    def _listen(self, log: Callable[[str], None]) -> None:
        if not self._listening:
            self._listening = True
            self.transport.on_change(lambda node, here: self._came(node, log) if here else None)

    def _came(self, node: str, log: Callable[[str], None]) -> None:
        """A site that comes back is brought its terms; a new one is let in once the run has ended. Each in a thread of
        its own."""
        if not self._terms:
            return
        if node in self._terms:
            sites = Sites(self.transport, self.spec, log, self.stop.is_set)
            threading.Thread(target=self._bring, args=(node, sites), daemon=True).start()
        elif node not in self._joined():
            log(f"{node} is new: it is let in once the run has ended")
            self._new.add(node)
            if self._phase == "done":
                threading.Thread(target=self._admit, args=(node,), daemon=True).start()

    def _bring(self, node: str, sites: Sites) -> None:
        try:
            sites.agree(node, self._terms[node], self.spec.wait)
        except TransportError as e:
            self.log(f"{node}: {e}")

    def _joined(self) -> dict[str, Any]:
        """client -> what is known of a site that came later."""
        file = self.out / JOINED
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}

    def _admit(self, node: str) -> None:
        """Lets a new site in, or says why not."""
        directory = RunDirectory(self.out)
        sites = Sites(self.transport, self.spec, self.log, self.stop.is_set)
        with self._admitting:
            self._new.discard(node)
            if (kept := self._kept()) is None or node in self._joined():
                return
            course, state = self._course(directory, kept[1], sites, self.log)
            try:
                told, guide = admit(node, course, state, self._common, sites, self._guide, self.log)
            except (InputError, RunFailed) as e:
                self.log(f"{node} is not let in: {e}")
                return
            finally:
                course.engine.close()
            if guide is not None:
                guide.save(self.out / GUIDE)
                self._guide = guide
            write(self.out / JOINED, json.dumps(self._joined() | {node: told}, ensure_ascii=False, indent=1) + "\n")

    def _went(self, round: int, rounds: int) -> None:
        self._round = round

    def _state_of(self, client: str, here: tuple[str, ...]) -> str:
        return LEFT if client in self._left else "here" if client in here else "away"


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
