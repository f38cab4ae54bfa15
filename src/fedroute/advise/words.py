"""An advice for a terminal."""

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedroute.advise.methods import METHODS
from fedroute.words import count

if TYPE_CHECKING:
    from fedroute.advise.advice import Advice

WIDTH = 100
SHOWN = 8  # clients


def told(a: "Advice") -> str:
    """The advice, why, what it costs, who needs what, the runner-up, what would change it, and the config."""
    return "\n".join(_lines(a))


def _lines(a: "Advice") -> Iterator[str]:
    kept = f", private: {', '.join(a.private)}" if a.private else ""
    yield f"Advice: {a.algorithm}{kept}: {a.method.good}"
    yield from _block("Why", a.why)
    yield from _block("Cost", [a.cost["words"]])
    yield from _block("Runner-up", [f"{_called(a.runner_up)}: {a.runner_up_why}"])
    yield from _block("Would change its mind", a.would_change_mind)
    yield from _block("Leave out", [f"{c.client} ({c.do}): {c.why}" for c in a.leave_out])
    yield from _block("A model of their own", [f"{c.client} ({c.do}): {c.why}" for c in a.personal])
    yield from _block("Router", [a.router_why])
    if a.proof:
        yield from _block("Proof", [a.proof.words])
        for c in a.proof.contests:
            gap = "" if c.interval is None or c.difference is None else (
                f"   advised minus it {c.difference:+.3f} [{c.interval[0]:+.3f}, {c.interval[1]:+.3f}]"
            )  # fmt: skip
            yield f"    {_called(c.label):<28}{c.mean:.3f}{gap}"
        yield f"  {a.proof.metric} on validation rows, {count(a.proof.rounds, 'round')}, {count(a.proof.seeds, 'seed')}"
    import yaml

    yield "Config:"
    yield textwrap.indent(yaml.safe_dump(a.config(), sort_keys=False, default_flow_style=None).rstrip(), "  ")


def _called(label: str) -> str:
    m = METHODS[label]
    return m.name + (f" with {', '.join(m.config['private'])} private" if m.config.get("private") else "")


def _block(title: str, lines: "list[str] | tuple[str, ...]") -> Iterator[str]:
    if not lines:
        return
    yield f"{title}:"
    for line in lines[:SHOWN]:
        yield textwrap.fill(line, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    if len(lines) > SHOWN:
        yield f"  and {len(lines) - SHOWN} more; --json has all"
