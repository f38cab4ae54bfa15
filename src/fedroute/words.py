"""Numbers in the sentences of messages."""


def noun(n: int, one: str, many: str | None = None) -> str:
    """`one` for one, else `many` (by default with an s). What must agree with the number may be part of both."""
    return one if n == 1 else many or one + "s"


def count(n: int, one: str, many: str | None = None) -> str:
    """ "1 image", "1,204 images"."""
    return f"{n:,} {noun(n, one, many)}"
