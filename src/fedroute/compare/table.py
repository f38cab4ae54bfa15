"""A comparison as a table for a terminal of 120 columns."""

from typing import TYPE_CHECKING, Any

from fedroute.report.words import Unit, count, duration, listed, size

if TYPE_CHECKING:
    from rich.table import Table


def comparison_table(found: dict[str, Any]) -> "Table":
    """A line per algorithm, the best on validation rows first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    unit = Unit(found["headline"])
    title = f"{unit.metric} of {len(found['clients'])} clients, means over {count(len(found['seeds']), 'seed')}"
    table = Table(title=title, caption=said(found), box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.add_column("algorithm", overflow="fold", min_width=10, max_width=34)
    newcomers = any(t["newcomers"] is not None for t in found["algorithms"])
    columns = ["validation", found["part"], "95 %", "worst", "alone", *(["newcomers"] if newcomers else [])]
    for name in (*columns, "better off: yes/no/unclear", "a run", "up", "down"):
        table.add_column(name, justify="right", overflow="fold")
    for t in found["algorithms"]:
        v = t["better_off"]
        table.add_row(
            Text(t["algorithm"]),
            unit.number(t["validation"]),
            Text(unit.number(t["mean"]), "bold"),
            Text(unit.interval(t["interval"])),
            unit.number(t["worst"]),
            unit.number(t["alone"]),
            *([unit.number(t["newcomers"])] if newcomers else []),
            f"{v['yes']}/{v['no']}/{v['unclear']}",
            "n/a" if t["seconds"] is None else duration(t["seconds"]),
            size(t["up_bytes"] or 0),
            size(t["down_bytes"] or 0),
        )
    return table


def said(found: dict[str, Any]) -> str:
    """Who is best, and what is not known."""
    words = [verdict(found)]
    if found["missing"]:
        words.append(f"{len(found['missing'])} runs are missing.")
    if found["refused"]:
        runs = count(len(found["refused"]), "run")
        words.append(f"In {runs} answers were refused or rounds void: log.txt says why.")
    words.append("Verdicts are counted over clients and seeds; up and down are the bytes of a whole run.")
    return " ".join(words)


def verdict(found: dict[str, Any]) -> str:
    """The winner in a sentence that claims no more than the intervals."""
    w, unit, part = found["winner"], Unit(found["headline"]), found["part"]
    if w is None:
        if len(found["algorithms"]) < 2:
            return "There is nothing to compare yet."
        return "There are no validation rows, so no algorithm can be chosen: nothing is chosen on test rows."
    text = f"{w['algorithm']} is first on validation rows ({unit(w['validation'])}; on {part} rows {unit(w['mean'])})."
    better, worse, open_ = (w[k] for k in ("better_than", "worse_than", "not_told_apart_from"))
    if better:
        text += f" On {part} rows it is better than {listed(better)} beyond the noise."
    if worse:
        text += f" On {part} rows it is worse than {listed(worse)} beyond the noise."
    if open_:
        more = "" if better or worse else f" On {part} rows none of the others is told apart from it."
        text += more or f" From {listed(open_)} it is not told apart."
    return text
