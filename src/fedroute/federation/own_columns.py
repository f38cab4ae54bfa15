"""What is wrong with a column of a site's own table, for the eyes of that site: with file, row and value."""

from collections.abc import Mapping

from fedroute.data.columns import first_odd
from fedroute.data.look import look_at, reading_of, trimmed
from fedroute.data.sources.tables import marks_of
from fedroute.data.spec import Table
from fedroute.data.spelling import in_yaml
from fedroute.federation.own_rows import SiteData
from fedroute.words import count


def own_faults(data: SiteData, file: str = "DATA.yaml") -> dict[str, str]:
    """Column -> what is wrong with it here, and the mend, of those that hold numbers and something else. file: what
    DATA.yaml is called. Not to be sent: it names paths and shows a value."""
    spec, found = data.spec, dict[str, str]()
    if data.files is None or not isinstance(spec, Table) or spec.image:
        return found
    here = dict.fromkeys(c for f in data.files.files for c in f.table.column_names)
    for name in here if spec.features is None else spec.features:
        if name not in here or name in {spec.label, spec.client, spec.time, *spec.drop}:
            continue
        column = trimmed(data.files.column(name), marks_of(spec, name))
        look = look_at(column, name in {*(spec.features or ()), *spec.categorical})
        if (reading := reading_of(look, name, spec)) not in ("mixed", "dressed"):
            continue
        row, odd = first_odd(column, reading)
        where = f"{data.files.where(row)}: column {name!r} holds"
        if reading == "dressed":
            found[name] = (f"{where} numbers with something beside them, such as {odd!r}: write the number alone, in "
                           f"one unit, or let the hub's config say `drop: [{name}]` below `federation:`")  # fmt: skip
        else:
            found[name] = (f"{where} numbers and {count(look.known - look.numbers, 'other value')} such as {odd!r}: "
                           f"mend it there; if it means missing, say `missing: {{{name}: [{in_yaml(odd)}]}}` in "
                           f"{file}; if the column holds names, let the hub's config say `categorical: [{name}]` below "
                           "`federation:`")  # fmt: skip
    return found


def seen_here(words: str, own: Mapping[str, str]) -> str:
    """What is told of all sites, a line each, with the lines on columns that have a fault here as they are told to
    this site."""
    others = [line for line in words.splitlines() if not any(f"column {c!r} holds" in line for c in own)]
    return "\n".join([*own.values(), *others])
