"""A row of a table is known again by its hash, whatever stands around it."""

import pyarrow as pa
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedroute.data.hashes import row_hashes

Cell = tuple[float | None, str | None]
CELLS = st.tuples(
    st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.0, 2.5, float("nan")])), st.sampled_from([None, "", "a", "b"])
)


def table(cells: list[Cell]) -> pa.Table:
    numbers, names = pa.array([c[0] for c in cells], pa.float64()), pa.array([c[1] for c in cells], pa.string())
    return pa.table({"age": numbers, "ward": names})


def plain(cell: Cell) -> tuple[object, object]:
    number = None if cell[0] is None or cell[0] != cell[0] else abs(cell[0])
    return number, cell[1]


@given(st.lists(CELLS, min_size=1, max_size=12))
def test_hashes_are_equal_where_rows_are(cells: list[Cell]) -> None:
    found = row_hashes(table(cells)).tolist()
    for a, one in zip(cells, found, strict=True):
        for b, other in zip(cells, found, strict=True):
            assert (one == other) == (plain(a) == plain(b))


@given(st.lists(CELLS, min_size=1, max_size=8), st.lists(CELLS, max_size=8))
def test_a_hash_does_not_depend_on_the_other_rows_nor_on_how_they_are_held(own: list[Cell], more: list[Cell]) -> None:
    alone = row_hashes(table(own))
    together = row_hashes(pa.concat_tables([table(more), table(own)]))
    assert together.dtype == torch.int64
    assert torch.equal(together[len(more) :], alone)


def test_columns_that_change_places_are_not_the_same() -> None:
    swapped = row_hashes(pa.table({"a": [1.0, 2.0], "b": [2.0, 1.0]}))
    assert swapped[0] != swapped[1]
    assert len(row_hashes(pa.table({"a": pa.array([], pa.float64())}))) == 0
