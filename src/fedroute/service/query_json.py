"""A query as JSON: what it must be, checked against what the models were trained on, and what it becomes."""

import base64
import binascii
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedroute.data.queries import QueryForm, plain_name
from fedroute.data.rows import MISSING, canonical
from fedroute.data.table import TableSchema
from fedroute.errors import InputError
from fedroute.options import nearest
from fedroute.service.refusal import Refusal, wrong

MOST = 1e30  # beyond which a number of a table is none
TEXT = (  # a number as a file of text has it, of at most MOST
    r"[+-]?(?:(?:[0-9]{1,30}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]-[0-9]{1,3})?"
    r"|(?:[0-9](?:\.[0-9]*)?[eE]\+?[0-2]?[0-9]|1(?:\.0*)?[eE]\+?30)"
    r"|(?:[0-9]{1,15}(?:\.[0-9]*)?|\.[0-9]+)[eE]\+?(?:[0-9]|1[0-4]))"
)
BLANK = r"[ \t\r\n]*"
PIXELS = 1 << 24  # of an image that is decoded
SHOWN = 40  # characters of a wrong value that are told back
Item = dict[str, Any] | Tensor
"""A checked query: column -> value of a table, or one row (...) as it was given."""


class QueryJson:
    """Queries of one form. size: (H, W) to which images were resized for training, where they were."""

    def __init__(self, form: QueryForm, size: Sequence[int] | None = None):
        self.form, self.size = form, size
        table = form.table
        self._gone = {} if table is None else {c: _gone(table, c) for c in _columns(table)}
        self._text = {} if table is None else {c: re.compile(_pattern(self._gone[c])) for c in table.numeric}

    def one(self, value: Any, field: str = "query") -> Item:
        """A query, checked. Raises Refusal, 422, which names the field and the mend."""
        if self.form.table is not None:
            return self._row(value, field, self.form.table)
        return self._array(value, field, self.form.shape)[0]

    def many(self, value: Any, most: int, field: str = "queries") -> list[Item]:
        """The queries of a batch: a list, or arrays {"npy": ...} of many. Raises Refusal."""
        if isinstance(value, list):
            self._count(len(value), most, field)
            return [self.one(v, f"{field}[{i}]") for i, v in enumerate(value)]
        if self.form.table is None and isinstance(value, dict):
            x = self._array(value, field, self.form.shape, many=True)
            self._count(len(x), most, field)
            return list(x)
        raise wrong(field, f"is {_kind(value)}", "give a list of queries")

    def encode(self, items: Sequence[Item]) -> Tensor:
        """x (B, ...) as the models take it, B > 0. Raises Refusal for what only shows once it is encoded."""
        try:
            if self.form.table is not None:
                rows = [v for v in items if isinstance(v, dict)]
                columns = {c: [row[c] for row in rows] for c in _columns(self.form.table)}
                return self.form.checked(self.form.table.encode_known(columns), "query")
            x = [v for v in items if isinstance(v, Tensor)]
            if len({v.dtype for v in x}) > 1:  # pixels as bytes and in 0..1
                x = [v.float() / 255 if v.dtype == torch.uint8 else v for v in x]
            return torch.stack(x)
        except InputError as e:
            raise wrong("query", str(e), "give it as GET /v1/schema says") from None

    def schema(self) -> dict[str, Any]:
        """JSON Schema of one query."""
        return _table_schema(self.form.table) if self.form.table else _array_schema(self.form)

    def _count(self, n: int, most: int, field: str) -> None:
        if not n:
            raise wrong(field, "holds no query", "give one or more")
        if n > most:
            raise wrong(field, f"holds {n} queries, and a batch has at most {most}", "send several batches")

    # tables

    def _row(self, value: Any, field: str, table: TableSchema) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(
                field, f"is {_kind(value)}", "give an object, column -> value: GET /v1/schema names the columns"
            )
        columns = _columns(table)
        for c in value:
            if c not in self._gone:
                raise wrong(f"{field}.{_short(c)}", "no such column", f"{nearest(c, columns)} (GET /v1/schema)")
        row = {}
        for c in columns:
            if c not in value and not table.optional:
                raise wrong(f"{field}.{c}", "is not there", "give null where a value is not known")
            plain = self._number if c in table.numeric else self._name
            row[c] = plain(value.get(c), c, f"{field}.{c}")
        return row

    def _number(self, value: Any, column: str, field: str) -> float | None:
        mend = "give a number, or null where it is not known"
        if isinstance(value, str) and not self._text[column].fullmatch(value):
            raise wrong(field, f"{_short(value)!r} is not a number of at most {MOST:g}", mend)
        if value is None or (isinstance(value, str) and canonical(value) in self._gone[column]):
            return None
        if not isinstance(value, bool | int | float | str):
            raise wrong(field, f"is {_kind(value)}", mend)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) <= MOST:
            raise wrong(field, f"is not a finite number of at most {MOST:g}", mend)
        return None if canonical(number) in self._gone[column] else number

    def _name(self, value: Any, column: str, field: str) -> str | None:
        if value is not None and not isinstance(value, bool | int | float | str):
            raise wrong(field, f"is {_kind(value)}", "give a word or a number, or null where it is not known")
        if isinstance(value, int | float) and not abs(value) <= MOST:
            raise wrong(
                field,
                f"is not a finite number of at most {MOST:g}",
                "give a word or a number, or null where it is not known",
            )
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise wrong(field, "is no text", "give it in UTF-8")
        if isinstance(value, str):
            assert self.form.table is not None
            value = plain_name(value, self.form.table.categorical[column])
        name = None if value is None else canonical(int(value) if isinstance(value, bool) else value)
        return None if name is None or name in self._gone[column] else name

    # arrays and images

    def _array(self, value: Any, field: str, shape: tuple[int, ...], many: bool = False) -> Tensor:
        """(1, ...) or (B, ...), as the models take it."""
        if isinstance(value, dict):
            found = self._encoded(value, field, many)
            if "image" in value and not self.form.whole:  # the models were given pixels in 0..1
                found = found.astype(np.float32) / 255
        elif isinstance(value, list):
            found = _numbers(value, field)
        else:
            raise wrong(field, f"is {_kind(value)}", _wanted(shape))
        for given in (found,) if many else (found[None], found):
            if (x := _as(given, shape)) is not None and (many or len(x) == 1):
                try:
                    return self.form.checked(torch.from_numpy(x), field)
                except InputError as e:
                    raise wrong(field, str(e), "give finite numbers; pixels in 0..255 or 0..1") from None
        raise wrong(field, f"has shape {list(found.shape)}", _wanted(shape))

    def _encoded(self, value: Mapping[str, Any], field: str, many: bool) -> Any:
        kinds = ("npy",) if many or len(self.form.shape) != 3 else ("npy", "image")
        if len(value) != 1 or (kind := next(iter(value))) not in kinds:
            files = " or ".join(f"{{{k}: base64}}" for k in kinds)
            raise wrong(field, f"is an object of {_short(', '.join(value) or 'nothing')}",
                        f"give {files}, or nested lists of numbers")  # fmt: skip
        field = f"{field}.{kind}"
        try:
            data = base64.b64decode(value[kind], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise wrong(field, "is not base64", "encode the bytes of the file as base64") from None
        return _npy(data, field) if kind == "npy" else _image(data, field, self.form.shape, self.size)


def _columns(table: TableSchema) -> tuple[str, ...]:
    return (*table.numeric, *table.categorical)


def _gone(table: TableSchema, column: str) -> set[str]:
    """What a value that is not known is called in a column."""
    return {*MISSING, *table.missing.get(column, ())}


def _pattern(gone: Iterable[str]) -> str:
    """What a text must match where a number is wanted, as Python and ECMA-262 read it: a number, or what one that is
    not known is called."""
    marks = [re.sub(r"([\\^$.|?*+()\[\]{}/])", r"\\\1", mark) for mark in sorted(gone)]
    return f"^{BLANK}(?:{'|'.join([TEXT, *marks])}){BLANK}$"


def _numbers(value: list[Any], field: str) -> Any:
    mend = "give nested lists of numbers, all rows of one length"
    try:
        found = np.array(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise wrong(field, "is no array", mend) from None
    return _real(found, field, mend)


def _real(found: Any, field: str, mend: str) -> Any:
    """Bytes stay bytes; other whole numbers become int64, which tells 0..255 from 0..1; the rest float32."""
    if found.dtype.kind not in "biuf":
        raise wrong(field, "holds something that is no number", mend)
    if found.dtype == np.uint8:
        return found
    if found.dtype.kind in "iu":
        return found.clip(-(2**62), 2**62).astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        return found.astype(np.float32)


def _npy(data: bytes, field: str) -> Any:
    """Of the bytes of a .npy file, whose header may not promise more than there is."""
    mend = "save an array of numbers with numpy.save, and encode its bytes as base64"
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        if dtype.kind not in "biuf" or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
            raise wrong(field, "is not the whole of an array of numbers", mend)
        flat = np.frombuffer(data, dtype, offset=file.tell()).astype(dtype.newbyteorder("="))
    except Refusal:
        raise
    except Exception:  # a damaged header raises whatever its bytes lead to
        raise wrong(field, "is no .npy file", mend) from None
    return _real(flat.reshape(shape, order="F" if fortran else "C"), field, mend)


def _image(data: bytes, field: str, shape: tuple[int, ...], size: Sequence[int] | None) -> Any:
    from fedroute.data.sources.decode import decode

    mend = f"give a PNG or JPEG of {shape[1]} x {shape[2]}"
    try:
        from PIL import Image

        with Image.open(io.BytesIO(data)) as opened:
            if opened.width * opened.height > PIXELS:
                raise wrong(field, f"has {opened.width} x {opened.height} pixels", mend)
        x = decode([data], 1, lambda i: field, size, "rgb" if shape[0] == 3 else "grey")[0]
    except Refusal:
        raise
    except Exception as e:  # a damaged image raises whatever its bytes lead to
        needs = "Pillow" in str(e) or isinstance(e, ImportError)
        raise wrong(
            field, "cannot be read as an image" + (": this gateway has no Pillow" if needs else ""), mend
        ) from None
    return x[0].numpy()


def _as(x: Any, shape: tuple[int, ...]) -> Any:
    """(B, *shape) where it is that; of images also those without a channel, or with channels last; else None."""
    if tuple(x.shape[1:]) == shape:
        return np.ascontiguousarray(x)
    if len(shape) == 3 and shape[0] == 1 and tuple(x.shape[1:]) == shape[1:]:
        return np.ascontiguousarray(x[:, None])
    if len(shape) == 3 and tuple(x.shape[1:]) == (*shape[1:], shape[0]):
        return np.ascontiguousarray(np.moveaxis(x, -1, 1))
    return None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def _wanted(shape: tuple[int, ...]) -> str:
    return f"give one row of shape {list(shape)}, as nested lists of numbers or as {{npy: base64}}"


def _table_schema(table: TableSchema) -> dict[str, Any]:
    properties: dict[str, Any] = {
        c: {
            "type": ["number", "string", "boolean", "null"],
            "minimum": -MOST,
            "maximum": MOST,
            "pattern": _pattern(_gone(table, c)),
            "description": "a number, or the same as text; true: 1, false: 0",
        }
        for c in table.numeric
    }
    for c, names in table.categorical.items():
        known = f"known: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
        properties[c] = {"type": ["string", "number", "boolean", "null"], "description": known, "minimum": -MOST,
                         "maximum": MOST}  # fmt: skip
    required = [] if table.optional else [*properties]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _array_schema(form: QueryForm) -> dict[str, Any]:
    numbers: dict[str, Any] = {"type": "number", "minimum": -3e38, "maximum": 3e38}
    if form.whole:
        numbers = {"type": "integer", "minimum": 0, "maximum": 255}
    for n in reversed(form.shape):
        numbers = {"type": "array", "items": numbers, "minItems": n, "maxItems": n}
    kinds = ["npy"] + (["image"] if len(form.shape) == 3 else [])
    files = [
        {"type": "object", "properties": {k: {"type": "string", "contentEncoding": "base64", "description": what}},
         "required": [k], "additionalProperties": False}
        for k in kinds
        for what in [".npy file of one row" if k == "npy" else "PNG or JPEG"]
    ]  # fmt: skip
    return {"anyOf": [numbers, *files]}
