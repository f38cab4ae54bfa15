"""A site: what answers the hub at a client. It tells nothing before its owner has accepted what would leave.

folder/
  manifest.json   what would leave, and its "sha256"
  accepted        that hash, written by the owner
  agreed.json     the agreement that was accepted last
  runs/ID/        what belongs to one federation: private/ (see store), alone/, trained.json, what is served
  spool/          transfers that are under way
"""

import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

import fedroute
from fedroute.durable import write
from fedroute.errors import InputError, RunFailed, Unreadable
from fedroute.federation.left_file import leave, left
from fedroute.federation.patience import STOPPED
from fedroute.federation.transport import QUICK, Payload, Refused, check, size
from fedroute.words import count

if TYPE_CHECKING:
    from fedroute.data.federation import Federation
    from fedroute.federation.agreed import Terms
    from fedroute.federation.agreement import Agreement
    from fedroute.federation.membership import Membership
    from fedroute.federation.own_rows import SiteData
    from fedroute.federation.same_rows import Unfit
    from fedroute.service.answers import Own

OWN_LINES = frozenset(
    {"agree", "train", "get", "have", "put", "drop", "query", "cancel"}
)  # logged elsewhere, or of no interest
SETTLING = frozenset({"survey", "form", "statistics", "agree"})  # what shows whether it can take part
SUMMED = 60.0  # seconds over which answered queries are one line of the log
AGAIN = 5.0  # seconds after which data that were not those agreed on are looked at again


