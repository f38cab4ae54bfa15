"""A query as JSON becomes what the table of the training makes of it, to the last bit."""

import json
from typing import Any

import jsonschema_rs
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
SCHEMA = jsonschema_rs.Draft202012Validator(READER.schema())
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


texts = st.one_of(
    st.text(st.sampled_from("0123456789.eE+-_ x\n"), max_size=9), st.text(max_size=4),
    st.sampled_from(["\u0663", "1e30", "1e31", "-1e30", "10e29", "9" * 30, "9" * 31, "1_0", "inf", "nan", "9.99e29",
                     "3.5", "7\n", " NA ", "\u00a0?", "\u00a07", "0x1", "1e-400", ".", "-", "5.", ".5", "-9", ""]),
    st.floats(-1e31, 1e31).map(repr), st.integers(-(10**31), 10**31).map(str),
)  # fmt: skip


@given(st.one_of(texts, st.floats(-1e31, 1e31), st.integers(-(10**31), 10**31), st.booleans(), st.none(), st.just([])))
@settings(max_examples=500, deadline=None)
def test_a_value_is_taken_where_the_schema_takes_it_and_else_refused(value: Any) -> None:
    """Also a number that stands in a text, as it does in a file of text."""
    for column in ("dose", "kind"):
        row = {"age": 1, "dose": 2, "kind": "a", "code": "1"} | {column: value}
        try:
            READER.one(row)
            taken = True
        except Refusal:
            taken = False
        assert taken == SCHEMA.is_valid(row), column


def test_a_number_in_a_text_is_that_number() -> None:
    one: Any = READER.one({"age": "-3.5", "dose": "1.5E3", "kind": "a", "code": 1})
    assert one == READER.one({"age": -3.5, "dose": 1500, "kind": "a", "code": "1"})
    with pytest.raises(Refusal, match=r"query\.age: '1e31' is not a number of at most 1e\+30"):
        READER.one({"age": "1e31", "dose": "3", "kind": "a", "code": "1"})


def test_a_column_may_be_left_out_where_training_filled_it() -> None:
    """`missing_columns: fill`: as `fedroute route` fills it."""
    filling = QueryJson(QueryForm(shape=(6,), table=TABLE.model_copy(update={"optional": True})))
    whole = {"age": None, "dose": 3.0, "kind": None, "code": "1"}
    short = {c: v for c, v in whole.items() if v is not None}
    assert torch.equal(filling.encode([filling.one(short)]), filling.encode([filling.one(whole)]))
    assert filling.schema()["required"] == []
    with pytest.raises(Refusal, match=r"query\.agee: no such column") as e:
        filling.one({"agee": 1, **short})  # nothing is filled for a name that is misspelt
    assert "did you mean age" in e.value.mend
    with pytest.raises(Refusal, match=r"query\.age: is not there"):
        READER.one(short)


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
