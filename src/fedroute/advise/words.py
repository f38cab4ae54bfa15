"""An advice for a terminal, in English or Chinese, and the words that it shares with the page."""

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fedroute.advise.methods import METHODS
from fedroute.advise.said import Said
from fedroute.words import count

if TYPE_CHECKING:
    from fedroute.advise.advice import Advice
    from fedroute.advise.proof import Contest, Proof

WIDTH = 100
SHOWN = 8  # clients
TITLES = {
    "advice": Said("Advice", "建议"),
    "private": Said("private", "留在本地"),
    "why": Said("Why", "理由"),
    "cost": Said("Cost", "代价"),
    "runner_up": Said("Runner-up", "次选"),
    "changes": Said("Would change its mind", "什么会改变建议"),
    "leave_out": Said("Mend first, or leave out", "先修正，否则不参加共享训练的客户端"),
    "personal": Said("A model of their own", "需要自己的模型的客户端"),
    "router": Said("Router", "路由器"),
    "proof": Said("Proof", "验证"),
    "minus": Said("advised minus it", "建议的方法减去它"),
    "config": Said("Config", "配置"),
}
DO = {
    "mend": Said("mend", "先修正"),
    "nothing": Said("nothing", "无须处理"),
    "personal": Said("personal", "个性化"),
    "personal or alone": Said("personal or alone", "个性化或单独训练"),
}
ROLES = {"norm": Said("norm", "归一化层"), "head": Said("head", "头部"), "all": Said("all", "全部")}
METRICS = {"accuracy": "准确率", "loss": "损失"}


def told(a: "Advice", lang: str = "en") -> str:
    """The advice, why, what it costs, who needs what, the runner-up, what would change it, and the config."""
    return "\n".join(_lines(a, lang))


def blocks(a: "Advice") -> Iterator[tuple[str, Sequence[tuple[str, Said, Said]]]]:
    """(key of TITLES, lines) of those that have some; a line: client or "", what to do with it, the sentence."""
    runner_up = Said(f"{called(a.runner_up)}: {a.runner_up_why}", f"{called(a.runner_up, 'zh')}：{a.runner_up_why.zh}")
    none = Said("", "")
    found: dict[str, Sequence[tuple[str, Said, Said]]] = {
        "why": [("", none, w) for w in a.why],
        "cost": [("", none, a.cost["words"])],
        "runner_up": [("", none, runner_up)],
        "changes": [("", none, w) for w in a.would_change_mind],
        "leave_out": [(c.client, DO[c.do], c.why) for c in a.leave_out],
        "personal": [(c.client, DO[c.do], c.why) for c in a.personal],
        "router": [("", none, a.router_why)],
    }
    return ((k, lines) for k, lines in found.items() if lines)


def called(label: str, lang: str = "en") -> str:
    """A method's name, and what is private by its config."""
    m = METHODS[label]
    roles = [ROLES[r] for r in m.config.get("private", ())]
    if not roles:
        return m.name
    return m.name + Said(f" with {', '.join(roles)} private", f"（{'、'.join(r.zh for r in roles)}留在本地）").of(lang)


def private(a: "Advice", lang: str = "en") -> str:
    """The roles that never leave a client; "" for none."""
    return ("、" if lang == "zh" else ", ").join(ROLES[r].of(lang) for r in a.private)


def gap(c: "Contest") -> str:
    """The advised one minus this one, with its interval; "" for the advised one itself."""
    if c.interval is None or c.difference is None:
        return ""
    return f"{c.difference:+.3f} [{c.interval[0]:+.3f}, {c.interval[1]:+.3f}]"


def budget(p: "Proof") -> Said:
    return Said(
        f"{p.metric} on validation rows, {count(p.rounds, 'round')}, {count(p.seeds, 'seed')}",
        f"验证数据上的{metric(p, 'zh')}，{p.rounds:,} 轮，{p.seeds:,} 个种子",
    )


def metric(p: "Proof", lang: str) -> str:
    return METRICS.get(p.metric, p.metric) if lang == "zh" else p.metric


def config(a: "Advice") -> str:
    """YAML."""
    import yaml

    return str(yaml.safe_dump(a.config(), sort_keys=False, default_flow_style=None)).rstrip()


def _lines(a: "Advice", lang: str) -> Iterator[str]:
    title = {k: v.of(lang) for k, v in TITLES.items()}
    colon, comma = ("：", "，") if lang == "zh" else (": ", ", ")
    kept = f"{comma}{title['private']}{colon}{private(a, lang)}" if a.private else ""
    yield f"{title['advice']}{colon}{a.algorithm}{kept}{colon}{a.method.good.of(lang)}"
    for key, lines in blocks(a):
        yield f"{title[key]}{colon}".rstrip()
        for who, do, text in lines[:SHOWN]:
            yield from _wrapped(f"{who}{_in_brackets(do, lang)}{text.of(lang)}" if who else text.of(lang))
        if len(lines) > SHOWN:
            n = len(lines) - SHOWN
            yield "  " + Said(f"and {n} more; --json has all", f"另有 {n} 个；--json 中有全部").of(lang)
    if a.proof:
        yield f"{title['proof']}{colon}".rstrip()
        yield from _wrapped(a.proof.words.of(lang))
        for c in a.proof.contests:
            difference = f"   {title['minus']} {gap(c)}" if gap(c) else ""
            name = called(c.label, lang)
            yield f"    {name}{' ' * max(0, 28 - _columns(name))}{c.mean:.3f}{difference}"
        yield f"  {budget(a.proof).of(lang)}"
    yield f"{title['config']}{colon}".rstrip()
    yield textwrap.indent(config(a), "  ")


def _in_brackets(do: Said, lang: str) -> str:
    return f"（{do.zh}）：" if lang == "zh" else f" ({do}): "


def _wrapped(line: str) -> Iterator[str]:
    """Chinese has no spaces to break at: its lines are left to the terminal."""
    if _columns(line) > len(line):
        yield f"  - {line}"
    else:
        yield textwrap.fill(line, WIDTH, initial_indent="  - ", subsequent_indent="    ")


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
