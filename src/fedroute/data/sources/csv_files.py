"""One CSV file as a table of strings: encoding, delimiter, header and decimal sign found by looking."""

import codecs
import gzip
import re
import unicodedata
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedroute.data.rows import MISSING
from fedroute.data.sources.decimals import NUMBER, plain_numbers
from fedroute.data.spec import Csv
from fedroute.errors import InputError, Unreadable
from fedroute.words import count

_ZEROS = re.compile(r"(?<![\w.])\x00+|\x00+(?![\w.\x00])")  # at an end of a word


def read_csv(path: Path, spec: Csv, where: str) -> Any:
    """A pyarrow Table of string columns, cells stripped; the marks of a missing value are null.
    where: what to call the file.

    Raises InputError for an empty file, another encoding, a row of another length, no or doubled column names."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    text, said = _separator(_text(path, spec.encoding, where))
    lines = [line for line in text[:65536].splitlines() if line.strip()][:50]
    if not lines:
        raise InputError(f"{where}: is empty; give a file with rows or leave the client out")
    delimiter = spec.delimiter or said or _delimiter(lines)
    first = next(_cells(lines[0], delimiter))
    header = _header(first, spec)
    try:
        table = csv.read_csv(
            pa.BufferReader((text.rstrip("\r\n") + "\n").encode()),
            read_options=csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values='"' in text),
            convert_options=csv.ConvertOptions(
                column_types={f"f{i}": pa.string() for i in range(len(first))}, strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as e:
        raise InputError(f"{where}: {_ragged(str(e), delimiter)}") from None
    names = [unicodedata.normalize("NFC", c.strip()) for c in first] if header else []
    if spec.columns:
        if len(spec.columns) != len(first):
            raise InputError(f"{where}: has {count(len(first), 'column')} and federation.columns names "
                             f"{len(spec.columns)}; they must agree (delimiter {delimiter!r})")  # fmt: skip
        names = list(spec.columns)
    if not names:
        raise InputError(f"{where}: the first line looks like data and not like names: {lines[0][:60]!r}; "
                         "name the columns (`columns: [a, b, ...]`) or say `header: true`")  # fmt: skip
    if twice := sorted({c for c in names if names.count(c) > 1}):
        raise InputError(f"{where}: two columns are called {twice[0]!r}; rename one, or give `columns: [...]`")
    nameless = f"column {names.index('') + 1}" if "" in names and header else None
    if odd := next((c for c in names if "\x00" in c), None):
        raise InputError(f"{where}: the name of a column has a zero byte in it: {odd!r}; write it anew")
    names = [c or nameless or "" for c in names]  # a spreadsheet's index column has no name
    table = table.rename_columns(names).slice(1 if header else 0)
    if table.num_rows == 0:
        raise InputError(f"{where}: has column names and no rows; give a file with rows or leave the client out")
    found = {}
    marks = pa.array(MISSING)
    for c in names:
        column = pc.utf8_trim_whitespace(table[c])
        if "\x00" in text and (row := pc.index(pc.match_substring(column, "\x00"), True).as_py()) >= 0:
            odd = column[row].as_py()
            raise InputError(f"{where}, row {row + 1}: column {c!r} has a zero byte in it: {odd!r}; the file is "
                             "damaged there: write the value anew, or leave the cell empty")  # fmt: skip
        found[c] = pc.if_else(pc.is_in(column, value_set=marks), pa.scalar(None, pa.string()), column)
    if nameless and found[nameless].null_count == table.num_rows:  # a delimiter at the end of each line
        del found[nameless]
    return pa.table(plain_numbers(found, spec.decimal, delimiter, where))


def first_cells(path: Path, spec: Csv, where: str) -> list[str]:
    """The cells of the first line that is not blank; [] of an empty file. Raises InputError as `read_csv` does."""
    text, said = _separator(_text(path, spec.encoding, where))
    lines = [line for line in text[:65536].splitlines() if line.strip()][:50]
    return [c.strip() for c in next(_cells(lines[0], spec.delimiter or said or _delimiter(lines)))] if lines else []


def _text(path: Path, encoding: str | None, where: str) -> str:
    """The text of a file, unpacked. What is UTF-8 beyond plain ASCII is read so, whatever the encoding of the others:
    text of another encoding is hardly ever valid UTF-8."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as e:
        if reason := e.strerror if isinstance(e, OSError) else None:
            raise Unreadable(f"{where}: cannot be read ({reason})") from None
        raise InputError(f"{where}: cannot be read (the packed file is damaged)") from None
    if encoding is None:
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding = "utf-16" if wide else "utf-8-sig"
    elif not data.isascii() and b"\x00" not in data:
        with suppress(UnicodeDecodeError):
            return _cleaned(data.decode("utf-8"))
    try:
        return _cleaned(data.decode(encoding))
    except LookupError:
        raise InputError(f"federation.encoding: no {encoding!r}; for example utf-8, gb18030 or latin-1") from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: is not {encoding.removesuffix('-sig')} text; say `encoding: gb18030` (Chinese), "
                         "`encoding: latin-1` (western) or what it is") from None  # fmt: skip


def _separator(text: str) -> tuple[str, str | None]:
    """The text without a first line such as "sep=;", which spreadsheets write, and the sign that it says."""
    said = re.match(r"\"?sep=(.)\"?\r?\n", text, re.IGNORECASE)
    return (text[said.end() :], said[1]) if said else (text, None)


def _cleaned(text: str) -> str:
    """Without the zero bytes that some programs fill cells and files up with; those within a word or number stay, and
    are refused: nobody knows what stood there. Where every second byte is one it is UTF-16 without its mark."""
    text = text.removeprefix("\ufeff")
    if "\x00" not in text:
        return text
    return _ZEROS.sub("", text) if 3 * text.count("\x00") < len(text) else text.replace("\x00", "")


def _cells(line: str, delimiter: str) -> Any:
    import csv

    return csv.reader([line], delimiter=delimiter)


def _delimiter(lines: list[str]) -> str:
    """The sign that cuts most lines into the same number of cells, more than one. A decimal comma may cut as evenly
    as the true sign, so the comma comes after its equals."""

    def evenness(sign: str) -> float:
        widths = [len(next(_cells(line, sign))) for line in lines]
        usual = max(set(widths), key=lambda w: (widths.count(w), w))
        return widths.count(usual) / len(widths) if usual > 1 else 0.0

    signs = (";", "\t", "|", ",")
    return max(signs, key=evenness) if any(map(evenness, signs)) else ","


def _header(first: list[str], spec: Csv) -> bool:
    if spec.header is not None:
        return spec.header
    if spec.columns:
        return [c.strip() for c in first] == spec.columns
    return not any(re.match(NUMBER, c.strip()) or re.match(NUMBER, c.strip().replace(",", ".")) for c in first)


def _ragged(message: str, delimiter: str) -> str:
    if m := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        return (f"line {m[1]} has {m[3]} cells and the first line {m[2]} (delimiter {delimiter!r}); mend the line, "
                "put quotes around cells with the delimiter in them, or give `delimiter: ...`")  # fmt: skip
    why = "a quote is opened and never closed" if "Empty CSV" in message else message.splitlines()[0]
    return f"is not CSV: {why}"