class Site:
    """Answers (method, payload), from any thread. What is quick (hello, ping, status, cancel, query) takes no lock that
    a training or a transfer holds.

    client: its name in the federation. folder: private to this site. source: where its rows lie, as DATA.yaml says it;
    base: the folder where relative paths in it start; file: what DATA.yaml is called. accept: the hash of the
    manifest that the owner accepted, or "any"; else the file `accepted` is looked at, at each try. log: hears what
    left, when, how many bytes."""

    def __init__(
        self,
        client: str,
        folder: Path,
        source: Mapping[str, Any],
        *,
        base: Path | None = None,
        file: str = "DATA.yaml",
        accept: str = "",
        log: Callable[[str], None] = print,
    ):
        self.client, self.folder, self.source, self.accept, self._say = client, folder, source, accept, log
        self.base, self.file = base or Path.cwd(), file
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.left, self._closed = threading.Event(), False
        self._setting, self._reading, self._counting = threading.Lock(), threading.Lock(), threading.Lock()
        self._data: SiteData | None = None
        self._spec: Mapping[str, Any] = {}
        self._told: dict[str, set[str]] = {}
        self._member: Membership | None = None
        self._made_last: Membership | None = None  # which may wait for its owner
        self._asked_for, self._times = "", 0  # the manifest that the hub asks about, and how often it has
        self._unfit: tuple[float, Terms, Unfit] | None = None
        self._answered, self._out, self._since = 0, 0, time.monotonic()
        self.fault = ""  # for which it refuses now to take part, for its owner
        self.odd = ""  # what may keep the sites from an agreement, for its owner, as seen when the hub asked last
        self._stuck: tuple[str, Payload] | None = None  # the call of the hub that it was found at
        if left(folder):
            self.left.set()

    def __call__(self, method: str, payload: Payload) -> Payload:
        if self.left.is_set() and method not in ("hello", "leave"):
            raise Refused(f"{self.client} has left the federation for good")
        if self._closed and not self.left.is_set():
            raise Refused(f"{self.client} is closing: {method} {STOPPED}")
        try:
            reply = check(self._answer(method, check(payload)))
        except Refused as e:
            if method not in QUICK and STOPPED not in str(e):
                self.log(f"refused {method}: {e}")
            if method in SETTLING:
                self.fault, self._stuck = _own(e), (method, payload)
            elif hasattr(e, "own"):  # rows that are not those agreed on, whatever was asked
                self.fault, self._stuck = _own(e), ("", {})
            raise
        except (InputError, RunFailed) as e:
            self.log(f"{method}: {e}")
            if method in SETTLING:
                self.fault, self._stuck = str(e), (method, payload)
            from fedroute.federation.same_rows import NOT_NOW

            why = NOT_NOW if isinstance(e, Unreadable) else "cannot be answered at this site; its log says why"
            raise Refused(f"{method}: {why}") from None
        except Exception as e:
            self.log(f"{method}: {traceback.format_exc()}".rstrip())
            if method in SETTLING:
                self.fault, self._stuck = _raised(method, e), (method, payload)
            raise Refused(_raised(method, e)) from None
        if method not in QUICK:
            self.fault, self._stuck = "", None
        self._count(method, size(reply))
        return reply

    def look(self) -> str:
        """Whether it can still take part in what was agreed on, before the hub asks, and whether a fault of its own is
        still there when the hub asks no more: its fault. What DATA.yaml says and the file are read anew for that.
        Nothing leaves."""
        stuck = self._stuck or (None if self.fault else ("", {}))
        if stuck and not self.left.is_set() and not self._closed:
            with self._reading:
                self._data = self._unfit = None
            try:
                self._tried(*stuck)
                self.fault, self._stuck = "", None
            except (Refused, InputError, RunFailed) as e:
                if isinstance(e, InputError) and str(e) != self.fault:
                    self.log(str(e))
                self.fault, self._stuck = _own(e), stuck
            except Exception as e:  # whoever looks goes on looking
                said, self.fault, self._stuck = self.fault, _raised(stuck[0], e), stuck
                if said != self.fault:
                    self.log(traceback.format_exc().rstrip())
        return self.fault

    def _tried(self, method: str, payload: Payload) -> None:
        """Does what answering the hub took; "": what it takes to take part."""
        if method == "agree":
            self._made(_json(payload, "terms"))
        elif method:
            self._tell(method, payload)
        else:
            self.described()
            if (self.folder / "agreed.json").exists():
                self._agreed()

    def described(self) -> Mapping[str, Any]:
        """Where its rows lie, as DATA.yaml says it now. Raises InputError where that is wrong."""
        return self.source

    def close(self) -> None:
        """Stops a training between two batches, and says what was answered. Nothing is answered any more."""
        self._closed = True
        if member := self._member:
            member.stop()
        self._sum_up(0.0)

    def leave(self) -> None:
        """The site takes part no more, also after a restart. What it has sent stays in what was made of it; its private
        weights stay here."""
        leave(self.folder)
        self.left.set()
        self.log("has left the federation for good")
        self.close()

    def own(self) -> "Own | None":
        """The model with which queries are answered now; None while there is none. Raises Refused as a call does."""
        if self.left.is_set() or self._closed:
            raise Refused(f"{self.client} answers no more")
        return self._agreed().own_model()

    def log(self, text: str) -> None:
        self._say(f"{self.client}: {text}")

    def _answer(self, method: str, payload: Payload) -> Payload:
        match method:
            case "hello" | "status" | "ping":
                return self._status()
            case "survey" | "form" | "statistics":
                return self._tell(method, payload)
            case "agree":
                return self._agree(_json(payload, "terms"))
            case "leave":
                if not self.left.is_set():
                    raise Refused(f"leave: only the owner of {self.client} may say that it leaves")
                leave(self.folder, heard=True)
                return {}
            case _:
                return self._agreed()(method, payload)

    def _status(self) -> Payload:
        m = self._member
        state = "left" if self.left.is_set() else "new"
        if m and not self.left.is_set():
            state = "training" if m.trainer.busy is not None else "serving" if m.serving else "agreed"
        elif (self.folder / "agreed.json").exists() and not self.left.is_set():
            state = "agreed"
        return {
            "version": fedroute.__version__,
            "client": self.client,
            "clock": time.time(),
            "state": state,
            "federation": m.agreed["federation"] if m else "",
        }

    def _tell(self, method: str, payload: Payload) -> Payload:
        """What the hub asks about the data."""
        from fedroute.federation.agreement import counts_of
        from fedroute.federation.form import Form
        from fedroute.federation.own_columns import own_faults
        from fedroute.federation.statistics import answer
        from fedroute.federation.survey import survey

        asked, told = _json(payload, "asked"), dict[str, Any]()
        try:
            if method == "survey":
                rows = self._rows(asked["federation"], anew=True)
                told = survey(rows, asked["as_types"])
                self._notice("\n".join(own_faults(rows, self.file).values()))
            elif method == "form":
                form = Form.model_validate(asked)
                told = counts_of(self._rows(form.spec), form)
            else:
                agreement = self._agreed().agreement  # only once the owner has accepted
                told = answer(self._rows(agreement.spec), agreement, asked)
        except (KeyError, TypeError, ValidationError):
            raise Refused(f"{method}: not what is asked here; is the hub of the same version of fedroute?") from None
        return {"told": json.dumps(told, ensure_ascii=False)}

    def _notice(self, odd: str) -> None:
        if odd and odd != self.odd:
            self.log(odd)
        self.odd = odd

    def _rows(self, spec: Mapping[str, Any], anew: bool = False) -> "SiteData":
        """This site's rows, read once for a `federation:` part of the hub's config, or `anew`."""
        from fedroute.federation.own_rows import SiteData

        with self._reading:
            if self._data is None or anew or self._spec != spec:
                source, self._data = self.described(), None
                self._data, self._spec = SiteData.read(source, self.base, spec, self.client, self.file), dict(spec)
                self._data.told = self._told  # what was told already counts also where the file is read again
            return self._data

    def _agree(self, agreed: "Terms") -> Payload:
        """What would leave, for the owner, and whether that was accepted; then the site is ready for rounds."""
        from fedroute.federation.consent import site_manifest

        member = self._made(agreed)
        manifest = site_manifest(
            member.agreement, member.algorithm, member.training, self.client, router=bool(agreed["router"])
        )
        digest = str(manifest["sha256"])
        write(self.folder / "manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
        if accepted := self._accepts(digest):
            with self._setting:
                if self._member is not None and self._member is not member:
                    self._member.stop()  # there is one hub, and it has gone on to another federation
                write(self.folder / "agreed.json", json.dumps(agreed))
                self._member = member
        return self._said_of(digest, accepted, agreed["federation"])

    def _said_of(self, digest: str, accepted: bool, federation: str) -> Payload:
        """The answer to the hub, which asks again and again until the owner has accepted; the log hears what is new."""
        reply: Payload = {"sha256": digest, "accepted": accepted}
        self._times = self._times + 1 if digest == self._asked_for else 1
        told = f"whether its owner has accepted: {size(reply):,} bytes"
        if accepted:
            self.log(f"has told the hub {count(self._times, 'time')} {told} each time")
            self.log(f"takes part in federation {federation}; what leaves is in {self.folder / 'manifest.json'}")
            self._times = 0
        elif self._times == 1:
            self.log(
                f"until the owner has accepted {self.folder / 'manifest.json'} nothing more leaves but, each time the "
                f"hub asks, {told}: `fedroute site manifest {self.folder}` shows it, `fedroute site accept "
                f"{self.folder}` accepts it"
            )
        self._asked_for = digest
        return reply

    def _accepts(self, digest: str) -> bool:
        file = self.folder / "accepted"
        return self.accept in (digest, "any") or (file.exists() and digest in file.read_text().split())

    def _agreed(self) -> "Membership":
        """Raises Refused where the owner has not accepted anything yet."""
        if (m := self._member) is not None:
            return m
        file = self.folder / "agreed.json"
        if not file.exists():
            raise Refused(f"nothing is agreed with {self.client} yet, or its owner has not accepted what would leave")
        member = self._made(_json({"terms": file.read_text()}, "terms"))
        with self._setting:
            self._member = self._member or member
            return self._member

    def _made(self, agreed: "Terms") -> "Membership":
        """This site as a member. Raises Refused where it cannot be one."""
        from fedroute.federation.agreed import check as checked
        from fedroute.federation.agreement import Agreement
        from fedroute.federation.membership import Membership
        from fedroute.federation.transfer import Spool

        with self._setting:
            for m in (self._member, self._made_last):
                if m is not None and m.agreed == agreed:
                    return m
            try:
                agreement = Agreement.model_validate_json(checked(agreed)["data"])
                folder = self.folder / "runs" / agreed["federation"]
            except (ValidationError, KeyError):
                raise Refused("terms that are not understood here; is the hub of the same version?") from None
            own = self._as_agreed(agreed, agreement, folder)
            try:
                spool = Spool(self.folder / "spool")
                self._made_last = Membership(self.client, agreed, agreement, own, folder, spool, self.log)
                return self._made_last
            except InputError as e:
                self.log(str(e))
                raise Refused(f"cannot take part: {e}") from None

    def _as_agreed(self, agreed: "Terms", agreement: "Agreement", folder: Path) -> "Federation":
        """This site's rows, where they are those of the agreement. Raises Refused, in words that say nothing of them,
        where others have come in their place; they are looked at again at a later call."""
        from fedroute.federation.same_rows import ROWS, Unfit, as_agreed

        if (last := self._unfit) and last[1] == agreed and time.monotonic() - last[0] < AGAIN:
            raise last[2].with_traceback(None)
        try:
            try:
                return as_agreed(self._rows(agreement.spec), agreement, folder)
            except InputError as e:
                self._data = None
                if (folder / ROWS).exists():
                    raise Unfit(e) from None
                raise
        except Unfit as e:
            self._data = None
            self.log(e.own)
            self._unfit = time.monotonic(), agreed, e
            raise

    def _count(self, method: str, bytes: int) -> None:
        if method == "query":
            with self._counting:
                self._answered, self._out = self._answered + 1, self._out + bytes
            self._sum_up(SUMMED)
        elif method not in OWN_LINES and method not in ("hello", "status", "ping"):
            self.log(f"has sent its answer to {method}: {bytes:,} bytes")

    def _sum_up(self, after: float) -> None:
        """A line about the queries answered, where `after` seconds have passed since the last."""
        with self._counting:
            n, out, passed = self._answered, self._out, time.monotonic() - self._since
            if not n or passed < after:
                return
            self._answered, self._out, self._since = 0, 0, time.monotonic()
        self.log(f"has answered {n:,} queries in {passed:.0f} s: {out:,} bytes")


def _own(e: Exception) -> str:
    """An error in words for the owner, which may name files."""
    return str(getattr(e, "own", e))


def _raised(method: str, e: Exception) -> str:
    return f"{method or 'reading its data'} raised {type(e).__name__}; the traceback is in the log of this site"


def _json(payload: Payload, key: str) -> "Terms":
    try:
        found = json.loads(str(payload.get(key)))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(f"{key}: no JSON object")
    return found
