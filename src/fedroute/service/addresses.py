"""Where a gateway may be: hosts that nobody but this machine reaches, and what is a URL. Light to import."""

HERE = frozenset({"127.0.0.1", "localhost", "::1"})


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))
