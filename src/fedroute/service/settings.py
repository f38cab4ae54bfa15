"""What a gateway allows. Light to import."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

MEBIBYTE = 1 << 20
MOST_MIXED = 100  # clients whose answers are mixed


class Settings(BaseModel):
    """tokens: the file that `fedroute token` writes; None: anybody may ask. rate: requests a second of a token, or of
    an address where there are no tokens, with twice as many at once; None: no limit.
    audit: the SQLite file of answers; None: none is kept. audit_key: a file of 16 bytes or more, by which a keyed hash
    of each query stands in the audit; None: nothing of a query does.
    most_bytes: of a request. most_queries: of a batch. concurrency: requests that are worked on; queue: requests that
    wait for that, beyond which more are refused. timeout: seconds for a request, its body included; answer_timeout:
    seconds that one client has before the next one is asked.
    addresses: client -> URL of its own gateway, for who decides by themselves and asks that client alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tokens: Path | None = None
    rate: float | None = Field(None, gt=0)
    audit: Path | None = None
    audit_key: Path | None = None
    most_bytes: int = Field(8 * MEBIBYTE, ge=1024)
    most_queries: int = Field(1024, ge=1)
    concurrency: int = Field(256, ge=1)
    queue: int = Field(1024, ge=0)
    timeout: float = Field(10.0, gt=0)
    answer_timeout: float = Field(2.0, gt=0)
    addresses: dict[str, str] = {}
