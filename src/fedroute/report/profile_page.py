"""profile.html: one self-contained page about how clients differ, in English or Chinese; advice.html: the same under
what is advised for it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fedroute.durable import taking
from fedroute.durable import write as whole_file
from fedroute.errors import InputError
from fedroute.report.advice_view import advice_view
from fedroute.report.profile_pictures import LINES, heat, lines
from fedroute.report.profile_words import KINDS, LANGUAGES, Words, finding, flags, words
from fedroute.report.words import size, whole

if TYPE_CHECKING:
    from fedroute.advise.advice import Advice

PROFILE, ADVICE = "profile.html", "advice.html"
CHIP = {"none": "yes", "mild": "unclear", "clear": "no", "strong": "no", "unknown": "na"}
SEVERITY = {"severe": "no", "warning": "unclear", "note": "na"}
DEVIATIONS = 1.5  # of a feature, from which on its colour is full


def language(lang: str) -> str:
    """Raises InputError for a language that there is not."""
    if lang not in LANGUAGES:
        raise InputError(f"--lang: {lang!r} is not there; it is {' or '.join(LANGUAGES)}")
    return lang


def write_profile(found: Mapping[str, Any], out: Path, lang: str = "en") -> Path:
    """Writes the page of `profile --json`'s object to the folder or the .html file `out`; returns its path. Raises
    InputError where it cannot be there."""
    return _write(profile_page(found, lang), out, PROFILE)


def write_advice(advice: "Advice", out: Path, lang: str = "en") -> Path:
    """Writes the page of an advice, above the profile that it rests on, to the folder or the .html file `out`; returns
    its path. Raises InputError for an advice without its profile, and where the page cannot be there."""
    if advice.profile is None:
        raise InputError("this advice was made from a saved profile: its page needs one made from a federation")
    return _write(profile_page(advice.profile, lang, advice), out, ADVICE)


def place(out: Path, name: str) -> Path:
    """The file that a page is written to: `out` itself where it ends in .html, else `name` in the folder `out`.

    Raises InputError where no such file can be: to be asked before the work, not after it."""
    path = out if out.suffix == ".html" else out / name
    if file := next((p for p in path.parents if p.exists() and not p.is_dir()), None):
        raise InputError(f"{out}: cannot be made: {file} is a file: name another folder")
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a folder: name another file")
    with taking(path.parent):
        there = next(p for p in path.absolute().parents if p.exists())
        if not os.access(there, os.W_OK):
            raise InputError(f"{out}: cannot be made: {there} may not be written to: name another folder")
    return path


def _write(page: str, out: Path, name: str) -> Path:
    path = place(out, name)
    with taking(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file(path, page.encode(errors="replace"))
    return path


def profile_page(found: Mapping[str, Any], lang: str = "en", advice: "Advice | None" = None) -> str:
    from fedroute.report.template import render

    shown = advice_view(advice, language(lang)) if advice else None
    return render("profile.html.j2", content(found, language(lang)) | {"advice": shown})


def content(found: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """What the template shows, as plain values."""
    w = words(lang)
    clients = found["clients"]
    return {
        "w": w, "lang": "zh-CN" if lang == "zh" else lang, "title": found["federation"],
        "headline": found["sentences"][lang],
        "facts": [(w["clients"], len(clients)), (w["facts_rows"], whole(sum(c["rows"] for c in clients))),
                  (w["facts_labels"], len(found["labels"]))],
        "pictures": pictures(found, w), "five": [_skew(k, found["skew"][k], w, lang) for k in KINDS],
        "clients": [_client(c, w) for c in clients],
        "missing": [_column(c) for c in found["missing"][:40]],
        "sick": [_finding(f, w, lang) for f in found["sick"]],
        "sends": [s | {"words": size(s["bytes"])} for s in found["sends"]],
        "total": size(sum(s["bytes"] for s in found["sends"])), "notes": found["notes"],
    }  # fmt: skip


def pictures(found: Mapping[str, Any], w: Words) -> list[tuple[str, Markup | str]]:
    """(caption, picture or the words for why there is none), labels, features and time."""
    names = [c["name"] for c in found["clients"]]
    shown = found["pictures"]
    of_labels, of_features, of_time = shown["labels"], shown["features"], shown["time"]
    figures: list[tuple[str, Markup | str]] = [
        (w["p_labels"], _clients_by(names, of_labels["labels"], of_labels["shares"], w["p_labels"], 1.0, True))
    ]
    if of_features["features"]:
        figures.append(
            (w["p_features"],
             _clients_by(names, of_features["features"], of_features["difference"], w["p_features"], DEVIATIONS, False))
        )  # fmt: skip
    else:
        figures.append((w["p_features"], w["no_features"]))
    if of_time and (series := of_time["axes"] or of_time["shares"]):
        changes = found["skew"]["time"]["changes"]
        figures.append((w["p_time"], lines(of_time["at"], series[:3], changes, _moment, w["p_time"])))
    else:
        figures.append((w["p_time"], w["no_time"]))
    return figures


def _clients_by(
    names: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], title: str, top: float, share: bool
) -> Markup:
    """Of many clients those that differ most from the mean."""

    def show(v: float) -> str:
        return f"{100 * v:.0f} %" if share else f"{v:+.2f}"

    order = list(range(len(names)))
    if len(names) > LINES:
        mean = [sum(v) / len(values) for v in zip(*values, strict=True)]
        far = {i: sum(abs(a - b) for a, b in zip(values[i], mean, strict=True)) for i in order}
        order = sorted(sorted(order, key=lambda i: -far[i])[:LINES])
    return heat([names[i] for i in order], columns, [values[i] for i in order], show, title, top)


def _moment(t: float) -> str:
    from fedroute.profile.sentences import moment

    return moment(t)


def _skew(kind: str, s: Mapping[str, Any], w: Words, lang: str) -> dict[str, Any]:
    low, high = s["interval"]
    return {
        "kind": w[kind], "verdict": w[s["verdict"]], "chip": CHIP[s["verdict"]], "strength": f"{s['strength']:.2f}",
        "interval": f"[{low:.2f}, {high:.2f}]", "at": [round(100 * v, 1) for v in (s["strength"], low, high)],
        "known": s["verdict"] != "unknown", "sentence": s["sentences"][lang],
        "p": "" if s["p"] is None else "< 0.001" if s["p"] < 0.001 else f"{s['p']:.3f}",
    }  # fmt: skip


def _finding(f: Mapping[str, Any], w: Words, lang: str) -> dict[str, Any]:
    sentence, mend = finding(f, lang)
    return {"chip": SEVERITY[f["severity"]], "words": w[f["severity"]], "sentence": sentence, "mend": mend}


def _client(c: Mapping[str, Any], w: Words) -> dict[str, Any]:
    return {
        "name": c["name"], "rows": c["rows"], "effective": c["effective_rows"], "weight": f"{100 * c['weight']:.1f} %",
        "classes": f"{c['effective_classes']:.1f}", "flags": "; ".join(flags(c, w)),
    }  # fmt: skip


def _column(c: Mapping[str, Any]) -> dict[str, Any]:
    def at(end: Mapping[str, Any]) -> str:
        return f"{end['client']} {100 * end['share']:.0f} %"

    return {"name": c["column"], "all": f"{100 * c['share']:.1f} %", "most": at(c["most"]), "least": at(c["least"]),
            "absent": ", ".join(c["absent_at"])}  # fmt: skip
