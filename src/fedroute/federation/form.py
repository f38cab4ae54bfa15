"""How the rows of all sites are to be read: what the hub makes of the sites' surveys, in the very way in which a
simulation with all files would read them, or a list of what does not fit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from fedroute.data.labels import called, label_of
from fedroute.data.load import checked_source
from fedroute.data.look import LEFT_OUT, Look, left_out, reading_of
from fedroute.data.rows import Names, by_value
from fedroute.data.sources.files import AT_SITES
from fedroute.data.sources.tables import lacking_columns, wanted_columns
from fedroute.data.spec import Table
from fedroute.errors import InputError
from fedroute.federation.own_labels import misspelt
from fedroute.federation.site_spec import ELSEWHERE
from fedroute.words import count

IN_CONFIG = "below `federation:` in the hub's config"
TYPES = ("double", "string")  # what columns of several types are read as, the first that all of them fit


class Column(BaseModel):
    """A feature. type: of pyarrow, as which every site is to take it; reading: "days", "number" or "name"."""

    model_config = ConfigDict(frozen=True)
    name: str
    type: str
    reading: str


class Form(BaseModel):
    """How to read. spec: the `federation:` part as the hub's config has it; clients: the sites, sorted; numbers:
    whether y is numbers to predict; label_type: as Column.type; label_map: label as written -> code (-1: no label),
    None where each site can tell by itself; columns: of a table, in their order; shape, whole: of a row of x, and
    whether it is uint8, for anything else. JSON: `model_dump_json`, `model_validate_json`."""

    model_config = ConfigDict(frozen=True)
    name: str
    spec: dict[str, Any]
    seed: int
    clients: tuple[str, ...]
    labels: tuple[str, ...] = ()
    numbers: bool = False
    label_type: str = ""
    label_map: dict[str, int] | None = None
    columns: tuple[Column, ...] = ()
    shape: tuple[int, ...] | None = None
    whole: bool = False
    notes: tuple[str, ...] = ()


def without_paths(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The `federation:` part of a config without what only sites can say."""
    return {k: v for k, v in spec.items() if k not in ELSEWHERE}


