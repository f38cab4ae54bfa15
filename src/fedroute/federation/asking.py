"""Asking many sites at the same time, and getting agreement from all of them."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from fedroute.errors import RunFailed
from fedroute.federation.agreed import Terms
from fedroute.federation.patience import Caller, Patience
from fedroute.federation.spec import HubSpec
from fedroute.federation.transport import Away, Late, Payload, Refused, Transport, TransportError

T = TypeVar("T")
SETTLED = 10.0  # seconds without a new site after which those that are here are taken
AT_ONCE = 64
LEFT = "has left the federation for good"
LONG = 1e9  # seconds: as long as patience lasts


class NotAccepted(RunFailed):
    """An owner has not accepted these terms yet, and may still do so."""

    def __init__(self, words: str, terms: Mapping[str, Terms]):
        super().__init__(words)
        self.terms = terms


def named(client: str, error: Exception) -> str:
    """An error with the site's name before it, once."""
    text = str(error)
    return text if text.startswith((f"{client}:", f"{client} ")) else f"{client}: {text}"


def everyone(who: Iterable[T], ask: Callable[[T], Any]) -> dict[T, Any]:
    """{one: what `ask` gave, or the TransportError that it raised}, all at the same time."""

    def asked(one: T) -> Any:
        try:
            return ask(one)
        except TransportError as e:
            return e

    names = list(who)
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(names)))) as pool:
        return dict(zip(names, pool.map(asked, names), strict=True))


class Sites:
    """The sites as the hub speaks with them, besides the rounds. Each call is made again where a connection breaks, for
    as long as spec.wait says. stopped: asked while it waits; True ends it with KeyboardInterrupt."""

    def __init__(self, transport: Transport, spec: HubSpec, log: Callable[[str], None], stopped: Callable[[], bool]):
        self.transport, self.spec, self.log, self.stopped = transport, spec, log, stopped
        self.open = frozenset[str]()  # those whose owners have not accepted yet

    def caller(self, client: str, patience: Patience | None = None) -> Caller:
        patience = patience or Patience(self.spec.wait)
        return Caller(self.transport, client, patience, self.spec.answer_timeout, self.log, away=self.spec.wait)

    def pause(self, seconds: float) -> None:
        """Raises KeyboardInterrupt where the hub is to stop."""
        end = time.monotonic() + seconds
        while not self.stopped():
            if (left := end - time.monotonic()) <= 0:
                return
            time.sleep(min(0.05, left))
        raise KeyboardInterrupt

    def gather(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Waits for these sites, or for whoever comes. Raises RunFailed where one does not come in time."""
        end, since = time.monotonic() + self.spec.wait, time.monotonic()
        last: tuple[str, ...] = ()
        self.log(f"waiting for {', '.join(names) if names else 'sites'}, at most {self.spec.wait:g} s")
        while True:
            here = self.transport.nodes()
            if names and set(names) <= set(here):
                return tuple(sorted(names))
            if here != last:
                last, since = here, time.monotonic()
                self.log(f"here: {', '.join(here) or 'nobody'}")
            if not names and here and time.monotonic() - since > SETTLED:
                return here
            if time.monotonic() > end:
                missing = ", ".join(sorted(set(names or ()) - set(here))) or "any site"
                raise RunFailed(
                    f"waited {self.spec.wait:g} s for {missing}: start what is missing (`fedroute site start`): a hub "
                    "that runs goes on when it comes; or take it out of hub.sites and start the hub anew"
                )
            self.pause(0.1)

    def ask(self, what: str, asked: Mapping[str, Terms]) -> dict[str, Terms]:
        """As `agreement.Ask`. Raises RunFailed where a site does not answer."""
        payloads: dict[str, Payload] = {c: {"asked": json.dumps(q, ensure_ascii=False)} for c, q in asked.items()}
        replies = self.all(what, payloads)
        found = {}
        for c, reply in replies.items():
            try:
                found[c] = json.loads(str(reply.get("told")))
            except ValueError:
                raise RunFailed(f"{c}: its answer to {what} is no JSON; is it of the same version?") from None
        return found

    def all(self, method: str, payloads: Mapping[str, Payload]) -> dict[str, Payload]:
        """The reply of each of these. Raises RunFailed, naming every one that gave none."""
        replies = everyone(payloads, lambda c: self.caller(c).ask(method, payloads[c], LONG))
        if bad := {c: e for c, e in replies.items() if isinstance(e, Exception)}:
            raise RunFailed("\n".join(named(c, e) for c, e in bad.items()))
        return replies

    def accepted(self, terms: Mapping[str, Terms], once: bool = False) -> None:
        """Brings its terms to each of these sites and waits until the owners have accepted what would leave, however
        long that takes: people read in their own time. once: asks once, and raises NotAccepted.

        Raises RunFailed where a site cannot take part."""
        told, pause = set[str](), 0.2
        self.open = frozenset(terms)
        while self.open:
            here = sorted(self.open & {*self.transport.nodes()})
            for c, reply in everyone(here, partial(self._bring, terms, self.spec.wait)).items():
                if isinstance(reply, Refused):
                    raise RunFailed(named(c, reply))
                if isinstance(reply, (Away, Late)):
                    continue
                if reply.get("accepted") is True:
                    self.open -= {c}
                elif c not in told:
                    told.add(c)
                    self.log(
                        f"{c}: waiting for its owner to accept what would leave: `fedroute site manifest`, then "
                        f"`fedroute site accept` there; the run goes on by itself then ({reply.get('sha256')})"
                    )
            if once and self.open:
                raise NotAccepted(f"the owners of {', '.join(sorted(self.open))} have not accepted yet", terms)
            if self.open:
                self.pause(pause)
                pause = min(5.0, 1.5 * pause)

    def _bring(self, terms: Mapping[str, Terms], seconds: float, client: str) -> Payload:
        return self.agree(client, terms[client], seconds)

    def agree(self, client: str, terms: Terms, seconds: float | None = None) -> Payload:
        """Brings its terms to a site. Raises TransportError."""
        return self.caller(client, Patience(seconds)).ask("agree", {"terms": json.dumps(terms)}, LONG)
