"""What a gateway says of itself in OpenAPI is so: schemathesis asks it everything, and nothing is a fault of ours."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import InvalidArgument, Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from fedroute import Router
from fedroute.service.access import make_token
from fedroute.service.answers import Own
from fedroute.service.gateway import make_app, make_site_app
from fedroute.service.serving import Service
from fedroute.service.settings import Settings

EXAMPLES = settings(
    max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)  # fmt: skip
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


def ask_everything(app: FastAPI, token: str = "", method: str = "", excluded: Sequence[Any] = ()) -> Counter[Any]:
    """Every operation, with what it should take and with what it should not: (operation, mode) -> how many cases."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    count: Counter[Any] = Counter()
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if method and operation.method != method:
            continue
        for mode in MODES:

            @EXAMPLES
            @given(operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                count[case.operation.label, mode] += 1  # noqa: B023
                case.call_and_validate(headers=headers, excluded_checks=list(excluded))

            with suppress(Unsatisfiable, InvalidArgument):  # an operation without anything that could be wrong
                ask()
    app.state.close()
    return count


def asked(count: Counter[Any], *paths: str) -> bool:
    """Whether each of these and its batch had many cases of both kinds."""
    return all(count[f"POST /v1/{p}{batch}", mode] >= 10 for p in paths for batch in ("", "/batch") for mode in MODES)


def test_the_gateway_of_a_table(ward_run: Path, router: Router) -> None:
    app = make_app(Service.of_run(ward_run, router=router), Settings(most_queries=8))
    count = ask_everything(app)
    assert asked(count, "route", "predict")
    for path in ("/healthz", "/readyz", "/metrics", "/v1/clients", "/v1/schema", "/v1/router"):
        assert count[f"GET {path}", GenerationMode.POSITIVE]


def test_the_gateway_of_images(digits_run: Path) -> None:
    """Texts that are the base64 of nothing are within the schema, and refused."""
    app = make_app(Service.of_run(digits_run))
    assert asked(ask_everything(app, method="post", excluded=[positive_data_acceptance]), "route", "predict")


def test_the_gateway_of_one_client(router: Router) -> None:
    assert asked(ask_everything(make_site_app(Own.of(router, "east"))), "answer")


def test_a_gateway_with_tokens(ward_run: Path, router: Router, tmp_path: Path) -> None:
    """Without the token, or with another, all of it is 401."""
    token = make_token(tmp_path / "tokens.json", "tester")
    app = make_app(Service.of_run(ward_run, router=router), Settings(tokens=tmp_path / "tokens.json"))
    assert asked(ask_everything(app, token), "route", "predict")
