"""The statistics of a table over all sites, exactly those of the rows together: sums that are exact, medians by
counting. Only sums and counts leave a site."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedroute.data.exact import Asked, Moments, by_counting, count_up_to, middle, middle_ranks
from fedroute.data.table import Statistics, known, summed_up
from fedroute.errors import InputError
from fedroute.federation.agreement import Agreement, Ask, Told, own_federation, settled
from fedroute.federation.own_rows import SiteData

QUESTIONS = 20  # different ones that a site answers for one agreement: 16 of counting, 2 others, and some room
THRESHOLDS = 30  # in one question, of a column


def settle(agreement: Agreement, ask: Ask) -> Agreement:
    """The agreement with its statistics. Of a table the sites that train are asked for exact sums of each numeric
    column (n, sum, sum of squares), then sixteen times for how many values are at most so and so much, by which the
    medians are found; then all for how many of their training rows differ.

    What is asked: "statistics" {what, ...}. Raises InputError for an answer that is none, naming the site."""
    statistics = None
    if agreement.table is not None and agreement.table.numeric:
        training = [c for i, c in enumerate(agreement.clients) if i not in agreement.newcomers]
        statistics = _statistics(agreement, training, ask)
    last: Told = {"what": "different", "statistics": None if statistics is None else statistics.model_dump(mode="json")}
    told = ask("statistics", dict.fromkeys(agreement.clients, last))
    return settled(agreement, statistics, {c: _whole(told[c].get("different"), c) for c in agreement.clients})


def _statistics(agreement: Agreement, training: Sequence[str], ask: Ask) -> Statistics:
    schema = agreement.table
    assert schema is not None
    told = ask("statistics", {c: {"what": "sums"} for c in training})
    total = dict.fromkeys(schema.numeric, Moments())
    for client, answer in told.items():
        for c in schema.numeric:
            total[c] = total[c] + _moments(answer, c, client)

    def count(asked: Asked) -> dict[str, list[int]]:
        question: Told = {"what": "counts", "up_to": {c: list(t) for c, t in asked.items()}}
        answers = ask("statistics", dict.fromkeys(training, question))
        sums = {c: [0] * len(t) for c, t in asked.items()}
        for client, answer in answers.items():
            for c, t in asked.items():
                counts = answer.get("counts", {}).get(c)
                if not isinstance(counts, list) or len(counts) != len(t):
                    raise InputError(f"{client}: its counts of column {c!r} are not one for each threshold")
                sums[c] = [a + _whole(b, client) for a, b in zip(sums[c], counts, strict=True)]
        return sums

    found = by_counting({c: middle_ranks(m.n) for c, m in total.items() if m.n}, count)
    columns = [(middle(found[c]), total[c]) if total[c].n else None for c in schema.numeric]
    names = [{name: 1} if (name := schema.federated.common[k]) else {} for k in range(len(schema.categorical))]
    return summed_up(columns, names)


def _moments(answer: Mapping[str, Any], column: str, client: str) -> Moments:
    try:
        return Moments.load(answer["sums"][column])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise InputError(f"{client}: its sums of column {column!r} are none; is it of the same version?") from None


def _whole(value: Any, client: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{client}: {value!r} is no count; is it of the same version of fedroute?")
    return value


def answer(data: SiteData, agreement: Agreement, question: Mapping[str, Any]) -> dict[str, Any]:
    """At a site, of its training rows: "sums" {column: [n, sum, sum of squares]} exactly, some 100 bytes a column;
    "counts" {column: [how many values are at most each threshold]}, 4 bytes a threshold, sixteen times 30; or
    "different", one number.

    The sums of a site with a single training row are that row. The last counts say whether the site has the very value
    that is the median of all. A site answers no more different questions than one settlement takes.

    Raises InputError for more questions, or another one."""
    text = json.dumps(question, sort_keys=True)
    told = data.told.setdefault(agreement.form.model_dump_json(), set())
    if text not in told and len(told) >= QUESTIONS:
        raise InputError("statistics: the hub asks more than the statistics of a table need; nothing more is told")
    told.add(text)
    what, schema = question.get("what"), agreement.table
    if what == "different":
        given = question.get("statistics")
        done = settled(agreement, None if given is None else Statistics.model_validate(given), agreement.different)
        i = agreement.place(data.client)
        return {"different": int(own_federation(data, done).effective_sizes[i])}
    if schema is None or what not in ("sums", "counts"):
        raise InputError(f"statistics: there is no question {what!r} here")
    p = data.prepared(agreement.form)
    values = {c: known(p.table[c].take(p.parts[0].numpy())) for c in schema.numeric}
    if what == "sums":
        return {"sums": {c: Moments.of(v).json() for c, v in values.items()}}
    asked = {str(c): [float(t) for t in ts] for c, ts in question["up_to"].items()}
    if unknown := [c for c in asked if c not in values]:
        raise InputError(f"statistics: column {unknown[0]!r} is no numeric column of the agreement")
    if any(len(ts) > THRESHOLDS for ts in asked.values()):
        raise InputError(f"statistics: more than {THRESHOLDS} thresholds in one question; nothing is told")
    return {"counts": {c: count_up_to(values[c], ts) for c, ts in asked.items()}}
