"""The ledger as a table for a terminal of 100 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from fedroute.evaluate.aggregate import KINDS
from fedroute.evaluate.metrics import NAMES
from fedroute.evaluate.wilson import Interval

if TYPE_CHECKING:
    from fedroute.evaluate.entry import Entry
    from fedroute.evaluate.ledger import Ledger

STYLES = {"yes": "green", "no": "bold red", "unclear": "yellow", "n/a": "dim"}
TOTALS = {
    "mean": "mean",
    "weighted": "mean by rows",
    "worst": "worst client",
    "worst_tenth": "worst tenth",
    "std": "spread (std)",
}
MARKS = {"yes": "▲ yes", "no": "▼ no", "unclear": "· unclear", "n/a": "n/a"}


def ledger_table(ledger: "Ledger", limit: int = 40) -> Table:
    """A line per client and one per aggregate. Of more than `limit` clients first those worse off, then the worst by
    their personal model; the title says how many are not shown."""
    head, yard = ledger.yardstick.headline, ledger.yardstick
    totals = ledger.aggregates(head)
    worst = totals["personal"]["worst_client"] if len(ledger.group()) > 1 else None
    shown = _shown(ledger.entries, limit, head, yard.higher)
    percent = head == "accuracy"
    title = f"{NAMES[head]} on each client's own {ledger.part} rows"
    if len(shown) < len(ledger.entries):
        title += f"; {len(shown)} of {len(ledger.entries)} clients, those that fare worst"
    table = Table(title=title, caption=_caption(ledger), box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.add_column("client", overflow="fold", min_width=14, max_width=28)
    for name in ("train", "test", "personal", "global", "alone", *(["majority"] if percent else []), "against alone"):
        table.add_column(ledger.part if name == "test" else name, justify="right", no_wrap=True)
    table.add_column("better off", no_wrap=True)
    for e in shown:
        mark = [("newcomer ", "bold")] if e.newcomer else [("worst ", "bold red")] if e.name == worst else []
        client = Text.assemble(*mark, printable(e.name))
        score = e.scores["personal"]
        personal = _number(e.value("personal", head), percent)
        personal += _interval(score.interval if score else None, percent)
        cells = [Text(str(e.train)), Text(str(ledger.rows_of(e))), Text(personal)]
        cells += [Text(_number(e.value(k, head), percent)) for k in KINDS[1:]]
        cells += [Text(_number(e.majority, percent))] if percent else []
        cells += [Text(_gain(e, percent)), Text(MARKS[e.better_off], STYLES[e.better_off])]
        table.add_row(client, *cells)
    table.add_section()
    for key, words in TOTALS.items():
        numbers = [Text(_number(totals[k][key], percent)) for k in KINDS]
        table.add_row(Text(words, "bold"), "", "", *numbers)
    if ledger.group(True):
        apart = ledger.aggregates(head, newcomers=True)
        table.add_row(Text("newcomers", "bold"), "", "", *(Text(_number(apart[k]["mean"], percent)) for k in KINDS))
    return table


def printable(name: str) -> str:
    """A name that can do nothing to a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def _shown(entries: "Sequence[Entry]", limit: int, head: str, higher: bool) -> "list[Entry]":
    if len(entries) <= limit:
        return list(entries)

    def key(e: "Entry") -> tuple[bool, bool, float]:
        v = e.value("personal", head)
        return e.better_off != "no", v is None, (v if higher else -v) if v is not None else 0.0

    return sorted(entries, key=key)[:limit]


def _caption(ledger: "Ledger") -> str:
    said = [f"Better off than alone: {_counted(ledger.verdicts())}."]
    if new := len(ledger.group(True)):
        said.append(f"Newcomers ({new}) are counted apart: {_counted(ledger.verdicts(newcomers=True))}.")
    said += [f"{kind}: n/a, {why}." for kind, why in ledger.absent.items()]
    undefined = sum(e.value("personal", ledger.yardstick.headline) is None for e in ledger.group())
    if undefined:
        said.append(f"{undefined} of {len(ledger.group())} clients are n/a and in no mean.")
    said.append("Brackets: 95 % intervals.")
    return " ".join(said)


def _counted(v: dict[str, int]) -> str:
    return f"{v['yes']} yes, {v['no']} no, {v['unclear']} unclear" + (f", {v['n/a']} n/a" if v["n/a"] else "")


def _gain(e: "Entry", percent: bool) -> str:
    if e.difference is None:
        return "n/a"
    return _number(e.difference, percent, "+") + _interval(e.interval, percent)


def _interval(interval: Interval | None, percent: bool) -> str:
    if interval is None:
        return ""
    digits = (1 if interval[1] - interval[0] < 0.05 else 0) if percent else 2
    low, high = (f"{v * (100 if percent else 1):.{digits}f}" for v in interval)
    return f" [{low}, {high}]"


def _number(value: float | None, percent: bool, sign: str = "") -> str:
    if value is None:
        return "n/a"
    return f"{100 * value:{sign}.1f}" if percent else f"{value:{sign}.3f}"
