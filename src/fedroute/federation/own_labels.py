"""Labels as sites write them: what a site calls its own, and labels of several sites that may be one misspelt."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedroute.data.rows import Names, by_value, canonical
from fedroute.data.spec import Value, nearest
from fedroute.data.spelling import Labels, in_yaml
from fedroute.errors import InputError
from fedroute.words import count


def called_here(names: Names, by: Mapping[Value, str], where: str) -> Names:
    """The labels by the names that this site's DATA.yaml gives them; two that get one name are one. where: the file.

    Raises InputError for a label that is not there."""
    pairs = {canonical(k): canonical(v) for k, v in by.items()}
    for k in pairs:
        if k not in names.kinds:
            raise InputError(f"{where}: no label {k!r} (label_names in DATA.yaml){nearest(k, names.kinds)}")
    meant = [pairs.get(k, k) for k in names.kinds]
    kinds = tuple(sorted(set(meant), key=by_value))
    return replace(names, kinds=kinds, codes=np.array([*map(kinds.index, meant), -1], dtype=np.int64)[names.codes])


def misspelt(
    spec: Any, clients: Sequence[str], counts: Sequence[Mapping[str, int]], sure: Sequence[Sequence[str]]
) -> list[str]:
    """Of the labels of all sites those that may be another one misspelt, a line each, with site, rows, and the mend:
    labels that differ only in case or blanks, and labels of one site alone that are a letter or two away from another
    site's. counts: of each site the rows of each label, as it tells them; sure: the labels that it says it means."""
    labels = _together(spec, clients, counts)
    found, named = list[str](), set[str]()
    for odd, right in labels.folded():
        named |= {odd, right}
        for i in sorted(labels.owners[odd]):
            found.append(f"{clients[i]}: label {odd!r} ({count(counts[i][odd], 'row')}) differs from {right!r} only in "
                         f"case or blanks: {_mend(odd, right, clients[i])}")  # fmt: skip
    for odd, right in labels.near():
        (i,) = labels.owners[odd]
        if odd not in named and odd not in sure[i] and labels.owners[right] - {i}:
            keep = f"; if it is a label of its own: `label_names: {{{in_yaml(odd)}: {in_yaml(odd)}}}`"
            found.append(f"{clients[i]}: label {odd!r} ({count(counts[i][odd], 'row')}) is only at this site, and a "
                         f"letter or two from {right!r}: {_mend(odd, right, clients[i])}{keep}")  # fmt: skip
    return found


def _together(spec: Any, clients: Sequence[str], counts: Sequence[Mapping[str, int]]) -> Labels:
    kinds = tuple(sorted({k for c in counts for k in c}, key=by_value))
    codes = [np.repeat([kinds.index(k) for k in c], [*c.values()]).astype(np.int64) for c in counts]
    owner = np.repeat(np.arange(len(clients)), [len(c) for c in codes])
    named = getattr(spec, "label_names", None)
    pairs = {canonical(k): v for k, v in named.items()} if isinstance(named, Mapping) else {}
    positive = getattr(spec, "positive", None)
    wanted = [canonical(v) for v in positive] if isinstance(positive, list) else None
    meant: list[Hashable] = [pairs.get(k, k) if wanted is None else k in wanted for k in kinds]
    return Labels(Names(kinds, np.concatenate(codes)), meant, Names(tuple(clients), owner), pairs)


def alike_here(spec: Any, client: str, label: Mapping[str, Any]) -> list[str]:
    """Of one site's report the labels that are a letter or two away from another of its own, a note each."""
    if label["how"] != "names":
        return []
    near = _together(spec, [client], [label["counts"]]).near()
    return [f"label {odd!r} ({count(label['counts'][odd], 'row')}) is a letter or two from {right!r}: "
            f"{_mend(odd, right, client)}" for odd, right in near if odd not in label.get("sure", ())]  # fmt: skip


def of_one_site(
    labels: Sequence[str], clients: Sequence[str], counts: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, str]:
    """Site -> a note on the labels that it alone has. counts: site -> by part the rows of each label."""
    rows = {c: [sum(of) for of in zip(*counts[c], strict=True)] for c in clients}
    having = [[c for c in clients if rows[c] and rows[c][k]] for k in range(len(labels))]
    found = {}
    for c in clients if len(clients) > 1 else ():
        if own := [k for k, who in enumerate(having) if who == [c]]:
            shown = ", ".join(f"{labels[k]} ({count(rows[c][k], 'row')})" for k in own[:8])
            more = f" and {len(own) - 8} more" if len(own) > 8 else ""
            found[c] = f"only {c} has the {'label' if len(own) == 1 else 'labels'} {shown}{more}"
    return found


def _mend(odd: str, right: str, client: str) -> str:
    return f"if they are one, say in {client}'s DATA.yaml `label_names: {{{in_yaml(odd)}: {in_yaml(right)}}}`"
