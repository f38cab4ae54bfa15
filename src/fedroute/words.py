"""Numbers, names and parts in the sentences of messages."""

from collections.abc import Iterable


def noun(n: int, one: str, many: str | None = None) -> str:
    """`one` for one, else `many` (by default with an s). What must agree with the number may be part of both."""
    return one if n == 1 else many or one + "s"


def count(n: int, one: str, many: str | None = None) -> str:
    """ "1 image", "1,204 images"."""
    return f"{n:,} {noun(n, one, many)}"


def then(first: str, more: str) -> str:
    """Two parts of a message as one: "first; more", and where the first is a question, "first? More"."""
    return f"{first} {more[:1].upper()}{more[1:]}" if first.endswith(("?", "!", ".")) else f"{first}; {more}"


def one_or_more(given: Iterable[str]) -> list[str]:
    """The names in a list of them; a text alone is one name, and not its letters."""
    return [given] if isinstance(given, str) else list(given)