def differs(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The first key in which two `federation:` parts say different things to a site; "" where they agree. A site that
    was given one when it joined should tell nothing by another, by which any column could be called the label."""
    a, b = without_paths(a), without_paths(b)
    return next((k for k in sorted({*a, *b}) if a.get(k) != b.get(k)), "")


def hub_spec(spec: Mapping[str, Any]) -> Any:
    """The `federation:` part of the hub's config, checked, without what only sites can say. Raises InputError, also for
    what is of simulations alone."""
    given = without_paths(spec)
    if given.get("source") in ("images", "npz"):
        given["path"] = AT_SITES
    checked = checked_source(given)
    if isinstance(checked, Table):
        checked = checked.model_copy(update={"path": None, "paths": None})
    for key in ("partition", "shift", "concept"):
        if getattr(checked, key) is not None:
            raise InputError(f"federation.{key}: is for simulations; between organisations the data come as they are, "
                             "each site a client: leave it out")  # fmt: skip
    return checked


def types_of(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Columns (the label among them) of which sites have several types -> the one to read them as, "" where no type
    fits all. Where this is not empty the sites are surveyed again, `as_types`."""
    found = {}
    for c in dict.fromkeys(c for r in reports.values() for c in r["columns"]):
        parts = [r["columns"][c] for r in reports.values() if c in r["columns"]]
        types = {p["type"] for p in parts if p["type"] != "null"}
        if len(types) > 1:
            found[c] = next((t for t in TYPES if all(t in p["fits"] for p in parts)), "")
    return found


def form_of(spec: Mapping[str, Any], reports: Mapping[str, Mapping[str, Any]], seed: int) -> Form:
    """reports: client -> what `survey` told. Raises InputError with a line for each thing that does not fit, naming
    site, column and the mend."""
    checked, clients = hub_spec(spec), tuple(sorted(reports))
    if not clients:
        raise InputError("no site has told of its data")
    told = [reports[c] for c in clients]
    notes, faults = list[str](), list[str]()
    faults += [f"{c}: it says that it has no row; give its file rows, or leave the site out"
               for c, r in zip(clients, told, strict=True) if not r["rows"]]  # fmt: skip
    columns, shape = tuple[Column, ...](), None
    if isinstance(checked, Table) and not checked.image:
        columns = _columns(checked, dict(zip(clients, told, strict=True)), notes, faults)
    else:
        shape = _shape(clients, told, faults)
    faults += _times(checked, clients, told)
    types = types_of(reports)
    label_type = types.get(getattr(checked, "label", ""), "")
    if types.get(getattr(checked, "label", "")) == "":
        faults.append(f"column {checked.label!r} (federation.label) has types that do not go together; make them alike")
    made: tuple[tuple[str, ...], bool, dict[str, int] | None] = (), False, None
    try:
        made = _labels(checked, clients, told, notes)
    except InputError as e:
        faults.append(str(e))
    if faults:
        raise InputError("\n".join(dict.fromkeys(faults)))
    whole = shape is not None and bool(told[0]["whole"])
    name = str(spec.get("name") or "federation")
    return Form(
        name=name, spec=without_paths(spec), seed=seed, clients=clients, labels=made[0], numbers=made[1],
        label_type=label_type, label_map=made[2], columns=columns, shape=shape, whole=whole, notes=tuple(notes),
    )  # fmt: skip


def _columns(
    spec: Table, told: Mapping[str, Mapping[str, Any]], notes: list[str], faults: list[str]
) -> tuple[Column, ...]:
    names = [(c, list(r["order"])) for c, r in told.items()]
    try:
        wanted = wanted_columns(spec, list(dict.fromkeys(n for _, columns in names for n in columns)), "the sites")
    except InputError as e:
        faults.append(str(e))
        return ()
    lacked = lacking_columns(spec, wanted, names, own=True)
    types, found = types_of(told), list[Column]()
    for name in wanted:
        having = {c: r["columns"][name] for c, r in told.items() if name in r["columns"]}
        looks = {c: Look.load(p["look"]) for c, p in having.items() if p["look"] is not None}
        if name in lacked:
            reading = "unsure"
            if types.get(name) != "" and len(looks) == len(having):
                reading = reading_of(Look.together(looks.values()), name, spec)
            if reading not in LEFT_OUT:  # what would not be used anyway may be lacking
                faults.append(lacked[name])
                continue
        elif lacking := [c for c in told if c not in having]:
            notes.append(f"column {name} is missing at {', '.join(lacking)}: filled")
        if types.get(name) == "" or len(looks) < len(having):
            kinds = ", ".join(f"{p['type']} at {c}" for c, p in having.items())
            faults.append(f"column {name!r} has other types at other sites ({kinds}); make them alike or say "
                          f"`drop: [{name}]` {IN_CONFIG}")  # fmt: skip
            continue
        look = Look.together(looks.values())
        reading = reading_of(look, name, spec)
        if fault := _fault(spec, name, looks, look, reading):
            faults.append(fault)
        elif reading in LEFT_OUT:
            notes.append(left_out(name, reading))
        else:
            own = {p["type"] for p in having.values() if p["type"] != "null"}
            found.append(Column(name=name, type=types.get(name, own.pop() if own else "null"), reading=reading))
    if not found and not faults:
        faults.append(f"no feature column is left; name them in `features` {IN_CONFIG}")
    return tuple(found)


def _fault(spec: Table, name: str, looks: Mapping[str, Look], look: Look, reading: str) -> str:
    """What is wrong with a column, or ""."""
    known = {c: part for c, part in looks.items() if part.known}
    if reading == "strange":
        what = f"holds {look.type}, which is no feature"
        return f"{next(iter(looks))}: column {name!r} {what}; say `drop: [{name}]` {IN_CONFIG}"
    if reading == "unsure":
        what, time = ("holds dates", f"`time: {name}` if it is the time of a row, ") if look.holds_dates else (
            "may be an identifier", "")  # fmt: skip
        return (f"column {name!r} {what}: most of its values differ at {_some(_apart(known))}, and counts do not say "
                f"whether they do at all sites together; {time}`drop: [{name}]`, or say what it is: name it in "
                f"`features` or in `categorical`; each {IN_CONFIG}")  # fmt: skip
    numbers = [c for c, part in known.items() if part.kind == "text" and part.numbers == part.known and not part.coded]
    odd = [c for c, part in known.items() if part.kind == "text" and part.numbers < part.known]
    if reading == "mixed" or (reading == "name" and numbers and odd and name not in spec.categorical):
        if not numbers or any(known[c].numbers > known[c].known / 2 for c in odd):
            worst = max(odd, key=lambda c: known[c].numbers / known[c].known)
            others = count(known[worst].known - known[worst].numbers, "other value")
            return (f"{worst}: column {name!r} holds numbers and {others}; `fedroute site check` shows there in which "
                    f"row, and how to mend it in that site's DATA.yaml; if its values are names, say `categorical: "
                    f"[{name}]` {IN_CONFIG}")  # fmt: skip
        return (f"{_some(odd)}: column {name!r} holds names, and at {_some(numbers)} numbers; mend it where it is "
                f"wrong, or say `categorical: [{name}]` {IN_CONFIG} if its values are names everywhere")  # fmt: skip
    if reading == "dressed":
        worst = max(known, key=lambda c: known[c].dressed)
        return (f"{worst}: column {name!r} holds numbers with something beside them; `fedroute site check` shows there "
                f"in which row; write the number alone, in one unit, or say `drop: [{name}]` {IN_CONFIG}")  # fmt: skip
    return ""


def _apart(known: Mapping[str, Look]) -> list[str]:
    """The sites at which most values differ."""
    return [c for c, part in known.items() if max(part.texts[1], part.values[1]) > part.known / 2] or [*known]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _shape(clients: Sequence[str], told: Sequence[Mapping[str, Any]], faults: list[str]) -> tuple[int, ...] | None:
    """Of a row of x: that of all sites, with three channels where any has colour."""
    shapes = {c: tuple(r["shape"]) for c, r in zip(clients, told, strict=True)}
    first = clients[0]
    for c, shape in shapes.items():
        if not _goes_with(shape, shapes[first]):
            mend = (
                f"say `size: [H, W]` {IN_CONFIG} to resize all"
                if len(shape) == 3
                else "give the same numbers in the same order"
            )
            faults.append(f"{c}: a row has the shape {list(shape)}, and {list(shapes[first])} at {first}; {mend}")
    for c, r in zip(clients, told, strict=True):
        if r["whole"] != told[0]["whole"]:
            kinds = {True: "bytes (uint8)", False: "other numbers"}
            faults.append(
                f"{c}: x holds {kinds[r['whole']]}, and at {first} {kinds[told[0]['whole']]}; make them alike"
            )
    return max(shapes.values(), key=lambda s: s[:1])


def _goes_with(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether rows of these shapes can stand in one tensor; grey images among coloured ones can."""
    return a == b or (len(a) == len(b) == 3 and a[1:] == b[1:] and {a[0], b[0]} == {1, 3})


def _times(spec: Any, clients: Sequence[str], told: Sequence[Mapping[str, Any]]) -> list[str]:
    if not getattr(spec, "time", None):
        return []
    kinds = {c: r["time"] for c, r in zip(clients, told, strict=True)}
    first = kinds[clients[0]]
    return [f"{c}: column {spec.time!r} (federation.time) holds {kind}, and at {clients[0]} {first}; write times alike"
            for c, kind in kinds.items() if kind != first]  # fmt: skip


def _labels(
    spec: Any, clients: Sequence[str], told: Sequence[Mapping[str, Any]], notes: list[str]
) -> tuple[tuple[str, ...], bool, dict[str, int] | None]:
    """(labels, whether they are numbers, label as written -> code)."""
    how = {r["label"]["how"] for r in told}
    if "numbers" in how:
        odd = [c for c, r in zip(clients, told, strict=True) if not r["label"]["number"]]
        if odd:
            raise InputError(f"{odd[0]}: labels are names, and numbers at other sites; make them alike")
        return (), True, None
    if how == {"fixed"}:
        found = label_of(Names((), np.zeros(0, dtype=np.int64)), spec, lambda row: "the config", None, notes)
        assert isinstance(found, Names)
        return found.kinds, False, None
    counts = [r["label"]["counts"] for r in told]
    if getattr(spec, "source", "") != "bundled" and (
        odd := misspelt(spec, clients, counts, [r["label"].get("sure", ()) for r in told])
    ):
        raise InputError("\n".join(odd))
    kinds = tuple(sorted({k for c in counts for k in c}, key=by_value))
    place = {k: i for i, k in enumerate(kinds)}
    codes = [np.repeat([place[k] for k in c], [*c.values()]).astype(np.int64) for c in counts]
    names = Names(kinds, np.concatenate(codes))
    owner = Names(tuple(clients), np.repeat(np.arange(len(clients)), [len(c) for c in codes]))

    def where(row: int) -> str:
        return f"the data (client {clients[int(owner.codes[row])]})"

    if isinstance(spec, Table):
        label = label_of(names, spec, where, None, notes)
    elif spec.source == "bundled":
        label = names
    else:
        label = called(names, spec.label_names, where, None, notes)
    assert isinstance(label, Names)
    row_of = dict(zip(names.codes.tolist(), label.codes.tolist(), strict=True))
    return label.kinds, False, {k: row_of.get(i, i) for i, k in enumerate(kinds)}
