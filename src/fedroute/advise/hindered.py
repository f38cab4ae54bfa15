"""What must be mended before any method is worth its training: said first among an advice's reasons."""

from collections.abc import Mapping
from typing import Any

from fedroute.advise.facts import Facts
from fedroute.advise.said import Said
from fedroute.profile.comparable import FEW_ROWS, MANY_LABELS, NOTHING_VARIES, ONE_LABEL


def hindered(f: Facts) -> tuple[Said, ...]:
    """One reason for each such finding, with its mend; Chinese where the profile has it."""
    return tuple(
        Said(
            f"{_of(s, 'sentence')} First: {_of(s, 'mend')}",
            f"{_of(s, 'sentence', 'zh')}请先处理：{_of(s, 'mend', 'zh')}",
        )
        for s in f.sick
        if s["kind"] in (ONE_LABEL, MANY_LABELS, NOTHING_VARIES, FEW_ROWS)
    )


def _of(finding: Mapping[str, Any], key: str, lang: str = "en") -> str:
    return str(finding.get(f"{key}s", {}).get(lang, finding[key]))
