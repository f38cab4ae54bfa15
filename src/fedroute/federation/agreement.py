"""What all sites agree on before they train: one schema, one label map, one yardstick; and the federation as it is at
one site, with that site's rows alone, and at the hub, with none."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from pydantic import Field
from torch import Tensor

from fedroute.core import Batch
from fedroute.data.federation import Federation
from fedroute.data.load import table_notes
from fedroute.data.newcomers import choose_newcomers
from fedroute.data.rows import canonical
from fedroute.data.sources.tables import marks_of
from fedroute.data.spec import Table
from fedroute.data.table import Statistics, TableSchema, name_counts, statistics_of, summed_up
from fedroute.errors import InputError
from fedroute.evaluate.metrics import Yardstick, yardstick
from fedroute.federation.form import Form, form_of, hub_spec, types_of, without_paths
from fedroute.federation.own_labels import of_one_site
from fedroute.federation.own_rows import SiteData

Told = dict[str, Any]  # plain JSON
Ask = Callable[[str, Mapping[str, Told]], Mapping[str, Told]]
"""(what, {client: what it is asked}) -> {client: what it told}: asks these sites, at the same time."""


class Agreement(Form):
    """A form, and what the sites' rows come to by it. newcomers: numbers of the sites that never train. sizes: rows for
    training, validation and test; counts: of each of these the rows of each label; different: training rows that are
    not copies of others; sole: a note on the labels that one site alone has; of every site at the hub, at a site of
    itself alone (`for_site`). table: of a table, with neutral statistics until it is `settled`."""

    newcomers: tuple[int, ...] = ()
    sizes: dict[str, tuple[int, int, int]]
    counts: dict[str, tuple[tuple[int, ...], ...]]
    different: dict[str, int]
    sole: dict[str, str] = Field(default_factory=dict)
    yardstick: tuple[str, tuple[str, ...], int] = ("loss", ("loss",), -1)
    table: TableSchema | None = None
    said: tuple[str, ...] = ()  # notes, for people; those of the form among them
    settled: bool = False

    @property
    def form(self) -> Form:
        return Form(**{k: getattr(self, k) for k in Form.model_fields})

    @property
    def measured_by(self) -> Yardstick:
        """How every client is judged: chosen by the training labels of all."""
        return Yardstick(*self.yardstick)

    @property
    def sha256(self) -> str:
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def for_site(self, client: str) -> Self:
        """What this site needs of it: sizes and counts of no other."""
        own = {k: {c: v for c, v in getattr(self, k).items() if c == client}
               for k in ("sizes", "counts", "different", "sole")}  # fmt: skip
        return self.model_copy(update=own)

    def place(self, client: str) -> int:
        """The number of a client."""
        return self.clients.index(client)


@dataclass(frozen=True, kw_only=True)
class Rowless(Federation):
    """A federation of which only sizes and counts are known: at the hub."""

    counted: Tensor
    different: Tensor

    @property
    def label_counts(self) -> Tensor:
        return self.counted

    @property
    def effective_sizes(self) -> Tensor:
        return self.different

    def take(self, index: Tensor) -> Batch:
        raise RuntimeError("the hub has no rows: what needs rows is asked of the sites")


def reach(spec: Mapping[str, Any], clients: Sequence[str], seed: int, ask: Ask) -> Agreement:
    """Asks these sites for a survey (once more where they hold columns of several types), makes a form of all reports,
    and asks what the rows come to by it.

    What is asked: "survey" {federation, as_types} -> report; "form", a form -> counts. The statistics of a table are
    asked for later (`statistics.settle`), when the sites have seen and accepted what leaves.

    Raises InputError with a line for each thing that does not fit, naming site, column and the mend."""
    hub_spec(spec)
    question: Told = {"federation": without_paths(spec), "as_types": {}}
    reports = ask("survey", dict.fromkeys(clients, question))
    if types := types_of(reports):
        reports = ask("survey", dict.fromkeys(clients, question | {"as_types": types}))
    form = form_of(spec, reports, seed)
    asked: Told = form.model_dump(mode="json")
    return agree(form, ask("form", dict.fromkeys(clients, asked)))


def counts_of(data: SiteData, form: Form) -> dict[str, Any]:
    """What a site's rows come to by the form, as JSON: {sizes: rows by part, labels: by part the rows of each label,
    gaps: columns in which training rows lack a value, names: of each column of names how many training rows have each}.

    These leave, some 10 bytes for each label, column and name; names of few rows are told with their counts. Raises
    InputError, for the site's own eyes, where the rows are not as the form says."""
    p = data.prepared(form)
    k = len(form.labels)
    labels = [torch.bincount(p.y[rows], minlength=k).tolist() for rows in p.parts] if k else []
    found = {"sizes": [len(rows) for rows in p.parts], "labels": labels, "gaps": [], "names": {}}
    if p.table is not None:
        seen = p.table.take(p.parts[0].numpy())
        found["gaps"] = [c.name for c in form.columns if seen[c.name].null_count]
        found["names"] = {c.name: name_counts(seen[c.name]) for c in form.columns if c.reading == "name"}
    return found


