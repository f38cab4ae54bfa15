"""Every finding that a test of this room makes is also read in Chinese."""

from collections.abc import Iterator, Sequence

import pytest

from fedroute.profile import sick
from fedroute.profile.finding import Finding, worst_first
from tests.profile.languages import differences


@pytest.fixture(autouse=True, scope="package")
def read_in_chinese() -> Iterator[None]:
    def read(findings: Sequence[Finding]) -> tuple[Finding, ...]:
        assert not [d for f in findings for d in differences(f)]
        return worst_first(findings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sick, "worst_first", read)
        yield
