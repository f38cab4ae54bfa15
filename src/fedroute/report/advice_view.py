"""An advice as plain values for the page, in English or Chinese."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedroute.advise.advice import Advice
    from fedroute.advise.proof import Proof


def advice_view(a: "Advice", lang: str) -> dict[str, Any]:
    """What the template shows above a profile: the method and what stays private, every block of the terminal's words
    without a limit, the proof as a table, and the config."""
    from fedroute.advise import words

    title = {k: v.of(lang) for k, v in words.TITLES.items()}
    return {
        "title": title["advice"], "called": a.algorithm, "good": a.method.good.of(lang),
        "private_title": title["private"], "private": words.private(a, lang) or {"en": "nothing", "zh": "无"}[lang],
        "blocks": [
            {"title": title[key],
             "lines": [{"who": who, "do": do.of(lang), "text": text.of(lang)} for who, do, text in lines]}
            for key, lines in words.blocks(a)
        ],
        "proof": _proof(a.proof, title, lang) if a.proof else None,
        "config_title": title["config"], "config": words.config(a),
    }  # fmt: skip


def _proof(p: "Proof", title: dict[str, str], lang: str) -> dict[str, Any]:
    from fedroute.advise import words

    return {
        "title": title["proof"], "words": p.words.of(lang), "method": {"en": "method", "zh": "方法"}[lang],
        "metric": words.metric(p, lang), "minus": title["minus"], "budget": words.budget(p).of(lang),
        "contests": [
            {"called": words.called(c.label, lang), "mean": f"{c.mean:.3f}", "gap": words.gap(c)} for c in p.contests
        ],
    }  # fmt: skip
