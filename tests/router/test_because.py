"""Why a query looks like one client's: the columns that say so, planted."""

import pyarrow as pa
import torch
from torch import Tensor

from fedroute.data.table import TableSchema
from fedroute.router.because import because, unseen
from fedroute.router.routed import Routed
from fedroute.router.scores import Decision

SCHEMA = TableSchema.fit(
    pa.table({"age": [20.0, 40.0, 60.0, None], "dose": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "b", "a", "b"]}),
    torch.arange(4),
)
MEAN = SCHEMA.encode(
    {"age": [20.0, 40.0, 60.0, None], "dose": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "b", "a", "b"]}
).mean(0)


def asked(**row: object) -> Tensor:
    return SCHEMA.encode([{"age": 40.0, "dose": 2.5, "kind": "a"} | row])


def logits(x: Tensor) -> Tensor:
    """Client 1 has high doses, client 0 gaps in age, client 2 kind b; columns of x: age, dose, age missing, kind."""
    return torch.stack([6 * x[:, 2], 3 * x[:, 1], 4 * (x[:, 3] == 1)], 1).double()


def test_the_column_that_says_it_is_named_with_its_value() -> None:
    x = torch.cat([asked(dose=4.0), asked(age=None), asked(kind="b")])
    found = because(SCHEMA, MEAN, x, logits)
    assert [words.split(", ")[0] for words in found] == ["dose 4", "age missing", "kind b"]
    assert found[0] == "dose 4, age 40"  # that an age is there speaks against client 0


def test_where_nothing_says_anything_nothing_is_said() -> None:
    assert because(SCHEMA, MEAN, asked(), lambda x: torch.zeros(len(x), 3)) == [""]
    assert because(SCHEMA, MEAN, asked(kind="zz"), lambda x: 5.0 * torch.stack([x[:, 3] == 2, x[:, 3] < 0], 1)) == [""]


def test_what_is_no_table_or_too_much_is_left() -> None:
    assert because(None, MEAN, asked(), logits) == []
    assert because(SCHEMA, MEAN, asked()[:0], logits) == []
    assert because(SCHEMA, MEAN, asked().expand(200_001, -1), logits) == []
    assert because(SCHEMA, MEAN, asked(), lambda x: x[:, :1]) == []


def test_columns_with_a_word_that_no_client_has() -> None:
    assert unseen(SCHEMA, torch.cat([asked(kind="a"), asked(kind="zz"), asked(kind=None)])) == ["", "kind", ""]
    assert unseen(None, asked()) == []
    assert unseen(SCHEMA, asked()[:0]) == []


def test_the_reason_of_one_that_is_turned_away_names_them() -> None:
    one = torch.ones(1, dtype=torch.int64)
    decision = Decision(0 * one, torch.ones(1, 2), torch.ones(1), one)

    def routed(refused: bool, **more: list[str]) -> Routed:
        p = torch.tensor([[0.7, 0.3]])
        return Routed(("east", "west"), ("n", "y"), "posterior", decision, p, torch.tensor([refused]), **more)

    new, plain = routed(True, unseen=["kind, sex"]), routed(True, unseen=[""])
    assert new.reason(0, "") == "unlike any client's rows (no client has its kind, sex); the nearest is east"
    assert plain.reason(0, "") == routed(True).reason(0, "") == "unlike any client's rows; the nearest is east"
    assert "no client has" not in routed(False, unseen=["kind"]).reason(0, "")
    both = Routed.together([plain, new])
    assert [row["reason"] for row in both.rows()] == [plain.reason(0, ""), new.reason(0, "")]
