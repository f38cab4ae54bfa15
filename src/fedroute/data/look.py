"""What a column is like, by counts that add up over clients, and how it is to be read by that: as numbers, as names, or
not at all."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from fedroute.data.rows import MISSING
from fedroute.data.sources.decimals import NUMBER
from fedroute.data.spec import Table, Value

_ID = re.compile(
    r"(^|[_\s.-])(id|uuid|guid|index|idx)$|^id[_\s.-]|编号|序号|号码|病历号|住院号|门诊号|病案号|身份证|学号|卡号|流水号",
    re.IGNORECASE,
)
_DRESSED = r"^[<>≤≥~±]?\s*[+-]?\d[\d.,]*\s*([%‰°µμ]|[%‰°µμ]?\p{L}[\p{L}/%²³]{0,7})?$"
"""A number with a sign or a unit beside it: <0.1, 60 kg, 5 %."""
DATE = (
    r"^(\d{4}[-/](0?[1-9]|1[0-2])[-/](0?[1-9]|[12]\d|3[01])([ T]\d{1,2}:\d{2}.*)?|\d{4}-(0[1-9]|1[0-2])"
    r"|\d{1,2}[./-]\d{1,2}[./-]\d{4}( \d{1,2}:\d{2}.*)?|\d{4}年\d{1,2}月(\d{1,2}日)?)$"
)
"""A date, a month, or a date with a time of day."""
DATES = 0.9  # of a column's cells or names, from which it holds dates
FEW = 20  # values, under which nothing says that a column tells rows apart
FAULTS = ("strange", "mixed", "dressed", "unsure")
LEFT_OUT = {
    "date": "holds dates: not used (`time: NAME` if it is the time of a row; name it in `features` to use it, in days)",
    "dates": "holds dates: not used (`time: NAME` if it is the time of a row, else `drop: [NAME]`)",
    "identifier": "looks like an identifier: not used (name it in `features` to use it)",
}
"""Readings by which a column is not used -> why; see `left_out`."""
Kind = Literal["time", "nothing", "text", "number", "strange"]


@dataclass(frozen=True)
class Look:
    """Of a column, or of one client's part of it: counts, and of names their hashes; no value.

    kind: of its cells; type: for people. known: cells with a value. numbers: of a text, those that are numbers; coded:
    whether one has zeros in front; dressed: how many have something beside the number; dates: of a text, those that are
    dates, where this may matter. texts, values: how many
    different names, or numbers, there are, at least and at most; the same where one party sees all. hashes: 8 bytes of
    each different name, by which those of several parts are counted together; None where all are numbers, or more than
    half of the rows have a name of their own: these are as good as the rows. whole: whether all numbers are whole;
    apart: and none repeats or is negative. first: the least of such where that is 0 or 1; last: the largest, of 20 or
    more."""

    kind: Kind
    type: str
    known: int = 0
    numbers: int = 0
    coded: bool = False
    dressed: int = 0
    dates: int = 0
    texts: tuple[int, int] = (0, 0)
    hashes: frozenset[str] | None = frozenset()
    values: tuple[int, int] = (0, 0)
    whole: bool = True
    apart: bool = True
    first: int | None = None
    last: float | None = None

    @property
    def holds_dates(self) -> bool:
        return self.kind == "text" and self.dates >= DATES * self.known > 0

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"hashes": None if self.hashes is None else sorted(self.hashes)}

    @classmethod
    def load(cls, told: Mapping[str, Any]) -> Self:
        """Of what `json` gave."""
        hashes = told["hashes"]
        pairs = {k: (int(told[k][0]), int(told[k][1])) for k in ("texts", "values")}
        return cls(**{**told, **pairs, "hashes": None if hashes is None else frozenset(hashes)})

    @classmethod
    def together(cls, parts: Iterable["Look"]) -> "Look":
        """Of one column whose parts these are."""
        found = list(parts)
        own = [p for p in found if p.known] or [p for p in found if p.kind != "nothing"] or found
        if len(own) == 1:
            return own[0]
        union = frozenset().union(*(p.hashes for p in own if p.hashes is not None))
        shy = [p.texts for p in own if p.hashes is None]
        firsts = [p.first for p in own if p.first is not None]
        lasts = [p.last for p in own if p.last is not None]
        return cls(
            own[0].kind,
            own[0].type,
            known=sum(p.known for p in own),
            numbers=sum(p.numbers for p in own),
            coded=any(p.coded for p in own),
            dressed=sum(p.dressed for p in own),
            dates=sum(p.dates for p in own),
            texts=(max([len(union), *(low for low, _ in shy)]), len(union) + sum(high for _, high in shy)),
            hashes=None if shy else union,
            values=(max(p.values[0] for p in own), sum(p.values[1] for p in own)),
            whole=all(p.whole for p in own),
            apart=all(p.apart for p in own),
            first=min(firsts, default=None),
            last=max(lasts) if len(lasts) == len(own) else None,
        )


def reading_of(look: Look, name: str, spec: Table) -> str:
    """How a column is to be read: "days", "number" or "name"; one of LEFT_OUT; or one of FAULTS: it holds what is no
    feature, or numbers and other things, or numbers with units; or counts do not say whether it is an identifier."""
    declared = name in spec.categorical
    named = declared or name in (spec.features or ())
    if look.kind == "strange":
        return "strange"
    if look.kind == "time":
        return "days" if named else "date"
    number = look.kind != "text"
    if look.kind == "text" and not declared:
        number = look.numbers == look.known and not look.coded  # zeros in front: 00185 is a name
        if look.known / 2 < look.numbers < look.known:
            return "mixed"
    if not named:
        apart = _values_apart(look, name) if number else _texts_apart(look, name)
        if apart is None:
            return "unsure"
        if apart and look.holds_dates:
            return "dates"
        if apart:
            units = not number and not _ID.search(name) and look.dressed >= 0.9 * look.known
            return "dressed" if units else "identifier"
    return "number" if number and not declared else "name"


def left_out(name: str, reading: str) -> str:
    """That a column of one of LEFT_OUT is not used, and what can be done."""
    return f"column {name} {LEFT_OUT[reading].replace('NAME', name)}"


def _called(look: Look, different: tuple[int, int]) -> bool | None:
    """Whether what is called an identifier has many values, or one for each row."""
    (least, most), many = different, max(20, look.known / 20)
    if least > many or 1 < least == look.known:
        return True
    return None if most > many or 1 < most >= look.known else False


def _texts_apart(look: Look, name: str) -> bool | None:
    """Whether names tell rows apart and nothing else: most are different. None: counts do not say."""
    if _ID.search(name):
        return _called(look, look.texts)
    if look.known < FEW:
        return False
    least, most = look.texts
    return True if least > look.known / 2 else None if most > look.known / 2 else False


def _values_apart(look: Look, name: str) -> bool | None:
    """Whether numbers tell rows apart and nothing else: they are 0 or 1 and on. None: counts do not say."""
    if not look.whole:
        return False
    if _ID.search(name):
        return _called(look, look.values)
    if look.known < FEW or not look.apart or look.first is None or look.values[1] < look.known:
        return False
    if look.last is not None and look.last - look.first != look.known - 1:
        return False
    return True if look.values[0] == look.known else None


def look_at(column: Any, named: bool = False, tell: bool = False) -> Look:
    """What a trimmed column is like. named: whether it is used in any case, so that nothing need be known of how many
    different values it has. tell: whether it is one client's part, whose hashes others need."""
    import pyarrow as pa
    import pyarrow.compute as pc

    t, known = column.type, len(column) - column.null_count
    plain = pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_boolean(t) or pa.types.is_decimal(t)
    if pa.types.is_temporal(t):
        return Look("time", str(t), known)
    if pa.types.is_null(t):
        return Look("nothing", str(t))
    if plain:
        return _numbers(Look("number", str(t), known), column, named, tell)
    if not textual(t):
        return Look("strange", str(t), known)
    look = Look("text", str(t), known)
    numbers = pc.sum(pc.match_substring_regex(column, NUMBER)).as_py() or 0
    look = replace(look, numbers=numbers)
    if numbers == known:
        look = replace(look, coded=bool(pc.any(pc.match_substring_regex(column, r"^0\d")).as_py()))
        if not look.coded:
            look = _numbers(look, pc.cast(column, pa.float64()), named, tell)
    if not named and (tell or look.coded or numbers < known):
        look = _texts(look, column, tell)
    return look


