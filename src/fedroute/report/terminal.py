"""Routes, and what routing is worth, as tables for a terminal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedroute.report.routing_view import BASELINES, verdict
from fedroute.words import count

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

MOST = 40  # queries that are shown; --json has all


def routes_table(found: Mapping[str, Any]) -> "Table":
    """A line for each query, of many the first ones. sure: the probability of the answer; how likely it is that the
    query is the client's stands in the reason."""
    from rich.markup import escape

    rows = found["queries"]
    table = _table(f"{count(len(rows), 'query', 'queries')}, by {found['rule']}")
    for name in ("", "client", "answer", "sure", "runner-up", "reason"):
        table.add_column(name, justify="right" if name in ("", "sure") else "left")
    for i, row in enumerate(rows[:MOST], 1):
        client = "nobody" if row["abstained"] else row["client"] or "all"
        sure = "" if row["abstained"] else f"{row['probabilities'][row['answer']]:.0%}"
        cells = (client, row["answer"] or "", sure, row["runner_up"] or "", row["reason"])
        table.add_row(str(i), *map(escape, cells))
    if more := len(rows) - MOST:
        table.caption = f"{more} more: --json has all" if more > 0 else None
    return table


def routing_table(routing: Mapping[str, Any]) -> "Group":
    """What every rule and baseline is worth on the test rows, the best first, and whether routing pays."""
    from rich.console import Group
    from rich.text import Text

    shares, intervals, macro = (routing[k] for k in ("system_accuracy", "intervals", "macro"))
    table = _table(f"system accuracy: {routing['queries']} test rows as queries that say not whose they are")
    for name in ("rule", "", "all queries", "", "by client"):
        table.add_column(name, justify="left" if name == "rule" else "right")
    for rule in sorted(shares, key=lambda r: -(shares[r] or 0)):
        if shares[rule] is None:
            continue
        kind = "in use" if rule == routing["rule"] else "no router" if rule in BASELINES else ""
        low, high = intervals[rule]
        row = (
            rule,
            kind,
            f"{100 * shares[rule]:.1f}",
            f"[{100 * low:.0f}, {100 * high:.0f}]",
            f"{100 * macro[rule]:.1f}",
        )
        table.add_row(*(Text(v) for v in row))
    return Group(table, Text(verdict(routing).replace("\N{NO-BREAK SPACE}", " ")))


def _table(title: str) -> "Table":
    from rich.table import Table

    return Table(title=title, title_justify="left", box=None, pad_edge=False)
