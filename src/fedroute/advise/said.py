"""A sentence in English and Chinese: the English is its value, for JSON and for whoever asks no language."""

from collections.abc import Sequence


class Said(str):
    """English text; zh: the same in Chinese."""

    zh: str
    __slots__ = ("zh",)

    def __new__(cls, en: str, zh: str) -> "Said":
        found = super().__new__(cls, en)
        found.zh = zh
        return found

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.zh

    def of(self, lang: str) -> str:
        """lang: "en" or "zh"."""
        return self.zh if lang == "zh" else str(self)


def joined(parts: Sequence[Said]) -> Said:
    """ "a; b", of those that say something."""
    some = [p for p in parts if p]
    return Said("; ".join(some), "；".join(p.zh for p in some))


NOTHING = Said("", "")
KIND = {"label": "标签", "feature": "特征", "quantity": "数据量", "time": "时间", "concept": "含义"}
LEVEL = {"none": "无", "mild": "轻微", "clear": "明显", "strong": "强烈", "unknown": "无法判断"}
