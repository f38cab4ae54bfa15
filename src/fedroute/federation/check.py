"""The dry run of a site's data: what would be found, told and refused, before anything leaves this machine."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedroute.errors import InputError
from fedroute.federation.site_spec import DataSpec, data_spec, read_data_spec
from fedroute.words import count

CLOCK = 300.0  # seconds that two clocks may differ; certificates and times of a log need no better
SMALL = 10  # rows, under which every number told is about single rows


class Finding(NamedTuple):
    """level: "ok", "note" (worth a look), or "refused" (this site could not take part). text: words, with the mend."""

    level: Literal["ok", "note", "refused"]
    text: str


def check_data(
    source: Path | DataSpec | Mapping[str, Any], spec: Mapping[str, Any], client: str, base: Path | None = None
) -> list[Finding]:
    """Reads the rows as the hub's config says, and finds what this site alone can know. source: DATA.yaml, or what it
    says (with `base`, the folder where relative paths start); spec: the `federation:` part of the hub's config.

    It surveys, makes a form of this one report, splits, and adds up, all of it here. That other sites have other
    columns, labels or types can only be found when they tell."""
    try:
        if isinstance(source, Path):
            return [*_findings(read_data_spec(source), source.parent, spec, client, str(source))]
        data = source if isinstance(source, DataSpec) else data_spec(source)
        return [*_findings(data, base or Path.cwd(), spec, client, "DATA.yaml")]
    except InputError as e:
        return [Finding("refused", line) for line in str(e).splitlines()]


def _findings(source: DataSpec, base: Path, spec: Mapping[str, Any], client: str, file: str) -> Iterator[Finding]:
    from fedroute.data.rows import canonical
    from fedroute.federation.agreement import agree, counts_of
    from fedroute.federation.form import form_of, hub_spec
    from fedroute.federation.own_columns import own_faults, seen_here
    from fedroute.federation.own_labels import alike_here
    from fedroute.federation.own_rows import SiteData
    from fedroute.federation.survey import survey

    data = SiteData.read(source, base, spec, client, file)
    yield Finding("ok", f"{count(data.many, 'row')} read")
    given, report = dict(data.given), survey(data)
    given.pop("newcomers", None)  # with one client nobody would be left to train
    for key in ("drop", "missing"):  # a column may be of other sites
        if isinstance(given.get(key), list | dict) and (key == "drop" or isinstance(given[key], dict)):
            here = [c for c in given[key] if c in report["order"]]
            given[key] = here if key == "drop" else {c: given[key][c] for c in here}
    if isinstance(positive := getattr(data.spec, "positive", None), list) and "counts" in report["label"]:
        for name in map(canonical, positive):
            if report["label"]["counts"].setdefault(name, 0) == 0:
                yield Finding("note", f"no row has the label {name!r}, which federation.positive counts as yes")
    data = replace(data, spec=hub_spec(given), given=given)
    try:
        form = form_of(given, {client: report}, seed=0)
    except InputError as e:
        raise InputError(seen_here(str(e), own_faults(data, file))) from None
    told = counts_of(data, form)
    agreement = agree(form, {client: told})
    train, validation, test = agreement.sizes[client]
    parts = f"about {train:,} to train, {validation:,} for validation, {test:,} for tests"
    yield Finding("ok" if train >= SMALL else "note", f"{count(train + validation + test, 'row')} usable: {parts}"
                  + ("" if train >= SMALL else "; so few that what is told says much of each"))  # fmt: skip
    if not (validation and test):
        yield Finding("note", "no rows for validation or tests are left, so nothing can be said of how well a model "
                              "does here: see federation.split")  # fmt: skip
    if form.labels:
        rows = [sum(part) for part in zip(*told["labels"], strict=True)]
        said = ", ".join(f"{name} {n:,}" for name, n in zip(form.labels, rows, strict=True) if n)
        yield Finding("ok" if sum(n > 0 for n in rows) > 1 else "note", f"label: {said}")
    yield from (Finding("note", text) for text in alike_here(data.spec, client, report["label"]))
    if agreement.table is not None:
        schema = agreement.table
        yield Finding("ok", f"{count(len(schema.numeric), 'numeric column')}: {', '.join(schema.numeric) or 'none'}")
        names = [f"{c} ({', '.join(of[:8])}{', ...' if len(of) > 8 else ''})" for c, of in schema.categorical.items()]
        yield Finding(
            "ok", f"{count(len(names), 'column')} of names, which the hub is told: {'; '.join(names) or 'none'}"
        )
        if schema.flags:
            yield Finding("note", f"gaps, to be filled and flagged: {', '.join(schema.flags)}")
        for c, of in schema.categorical.items():
            if len(of) > train / 4 and len(of) > 20:
                told_of = f"column {c}: {len(of)} names in {count(train, 'training row')} would be told"
                yield Finding("note", f"{told_of}: if they point to persons, ask for `drop: [{c}]`")
    else:
        yield Finding("ok", f"rows of shape {list(report['shape'])}")
    yield from (Finding("note", text) for text in dict.fromkeys((*form.notes, *data.prepared(form).notes)))


def clock(here: float, hub: float) -> Finding:
    """Of two clocks, in seconds since 1970."""
    off = here - hub
    if abs(off) <= CLOCK:
        return Finding("ok", f"the clock agrees with the hub's to {abs(off):.0f} s")
    side = "ahead of" if off > 0 else "behind"
    why = "or certificates are taken for not yet begun, or ended"
    return Finding("refused", f"the clock here is {abs(off):,.0f} s {side} the hub's: set it right (NTP), {why}")
