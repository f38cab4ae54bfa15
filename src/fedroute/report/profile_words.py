"""The words of a profile in English and Chinese, and the profile as lines for a terminal."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

Words = Mapping[str, str]
SHOWN = 30  # clients and findings on a terminal; --json and the page have all
LANGUAGES = ("en", "zh")
KINDS = ("label", "feature", "quantity", "time", "concept")


@cache
def words(lang: str) -> Words:
    """Key -> words, for a language of LANGUAGES."""
    import yaml

    text = files("fedroute.report").joinpath("profile.words.yaml").read_text(encoding="utf-8")
    found: dict[str, Words] = yaml.safe_load(text)
    return found[lang]


def told(found: Mapping[str, Any], lang: str = "en") -> str:
    """The JSON object of `profile --json` as lines of text."""
    w = words(lang)
    lines = [f"{found['federation']}: {found['sentences'][lang]}", ""]
    for kind in KINDS:
        s = found["skew"][kind]
        number = f"{s['strength']:.2f} [{s['interval'][0]:.2f}, {s['interval'][1]:.2f}]"
        unknown = s["verdict"] == "unknown"
        lines.append(f"{w[kind]:9} {w[s['verdict']]:8} {'' if unknown else number}".rstrip())
        lines.append(f"          {s['sentences'][lang]}")
    lines += ["", w["clients"]]
    rows = found["clients"]
    width = min(24, max(len(c["name"]) for c in rows)) if rows else 0
    for c in rows[:SHOWN]:
        lines.append(f"  {c['name']:{width}}  {c['rows']:>8,} {w['rows_of']}{effective(c, w)}{_flags(c, w)}")
    if len(rows) > SHOWN:
        lines.append("  " + w["more"].format(n=len(rows) - SHOWN))
    lines += ["", w["sick"]]
    worst = found["sick"]
    for f in worst[:SHOWN]:
        sentence, mend = finding(f, lang)
        lines.append(f"  {w[f['severity']]}: {sentence} {w['mend']}: {mend}")
    if len(worst) > SHOWN:
        lines.append("  " + w["more"].format(n=len(worst) - SHOWN))
    if not worst:
        lines.append(f"  {w['healthy']}")
    return "\n".join(lines)


def finding(f: Mapping[str, Any], lang: str) -> tuple[str, str]:
    """Its sentence and its mend; in English where its JSON has no other language."""
    english = {"sentences": {lang: f["sentence"]}, "mends": {lang: f["mend"]}}
    told = {**english, **f}
    return told["sentences"][lang], told["mends"][lang]


def effective(client: Mapping[str, Any], w: Words) -> str:
    n = client["effective_rows"]
    return "" if n == client["rows"] else f" ({n:,} {w['effective_of']})"


def _flags(client: Mapping[str, Any], w: Words) -> str:
    named: Sequence[str] = flags(client, w)
    return f"  {'; '.join(named)}" if named else ""


def flags(client: Mapping[str, Any], w: Words) -> list[str]:
    """What to know of a client, in words."""
    lacks = client["lacks"]
    more = f": {', '.join(lacks[:4])}{', ...' if len(lacks) > 4 else ''}" if lacks else ""
    return [w[f] + (more if f == "missing_labels" else "") for f in client["flags"]]
