"""`hub:` how a real federation is run. Light to import: no torch, no numpy."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedroute.federation.folders import checked_name


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Asynchronous(Part):
    """Buffered asynchronous aggregation (Nguyen et al. 2022, "Federated Learning with Buffered Asynchronous
    Aggregation", algorithm 1): every site trains all the time, and the server goes on once `buffer` updates have come.
    An update that was begun s versions ago is multiplied with (1 + s)^-exponent."""

    buffer: int = Field(2, ge=1)
    exponent: float = Field(0.5, ge=0)


class HubSpec(Part):
    """sites: names of those that are expected; by default those that are connected when nobody new has come for ten
    seconds. Times are in seconds.

    wait: for the expected sites at the start, and for enough of them in between; owners are waited for without end,
    since people read in their own time. deadline: of a round; who has not answered by then is left out. away: how long
    the others, once they are done, wait for a site whose connection is gone. late: what becomes of an answer after the
    deadline: "discard", and the site is told to stop; or "use": the site goes on, and its answer counts in the first
    round after it came, (1 + rounds)^-1/2 times.
    answer_timeout: of a small call. chunk: bytes of a piece of a transfer."""

    sites: list[str] | None = Field(None, min_length=1)
    wait: float = Field(600.0, gt=0)
    deadline: float = Field(600.0, gt=0)
    away: float = Field(60.0, ge=0)
    late: Literal["discard", "use"] = "discard"
    asynchronous: Asynchronous | None = None
    answer_timeout: float = Field(30.0, gt=0)
    chunk: int = Field(4 << 20, ge=1 << 12, le=8 << 20)

    @model_validator(mode="after")
    def _together(self) -> Self:
        """Options that would be ignored are refused."""
        if self.asynchronous and self.late == "use":
            raise ValueError("late belongs to rounds, and asynchronous has none: every answer counts; leave late out")
        if self.sites and len(set(self.sites)) < len(self.sites):
            raise ValueError("sites: a name stands there twice")
        for name in self.sites or ():
            checked_name(name, "sites: the name of a site")
        return self
