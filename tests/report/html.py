"""A strict look at a page: every tag closed in order, its text, what it would load."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "input", "hr"}
LOADS = {"src", "href", "srcset", "data", "action", "poster", "xlink:href", "formaction", "background"}


class Page(HTMLParser):
    """tags: every tag with its attributes, in order; text: what a reader sees, without style and script."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.stack, f"never closed: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] == "script":
            self.scripts.append(data)
        elif not self.stack or self.stack[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str) -> int:
        return sum(t == tag for t, _ in self.tags)

    def loaded(self) -> list[str]:
        return [v for _, attrs in self.tags for k, v in attrs.items() if k in LOADS]
