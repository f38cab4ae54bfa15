"""A text in two languages, which is its English one wherever a string is asked for."""


class Said(str):
    """The English text; zh: the same in Chinese, with the same numbers and names."""

    zh: str
    __slots__ = ("zh",)

    def __new__(cls, en: str, zh: str) -> "Said":
        said = super().__new__(cls, en)
        said.zh = zh
        return said

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """For copies and pickles."""
        return str(self), self.zh

    def of(self, lang: str) -> str:
        """lang: "en" or "zh"."""
        return self.zh if lang == "zh" else str(self)


def say(en: str, zh: str) -> Said:
    """A text in both languages: it is and compares as `en`, and `.zh` is `zh`."""
    return Said(en, zh)