def agree(form: Form, told: Mapping[str, Mapping[str, Any]]) -> Agreement:
    """told: client -> what `counts_of` told. Raises InputError where newcomers are named that are not there, or nobody
    is left to train."""
    spec, clients = hub_spec(form.spec), form.clients
    try:
        sizes = {c: (int(a), int(b), int(d)) for c in clients for a, b, d in [told[c]["sizes"]]}
        counts = {c: tuple(tuple(map(int, part)) for part in told[c]["labels"]) for c in clients}
    except (KeyError, TypeError, ValueError):
        raise InputError("a site's counts are not what they should be; are all of the same version?") from None
    newcomers = tuple[int, ...]()
    if spec.newcomers is not None:
        training = torch.tensor([sizes[c][0] for c in clients])
        newcomers = choose_newcomers(spec.newcomers, clients, training, form.seed, form.name)
    table = None if form.shape is not None else _schema(form, spec, [told[c] for i, c in enumerate(clients)
                                                                   if i not in newcomers])  # fmt: skip
    notes = [*form.notes, *([] if table is None else table_notes(table, spec.statistics == "client"))]
    if newcomers:
        notes.insert(0, f"newcomers, which take no part in training: {', '.join(clients[i] for i in newcomers)}")
    made = Agreement(
        **{k: getattr(form, k) for k in Form.model_fields}, newcomers=newcomers, sizes=sizes, counts=counts,
        different={c: n[0] for c, n in sizes.items()}, table=table,
        sole=of_one_site(form.labels, clients, counts),
    )  # fmt: skip
    yard = yardstick(hub_federation(made))
    return made.model_copy(update={"yardstick": (yard.headline, yard.metrics, yard.positive), "said": tuple(notes)})


def _schema(form: Form, spec: Table, told: Sequence[Mapping[str, Any]]) -> TableSchema:
    """Of the sites that train, with neutral statistics but for the most frequent names."""
    numeric = tuple(c.name for c in form.columns if c.reading != "name")
    names = tuple(c.name for c in form.columns if c.reading == "name")
    counts: dict[str, dict[str, int]] = {c: {} for c in names}
    for report in told:
        for c in names:
            for name, n in report["names"][c].items():
                counts[c][name] = counts[c].get(name, 0) + int(n)
    gaps = {c for report in told for c in report["gaps"]}
    marks = {c: tuple(map(canonical, m)) for c in (*numeric, *names) if (m := marks_of(spec, c))}
    return TableSchema(
        numeric=numeric,
        flags=tuple(c for c in (*numeric, *names) if c in gaps),
        categorical={c: tuple(sorted(counts[c])) for c in names},
        federated=summed_up([None] * len(numeric), [counts[c] for c in names]),
        missing=marks,
        optional=spec.missing_columns == "fill",
    )


def own_federation(data: SiteData, agreement: Agreement) -> Federation:
    """At a site: all clients by name and number, with the rows of this one; x, y, split and batches are bit for bit
    those of the same client in a simulation with every site's file. Statistics `client` are computed here.

    Raises InputError where the rows are not as agreed."""
    p, i, n = data.prepared(agreement.form), agreement.place(data.client), len(agreement.clients)
    if (now := tuple(map(len, p.parts))) != (then := agreement.sizes[data.client]):
        raise InputError(f"{data.client}: {now} rows to train, validate and test, and {then} when it was agreed")
    none = torch.zeros(0, dtype=torch.int64)
    train, validation, test = (tuple(rows if k == i else none for k in range(n)) for rows in p.parts)
    schema, x, pooled = agreement.table, p.x, None
    if schema is not None:
        if data.spec.statistics == "client":
            pooled = schema.encode(p.table)
            schema = schema.model_copy(update={"clients": {data.client: own_statistics(data, agreement)}})
        x = schema.encode(p.table, data.client)
    assert x is not None
    return Federation(
        name=agreement.name, x=x, y=p.y, clients=agreement.clients, train=train, validation=validation, test=test,
        labels=agreement.labels, newcomers=agreement.newcomers, table=schema, time=p.time, pooled=pooled,
        columns=() if schema is None else schema.columns, notes=(*agreement.said, *p.notes),
    )  # fmt: skip


def own_statistics(data: SiteData, agreement: Agreement) -> Statistics:
    """Of this client's training rows alone; what they lack is that of all clients."""
    p, schema = data.prepared(agreement.form), agreement.table
    assert schema is not None
    return statistics_of(p.table.take(p.parts[0].numpy()), schema.numeric, [*schema.categorical], schema.federated)


def hub_federation(agreement: Agreement) -> Rowless:
    """At the hub: clients, sizes, counts and the form of a row, and no rows; each part is 0, 1, ..., so that work can
    be planned and batches counted. Of an agreement for one site the others have no rows at all."""
    clients, schema, k = agreement.clients, agreement.table, len(agreement.labels)
    sizes = [agreement.sizes.get(c, (0, 0, 0)) for c in clients]
    parts = [tuple(torch.arange(n[part]) for n in sizes) for part in range(3)]
    shape = agreement.shape if agreement.shape is not None else (len(schema.columns) if schema else 0,)
    counted = [agreement.counts[c][0] if k and c in agreement.counts else (0,) * k for c in clients]
    return Rowless(
        name=agreement.name,
        x=torch.zeros(0, *shape, dtype=torch.uint8 if agreement.whole else torch.float32),
        y=torch.zeros(0, dtype=torch.float32 if agreement.numbers else torch.int64),
        clients=clients, train=parts[0], validation=parts[1], test=parts[2], labels=agreement.labels,
        newcomers=agreement.newcomers, columns=() if schema is None else schema.columns, table=schema,
        notes=agreement.said,
        counted=torch.tensor(counted, dtype=torch.int64).reshape(len(clients), k),
        different=torch.tensor([agreement.different.get(c, 0) for c in clients]),
    )  # fmt: skip


def settled(agreement: Agreement, statistics: Statistics | None, different: Mapping[str, int]) -> Agreement:
    """With the statistics of a table, and how many training rows of each site differ."""
    table = agreement.table
    if table is not None and statistics is not None:
        table = table.model_copy(update={"federated": statistics})
    return agreement.model_copy(update={"table": table, "different": dict(different), "settled": True})
