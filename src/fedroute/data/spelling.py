"""Labels that may be one label written in two ways: refused where only case and blanks differ, noted where a letter
or two do."""

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cached_property

import numpy as np

from fedroute.data.rows import Names, by_value
from fedroute.errors import InputError

MANY = 200  # labels, above which letters are not compared: it takes the square of their number
Mend = Callable[[str, str], str]


@dataclass(frozen=True)
class Labels:
    """Labels as written. meant: the class of each kind; told: those that the user named, so that two of them are two
    (None where they cannot be named); clients: whose rows they are, where that is known."""

    names: Names
    meant: Sequence[Hashable]
    clients: Names | None
    told: Collection[str] | None = None

    def spelling(self, where: Callable[[int], str], mend: Mend) -> list[str]:
        """Notes about labels that one client alone has and that are a letter or two away from another label. where: of
        a row, for people. mend(odd, right): what to say in the config; of two the rarer is the odd one.

        Raises InputError for labels of different classes that differ only in case, blanks or how accents are coded."""
        for kind, right in self.folded()[:1]:
            row = int(np.flatnonzero(self.names.codes == self.names.kinds.index(kind))[0])
            name = ", ".join(f"{in_yaml(k)}: {in_yaml(k)}" for k in (kind, right))
            raise InputError(
                f"{self._place(row, where)}: label {kind!r} differs from {right!r} only in case or blanks; if they "
                f"are one say `{mend(kind, right)}`"
                + ("" if self.told is None else f"; if two, name every label: `label_names: {{{name}, ...}}`")
            )
        notes = list[str]()
        for odd, right in self.near():
            (client,) = self.owners[odd]
            assert self.clients is not None
            notes.append(f"label {odd!r} occurs only at {self.clients.kinds[client]}: if it is {right!r} say "
                         f"{mend(odd, right)}")  # fmt: skip
        return notes

    def folded(self) -> list[tuple[str, str]]:
        """(odd, right) of different classes that differ only in case, blanks or how accents are coded."""
        first = dict[str, str]()
        order = sorted(self.rows, key=lambda k: (-len(self.owners[k]), -self.rows[k], k))
        pairs = [(kind, first.setdefault(_folded(kind), kind)) for kind in order]
        return [(odd, right) for odd, right in pairs if self._apart(odd, right)]

    def near(self) -> list[tuple[str, str]]:
        """(odd, right) of different classes, odd of one client alone, that are a letter or two apart."""
        words = [k for k in self.rows if len(k) >= 3 and by_value(k)[0]]
        found, odd_ones = list[tuple[str, str]](), set[str]()
        for odd in sorted(words, key=lambda k: (self.rows[k], k)) if len(words) <= MANY else ():
            if self.clients is None or len(self.owners[odd]) != 1:
                continue
            others = [k for k in words if k not in odd_ones and self._apart(odd, k)]
            near = [k for k in get_close_matches(odd, others, 5, 0.8) if _a_letter_or_two(odd, k)]
            if near:
                odd_ones.add(odd)
                found.append((odd, near[0]))
        return found

    def _apart(self, a: str, b: str) -> bool:
        return self._classes[a] != self._classes[b] and not {a, b} <= {*(self.told or ())}

    @cached_property
    def _classes(self) -> Mapping[str, Hashable]:
        return dict(zip(self.names.kinds, self.meant, strict=True))

    @cached_property
    def rows(self) -> dict[str, int]:
        """Label -> its rows, of labels that have any."""
        counts = np.bincount(self.names.codes[self.names.known], minlength=len(self.names.kinds)).tolist()
        return {k: n for k, n in zip(self.names.kinds, counts, strict=True) if n}

    @cached_property
    def owners(self) -> dict[str, set[int]]:
        """Label -> the clients that have it."""
        found: dict[str, set[int]] = {k: set() for k in self.names.kinds}
        if self.clients is not None:
            both, many = self.names.known & self.clients.known, len(self.clients.kinds)
            pairs = np.unique(self.names.codes[both] * many + self.clients.codes[both])
            for label, client in (divmod(p, many) for p in pairs.tolist()):
                found[self.names.kinds[label]].add(client)
        return found

    def _place(self, row: int, where: Callable[[int], str]) -> str:
        place, code = where(row), -1 if self.clients is None else int(self.clients.codes[row])
        if self.clients is None or code < 0 or f"(client {self.clients.kinds[code]})" in place:
            return place
        return f"{place} (client {self.clients.kinds[code]})"


def in_yaml(text: str) -> str:
    """The text as YAML reads it back: ill, but "yes" in quotes, which would be true."""
    import yaml

    try:
        plain = yaml.safe_load(f"[{text}]") == [text]
    except yaml.YAMLError:
        plain = False
    return text if plain else json.dumps(text, ensure_ascii=False)


def _folded(kind: str) -> str:
    return "".join(unicodedata.normalize("NFKC", kind).split()).casefold()


def _a_letter_or_two(a: str, b: str) -> bool:
    """Whether so many letters make one of the other; "grade 1" and "grade 2" differ in a number, not in a letter."""
    if re.sub(r"\d+", "0", a) == re.sub(r"\d+", "0", b):
        return False
    steps = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return sum(max(i - h, k - j) for tag, h, i, j, k in steps if tag != "equal") <= 2
