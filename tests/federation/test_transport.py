"""What may travel: flat, scalars and bytes, and not too much of it."""

import pytest

from fedroute.federation.transport import Payload, Refused, check, size


def test_what_is_flat_passes_as_it_is() -> None:
    payload: Payload = {"a": 1, "b": 0.5, "c": "é", "d": b"xyz", "e": None, "f": True}
    assert check(payload) is payload
    assert size(payload) == 6 + 8 + 8 + 2 + 3 + 8 + 8


@pytest.mark.parametrize("wrong", [[1], "text", {1: 2}, {"a": [1]}, {"a": {"b": 1}}, {"a": object()}, {"a": 1j}, None])
def test_anything_else_is_refused_in_words(wrong: object) -> None:
    with pytest.raises(Refused, match="scalars and bytes"):
        check(wrong)


def test_too_much_is_refused() -> None:
    assert check({"a": bytes(99)}, most=100)
    with pytest.raises(Refused, match="a message of 101 bytes; at most 100"):
        check({"a": bytes(100)}, most=100)
