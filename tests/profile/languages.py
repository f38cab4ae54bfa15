"""What must hold of every finding: its Chinese says what its English says."""

import re

from fedroute.profile.finding import Finding
from fedroute.said import Said

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
SETTING = re.compile(r"`[^`]*`")
ENGLISH = re.compile(r"[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}")


def same(said: Said, names: list[str]) -> list[str]:
    """What differs between the two languages; names: of clients and columns."""
    lost = [n for n in names if _named(n, said) and not _named(n, said.zh)]
    wrong = [f"{n} is lost" for n in lost]
    if not re.search(r"[\u4e00-\u9fff]", said.zh):
        wrong.append("no Chinese")
    if sorted(NUMBER.findall(said)) != sorted(NUMBER.findall(said.zh)):
        wrong.append("other numbers")
    if sorted(SETTING.findall(said)) != sorted(SETTING.findall(said.zh)):
        wrong.append("other settings")
    if ENGLISH.search(SETTING.sub("", said.zh)):
        wrong.append("English words")
    return [f"{w}: {said} / {said.zh}" for w in wrong]


def differences(f: Finding) -> list[str]:
    names = [n for n in (f.client, *f.others, *(f.column or "").split(", ")) if n]
    return same(f.sentence, names) + same(f.mend, [n for n in names if len(n) > 1])  # "a" is a word too


def _named(name: str, text: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text) is not None
