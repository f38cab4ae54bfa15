"""What a gateway says of itself in OpenAPI: bodies, answers, refusals."""

from typing import Any

from pydantic import BaseModel, Field

from fedroute.service.settings import MOST_MIXED


class Route(BaseModel):
    """Who should answer a query. client, score: null where the router abstains, client also where all answer together;
    runner_up: the next in line, or the nearest. posterior: of the three likeliest clients."""

    client: str | None
    score: float | None = Field(ge=0, le=1)
    runner_up: str | None
    abstained: bool
    reason: str
    posterior: dict[str, float]


class Answer(Route):
    """client: who should answer; answered_by: who did; fallback: whether that is another: score, runner_up and
    posterior are then of the choice by which that one was asked. answer, probabilities: null
    where the router abstains. mixed: the share of each client where several were asked."""

    answered_by: str | None
    fallback: bool
    answer: str | None
    probabilities: dict[str, float] | None
    mixed: dict[str, float] | None = None


class OwnAnswer(BaseModel):
    """What one client's own model answers."""

    client: str
    answered_by: str
    answer: str
    probabilities: dict[str, float]


class Problem(BaseModel):
    """error: what is wrong; field: where in the request; mend: what to do about it."""

    error: str
    field: str | None
    mend: str


class OneRoute(Route):
    request: str


class OneAnswer(Answer):
    request: str


class OneOwnAnswer(OwnAnswer):
    request: str


class Routes(BaseModel):
    request: str
    answers: list[Route]


class Answered(BaseModel):
    """A problem in the place of a query that nobody could answer."""

    request: str
    answers: list[Answer | Problem]


class OwnAnswers(BaseModel):
    request: str
    answers: list[OwnAnswer]


class Client(BaseModel):
    """here: whether it can be asked now; address: of its own gateway; version: of the model it last answered with."""

    client: str
    here: bool
    address: str | None = None
    version: str | int | None = None


class Clients(BaseModel):
    rule: str
    clients: list[Client]


class Schema(BaseModel):
    """query: JSON Schema of one query."""

    labels: list[str]
    query: dict[str, Any]
    most_queries: int
    most_bytes: int


class Health(BaseModel):
    ok: bool


REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": words}
    for code, words in {
        401: "no known token", 408: "the body came too slowly", 413: "too long",
        415: "not said to be JSON", 422: "not what a query must be: field and mend", 429: "too often: Retry-After",
        503: "busy, or nobody can answer: Retry-After",
    }.items()
}  # fmt: skip
OFTEN: dict[int | str, dict[str, Any]] = {k: REFUSALS[k] for k in (401, 429, 503)}


def parts(query: dict[str, Any], clients: list[str], most_queries: int) -> dict[str, Any]:
    """JSON Schemas by name: a query, the queries of a batch, the clients that shall not be asked (one must be left).
    query: {} while it is unknown."""
    batch: dict[str, Any] = {"type": "array", "items": query, "minItems": 1, "maxItems": most_queries}
    if files := [f for f in query.get("anyOf", []) if "npy" in f.get("properties", {})]:
        batch = {"anyOf": [batch, *files]}
    name = {"type": "string", "enum": clients}
    away = {"type": "array", "items": name, "uniqueItems": True, "maxItems": max(0, len(clients) - 1)}
    return {"Query": query, "Queries": batch, "Away": away}


def body(many: bool, skips: bool, mixes: bool) -> dict[str, Any]:
    """`openapi_extra` of an operation that takes a query, or a batch. What of it depends on the models is among
    `parts`."""
    key = "queries" if many else "query"
    properties: dict[str, Any] = {key: {"$ref": f"#/components/schemas/{key.capitalize()}"}}
    if skips:
        properties["away"] = {"$ref": "#/components/schemas/Away"}
    if mixes:
        properties["top_k"] = {"type": "integer", "minimum": 0, "maximum": MOST_MIXED, "description":
                               "mix the answers of so many likeliest clients, weighted; 0: one client answers; more "
                               "than there are: all do"}  # fmt: skip
    schema = {"type": "object", "properties": properties, "required": [key], "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
