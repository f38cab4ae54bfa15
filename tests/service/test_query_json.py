"""A query as JSON becomes what the table of the training makes of it, to the last bit."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.data.queries import QueryForm
from fedroute.data.table import Statistics, TableSchema
from fedroute.service.query_json import QueryJson
from fedroute.service.refusal import Refusal

STATS = Statistics(fill=(1.0, -2.0), mean=(0.5, 3.0), scale=(2.0, 1e-3), common=("b", "10"))
TABLE = TableSchema(
    numeric=("age", "dose"), flags=("dose", "kind"), categorical={"kind": ("a", "b"), "code": ("1", "10", "2")},
    federated=STATS,
    clients={"west": Statistics(fill=(9.0, 9.0), mean=(9.0, 9.0), scale=(9.0, 9.0), common=("a", "1"))},
    missing={"age": ("-9",), "code": ("2",)},
)  # fmt: skip
READER = QueryJson(QueryForm(shape=(6,), table=TABLE))
numbers = st.one_of(
    st.none(), st.floats(-1e30, 1e30), st.integers(-(10**12), 10**12), st.booleans(),
    st.sampled_from(["", "?", "NA", "-9", " 7 ", "1e3", "-9.0"]),
)  # fmt: skip
names = st.one_of(
    st.none(), st.sampled_from(["a", "b", " b", "10", "2", "", "nan", "new"]), st.integers(0, 12), st.floats(0, 9)
)
row = st.fixed_dictionaries({"age": numbers, "dose": numbers, "kind": names, "code": names})


@given(st.lists(row, min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_it_is_encoded_as_the_table_encodes(rows: list[dict[str, Any]]) -> None:
    sent = json.loads(json.dumps(rows))
    expected = TABLE.encode([{k: int(v) if isinstance(v, bool) else v for k, v in r.items()} for r in rows])
    assert torch.equal(READER.encode(READER.many(sent, 9)), expected)
    assert torch.equal(READER.encode([READER.one(sent[0])]), expected[:1])


def test_what_a_client_measures_by_is_not_used() -> None:
    one = {"age": 1.0, "dose": 3.0, "kind": "a", "code": "1"}
    assert torch.equal(READER.encode([READER.one(one)]), TABLE.encode([one]))
    assert not torch.equal(READER.encode([READER.one(one)]), TABLE.encode([one], "west"))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e31, "inf", "1e31", [], {}, "seven", 10**400])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(Refusal) as e:
        READER.one({"age": value, "dose": 3.0, "kind": "a", "code": "1"})
    assert (e.value.status, e.value.field) == (422, "query.age")


def test_the_schema_takes_what_the_reader_takes() -> None:
    schema = READER.schema()
    assert schema["required"] == ["age", "dose", "kind", "code"]
    assert schema["additionalProperties"] is False
    assert "known: a, b" in schema["properties"]["kind"]["description"]


@given(st.sampled_from([np.uint8, np.int16, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_]))
def test_arrays_of_every_kind_of_number_are_read(kind: Any) -> None:
    reader = QueryJson(QueryForm(shape=(2, 2)))
    x = np.array([[0, 1], [1, 0]], dtype=kind)
    found = reader.one(x.tolist())
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float32
    assert found.tolist() == [[0, 1], [1, 0]]


def test_channels_may_come_last_or_not_at_all() -> None:
    colour = QueryJson(QueryForm(shape=(3, 2, 4), whole=True))
    x = np.arange(24, dtype=np.uint8).reshape(3, 2, 4)
    for given_ in (x, np.moveaxis(x, 0, -1)):
        assert colour.one(given_.tolist()).tolist() == x.tolist()  # type: ignore[union-attr]
    grey = QueryJson(QueryForm(shape=(1, 2, 4), whole=True))
    assert grey.one(x[0].tolist()).tolist() == x[:1].tolist()  # type: ignore[union-attr]
    assert len(grey.many([x[0].tolist(), x[1].tolist()], 9)) == 2
    with pytest.raises(Refusal, match="shape"):
        colour.one(x[0].tolist())
