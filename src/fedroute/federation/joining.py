"""A site that comes later: it takes no part in rounds, and gets a private part, a line, and a place in the guide. One
that took part and gave no answer at the end keeps what it trained, and gets its line and its place."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedroute.errors import RunFailed
from fedroute.federation.agreed import Terms
from fedroute.federation.agreement import Agreement, hub_federation
from fedroute.federation.asking import NotAccepted, Sites, named
from fedroute.federation.course import Course
from fedroute.federation.finishing import Last, Sums
from fedroute.federation.judging import alone_rounds
from fedroute.federation.same_rows import CHANGED, NOT_NOW
from fedroute.federation.transport import Refused, TransportError
from fedroute.rounds import State
from fedroute.training import adapt_epochs

if TYPE_CHECKING:
    from fedroute.router.guide import Guide


def extended(agreement: Agreement, client: str, told: dict[str, Any]) -> Agreement:
    """The agreement with one more site, after all others, as a newcomer; one that had left and comes back keeps its
    number. told: what `counts_of` told there.

    Raises RunFailed where that is none."""
    try:
        a, b, c = (int(n) for n in told["sizes"])
        counts = tuple(tuple(map(int, part)) for part in told["labels"])
    except (KeyError, TypeError, ValueError):
        raise RunFailed(f"{client}: its counts are not what they should be; is it of the same version?") from None
    clients = tuple(dict.fromkeys((*agreement.clients, client)))
    return agreement.model_copy(
        update={
            "clients": clients,
            "newcomers": tuple(dict.fromkeys((*agreement.newcomers, clients.index(client)))),
            "sizes": agreement.sizes | {client: (a, b, c)},
            "counts": agreement.counts | {client: counts},
            "different": agreement.different | {client: a},
        }
    )


def admit(
    client: str,
    course: Course,
    state: State,
    common: Terms,
    sites: Sites,
    guide: "Guide | None",
    log: Callable[[str], None],
) -> tuple[dict[str, Any], "Guide | None"]:
    """({entry of the ledger, sha256 of the private tree, rows}, the guide with it). The site looks at the weights of
    the last round, on its own rows.

    course: of the run that has ended, without rounds to come. Raises RunFailed where the site does not answer, its
    owner does not accept, or its rows do not fit."""
    form = course.agreement.form
    report = sites.ask("survey", {client: {"federation": form.spec, "as_types": {}}})[client]
    if lacking := [c.name for c in form.columns if c.name not in report.get("columns", ())]:
        raise RunFailed(
            f"{client}: its file has no column {', '.join(map(repr, lacking))}; DATA.yaml may `rename` columns"
        )
    asked = form.model_dump(mode="json") | {"clients": [*dict.fromkeys((*form.clients, client))]}
    agreement = extended(course.agreement, client, sites.ask("form", {client: asked})[client])
    sites.accepted({client: common | {"data": agreement.for_site(client).model_dump_json()}}, once=True)
    i, took_part = agreement.place(client), client in course.agreement.clients
    course.agreement, course.engine.clients = agreement, agreement.clients
    # one that comes back may have a folder without its old private weights: it begins with those of the model's start
    state = replace(state, privates={k: v for k, v in state.privates.items() if k != i})
    last = Last(course, state, [i])
    last.adapted({i: adapt_epochs(course.alg) or 1})
    told, guide = _settled(client, last, guide, log)
    how = ("took part in rounds, with rows or private weights that are there no more: it begins as a new one"
           if took_part else "takes part in no round")  # fmt: skip
    log(f"{client} has joined: {agreement.sizes[client][0]:,} training rows; it {how}, and answers")
    return told, guide


def readmit(
    client: str, course: Course, state: State, terms: Terms, sites: Sites, guide: "Guide | None",
    log: Callable[[str], None],
) -> "tuple[dict[str, Any], Guide | None] | None":  # fmt: skip
    """As `admit`, of a site that took part in the run and gave no answer at its end: with its rows and the private
    weights that it trained, as the others had it at the end. None where those are there no more.

    Raises RunFailed where the site does not answer, or its owner has yet to accept."""
    try:
        reply = sites.agree(client, terms, sites.spec.wait)
    except Refused as e:
        if NOT_NOW in str(e) or CHANGED in str(e):
            raise RunFailed(named(client, e)) from None
        return None  # a folder of another making, with rows of its own
    except TransportError as e:
        raise RunFailed(named(client, e)) from None
    if reply.get("accepted") is not True:
        raise NotAccepted(f"the owner of {client} has not accepted yet", {client: terms})
    i = course.agreement.place(client)
    last = Last(course, state, [i])
    if last.all("hash", lambda k: {"version": last.version(k)})[i].get("said"):
        return None
    last.adapted({i: adapt_epochs(course.alg) or int(i in course.whole.newcomers)})
    told, guide = _settled(client, last, guide, log)
    log(f"{client} took part in the run, gave no answer at its end, and is let in again with what it trained")
    return told | {"again": True}, guide


def _settled(
    client: str, last: Last, guide: "Guide | None", log: Callable[[str], None]
) -> tuple[dict[str, Any], "Guide | None"]:
    """What is left to do once its weights are: training alone, its line, serving, its place in the guide."""
    course, (i,) = last.course, last.members
    if course.t.alone:
        whole = hub_federation(course.agreement)
        rounds = alone_rounds(course.alg, whole, course.t, course.seed, last.state.losses)[i]
        last.trained_alone({i: rounds})
    entry, hashed = last.judged("ledger")[client], last.hashes()[client]
    last.serve()
    if guide is not None:
        from fedroute.federation.guide_fit import joined

        guide = joined(guide, client, Sums(course, last.state), log)
    return {"entry": entry, "sha256": hashed, "rows": list(course.agreement.sizes[client])}, guide
