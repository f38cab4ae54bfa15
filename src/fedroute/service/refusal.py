"""Why a request gets no answer, in words for who asked and in words for the audit."""

from typing import Any


class Refusal(Exception):
    """status: of HTTP. error: what is wrong; field: where in the request; mend: what to do about it. told: the same for
    audit and log, where nothing of a query may stand. retry: seconds after which to ask again."""

    def __init__(
        self,
        status: int,
        error: str,
        mend: str,
        *,
        field: str | None = None,
        told: str = "",
        retry: float | None = None,
    ):
        super().__init__(error)
        self.status, self.error, self.mend, self.field = status, error, mend, field
        self.told, self.retry = told or error, retry

    def body(self) -> dict[str, Any]:
        """{error, field, mend}."""
        return {"error": self.error, "field": self.field, "mend": self.mend}

    def headers(self) -> dict[str, str]:
        """Retry-After, in whole seconds, where asking again is of use; a bearer token where one is wanted."""
        found = {} if self.retry is None else {"Retry-After": str(max(1, round(self.retry + 0.5)))}
        return found | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def wrong(field: str, error: str, mend: str) -> Refusal:
    """422. What is wrong may name what was sent, so that the audit is told the place of it in the schema only."""
    return Refusal(422, f"{field}: {error}", mend, field=field, told="the request is not what it must be")
