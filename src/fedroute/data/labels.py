"""The label column: classes by name, by comparison or by limits, or numbers. One map for all clients."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedroute.data.rows import Floats, Names, by_value, canonical
from fedroute.data.spec import Table, Value
from fedroute.data.spelling import Labels, in_yaml
from fedroute.errors import InputError

Where = Callable[[int], str]
_LIKE_NUMBER = re.compile(r"^[+-]?\d*\.\d+$")
_INVERSE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "==": "!=", "!=": "=="}


def label_of(names: Names, spec: Table, where: Where, clients: Names | None, notes: list[str]) -> Names | Floats:
    """The label of each row as `spec` asks for it; missing (-1, NaN) where it is not known. Labels that look misspelt
    are added to the notes.

    Raises InputError for labels that do not fit what is asked, or that differ only in case or blanks."""
    if sum((spec.positive is not None, spec.bands is not None, spec.label_as == "number")) > 1:
        raise InputError("federation: give one of positive, bands and label_as: number")
    marks = spec.missing if isinstance(spec.missing, list) else spec.missing.get(spec.label, [])
    gone = {canonical(m) for m in marks}
    names = _without(names, gone)
    if spec.label_as == "number":
        return _floats(names, spec, where)
    if spec.bands is not None:
        names = _bands(names, spec, where)
    elif isinstance(spec.positive, str):
        names = _compared(names, spec, spec.positive, where)
    elif spec.positive is not None:
        wanted = [canonical(v) for v in spec.positive]
        for v in wanted:
            if v not in names.kinds:
                raise InputError(f"federation.positive: no label {v!r} in column {spec.label!r} "
                                 f"({', '.join(names.kinds[:12])})")  # fmt: skip
        counts = [k in wanted for k in names.kinds]

        def mend(odd: str, right: str) -> str:
            return f"positive: [{', '.join(map(in_yaml, dict.fromkeys([*wanted, odd, right])))}]"

        notes += Labels(names, counts, clients).spelling(where, mend)
        return renamed(_merged(names, ("other", " or ".join(wanted)), counts), spec.label_names, where)
    else:
        check_classes(names, spec.label, where)
    return called(names, spec.label_names, where, clients, notes)


def check_classes(names: Names, label: str, where: Where) -> None:
    """Raises InputError where a column has too many different values to be a label by name."""
    fractions = sum(_LIKE_NUMBER.match(k) is not None for k in names.kinds)
    if len(names.kinds) > 1000 or (fractions > 20 and fractions > len(names.kinds) / 2):
        raise InputError(
            f"{where(0)}: label {label!r} has {len(names.kinds):,} different values, too many for classes; "
            'say `label_as: number`, `bands: [limits]` or `positive: ">0"`'
        )


def called(
    names: Names,
    by: Mapping[Value, str] | Sequence[str] | None,
    where: Where,
    clients: Names | None,
    notes: list[str],
) -> Names:
    """Labels by the names of `label_names` (see `renamed`), after a look at their spelling (see `spelling`)."""
    pairs = {canonical(k): v for k, v in by.items()} if isinstance(by, Mapping) else {}

    def mend(odd: str, right: str) -> str:
        return f"label_names: {{{in_yaml(odd)}: {in_yaml(pairs.get(right, right))}}}"

    notes += Labels(names, [pairs.get(k, k) for k in names.kinds], clients, pairs).spelling(where, mend)
    return renamed(names, by, where)


def renamed(names: Names, by: Mapping[Value, str] | Sequence[str] | None, where: Where) -> Names:
    """Labels called by the names given for them: {0: cat, 1: dog}, or [cat, dog] for the labels 0, 1, ... or, where
    labels are no such numbers, for the labels in their order. The given order is then that of the classes.
    Where a label is called by the name of another one that is not called anything itself, {Ill: ill}, the two are
    merged, and labels that are not named stay as they are, all in the order of their values.

    Raises InputError for a label without a name."""
    if by is None:
        return names
    if isinstance(by, Mapping):
        pairs = {canonical(k): v for k, v in by.items()}
        if any(v in names.kinds and v not in pairs for v in pairs.values()):
            meant = [pairs.get(k, k) for k in names.kinds]
            kinds = tuple(sorted(set(meant), key=by_value))
            return _merged(names, kinds, [kinds.index(k) for k in meant])
    elif all(k.isdigit() for k in names.kinds):
        pairs = {str(i): v for i, v in enumerate(by)}
    else:
        pairs = dict(zip(names.kinds, by, strict=False))
    for code, kind in enumerate(names.kinds):
        if kind not in pairs:
            row = int(np.flatnonzero(names.codes == code)[0])
            raise InputError(f"{where(row)}: label {kind!r} is not in label_names ({', '.join(pairs)}); add it")
    kinds = tuple(dict.fromkeys(pairs.values()))
    return _merged(names, kinds, [kinds.index(pairs[k]) for k in names.kinds])


def _without(names: Names, gone: set[str]) -> Names:
    kept = tuple(k for k in names.kinds if k not in gone)
    return _merged(names, kept, [kept.index(k) if k in kept else -1 for k in names.kinds])


def _merged(names: Names, kinds: tuple[str, ...], place: Sequence[int]) -> Names:
    return replace(names, kinds=kinds, codes=np.array([*place, -1], dtype=np.int64)[names.codes])


def _bands(names: Names, spec: Table, where: Where) -> Names:
    limits = spec.bands or []
    if not limits or limits != sorted(set(limits)):
        raise InputError(f"federation.bands: must be one or more ascending limits, not {limits}")
    said = [canonical(b) for b in limits]
    kinds = (f"to {said[0]}", *(f"{a} to {b}" for a, b in pairwise(said)), f"over {said[-1]}")
    values = _floats(names, spec, where)
    return Names(kinds, np.where(np.isnan(values), -1, np.searchsorted(limits, values, side="left")))


def _compared(names: Names, spec: Table, positive: str, where: Where) -> Names:
    m = re.match(r"^\s*(>=|<=|==|!=|>|<)\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*$", positive)
    if not m:
        raise InputError(f"federation.positive: {positive!r} is no comparison; write \">0\", or list the labels that "
                         "count as yes: [dead, dependent]")  # fmt: skip
    sign, limit, values = m[1], float(m[2]), _floats(names, spec, where)
    yes = {">": values > limit, ">=": values >= limit, "<": values < limit, "<=": values <= limit,
           "==": values == limit, "!=": values != limit}[sign]  # fmt: skip
    kinds = tuple(f"{spec.label} {s} {m[2]}" for s in (_INVERSE[sign], sign))
    return Names(kinds, np.where(np.isnan(values), -1, yes.astype(np.int64)))


def _floats(names: Names, spec: Table, where: Where) -> Floats:
    try:
        return names.floats()
    except ValueError:
        code = next(i for i, k in enumerate(names.kinds) if not _number(k))
        row = int(np.flatnonzero(names.codes == code)[0])
        raise InputError(f"{where(row)}: label {names.kinds[code]!r} in column {spec.label!r} is not a number, and "
                         "positive, bands and label_as: number need numbers") from None  # fmt: skip


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