def _texts(look: Look, column: Any, tell: bool) -> Look:
    import pyarrow.compute as pc

    many = pc.count_distinct(column).as_py()
    look = replace(look, texts=(many, many), hashes=None)
    if tell or many > look.known / 2:
        dates = pc.sum(pc.match_substring_regex(column, DATE)).as_py() or 0
        look = replace(look, dressed=pc.sum(dressed(column)).as_py() or 0, dates=dates)
    if many > look.known / 2:
        return look
    if not tell or (look.numbers == look.known and not look.coded):
        return look
    return replace(look, hashes=frozenset(map(_hash, pc.unique(column.drop_null()).to_pylist())))


def _numbers(look: Look, column: Any, named: bool, tell: bool) -> Look:
    import pyarrow as pa
    import pyarrow.compute as pc

    if named:
        return look
    if pa.types.is_floating(column.type) and not pc.all(pc.equal(pc.floor(column), column)).as_py():
        return replace(look, whole=False, apart=False)
    many = pc.count_distinct(column).as_py()
    look = replace(look, values=(many, many))
    if many < look.known or not look.known:
        return replace(look, apart=many == look.known)
    ends = pc.min_max(column).as_py()
    first = int(ends["min"]) if ends["min"] in (0, 1) else None
    last = float(ends["max"]) if not tell or look.known >= FEW else None
    return replace(look, apart=ends["min"] >= 0, first=first, last=last)


def _hash(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=8, person=b"names").hexdigest()


def dressed(column: Any) -> Any:
    """(R,) bool, which cells of a text are a number with something beside it, or a number."""
    import pyarrow.compute as pc

    return pc.fill_null(pc.match_substring_regex(column, _DRESSED), False)


def textual(t: Any) -> bool:
    """Whether a type of pyarrow is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t))


def trimmed(column: Any, marks: Sequence[Value]) -> Any:
    """A text stripped, the marks of a missing value as null; another column as it is."""
    return marked(column, marks) if textual(column.type) else column


def marked(column: Any, marks: Sequence[Value]) -> Any:
    """Text stripped, the marks of a missing value as null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    gone = pa.array([*MISSING, *(str(m) for m in marks)])
    return pc.if_else(pc.is_in(text, value_set=gone), pa.scalar(None, pa.string()), text)
