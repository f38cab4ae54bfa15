"""What a client's rows become: parts and batches that depend on that client alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.data.batches import batches
from fedroute.data.federation import Federation
from fedroute.data.split import Split, split_rows
from fedroute.errors import InputError
from fedroute.randomness import generator


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(0, 120),
    classes=st.integers(1, 6),
    validation=st.sampled_from([0.0, 0.15, 0.45]),
    test=st.sampled_from([0.0, 0.25, 0.5]),
    by=st.sampled_from(["label", "time"]),
    seed=st.integers(0, 3),
)
def test_the_parts_are_an_exact_cover_with_rounded_sizes(
    n: int, classes: int, validation: float, test: float, by: str, seed: int
) -> None:
    rows = torch.arange(n) * 3 + 1  # the client's rows among others
    y = torch.randint(classes, (400,), generator=generator(seed))
    time = torch.rand(400, generator=generator(seed)).double()
    split = Split.model_validate({"validation": validation, "test": test, "by": by})
    train, val, held = split_rows(rows, y, split, seed, "a", time)
    assert torch.cat([train, val, held]).sort().values.tolist() == rows.tolist()
    if n > 1 and round(n * test) + round(n * validation) < n:
        assert (len(val), len(held)) == (round(n * validation), round(n * test))
    assert n == 0 or len(train) >= 1
    if by == "time" and len(held) and len(val) and len(train):
        assert float(time[held].min()) >= float(time[val].max()) >= float(time[train].max())
    if by == "label":  # each part has the client's label mix, to a row or two per class
        for part in (val, held):
            for k in range(classes):
                share = int((y[rows] == k).sum()) * len(part) / max(n, 1)
                assert abs(int((y[part] == k).sum()) - share) <= 2


def federation(order: list[int], extra: int = 0) -> Federation:
    """Three clients, their blocks of rows listed in this order; `extra` rows more at client c."""
    sizes = {"a": 30, "b": 47, "c": 20 + extra}
    names = [list(sizes)[i] for i in order]
    client = [c for c in names for _ in range(sizes[c])]
    x = torch.cat([torch.arange(sizes[c]).float()[:, None] + 1000 * "abc".index(c) for c in names])
    return Federation.from_arrays(x, (x[:, 0] % 3).long(), client, labels=["p", "q", "r"], seed=5)


def parts_of(fed: Federation, client: str) -> list[list[float]]:
    i = fed.clients.index(client)
    return [fed.x[part[i]].flatten().tolist() for part in (fed.train, fed.validation, fed.test)]


def test_the_order_of_listing_is_irrelevant() -> None:
    one, other = federation([0, 1, 2]), federation([2, 0, 1])
    assert one.clients == other.clients == ("a", "b", "c")
    for c in one.clients:
        assert parts_of(one, c) == parts_of(other, c)


def test_one_clients_rows_leave_the_others_parts_and_batches_unchanged() -> None:
    one, other = federation([2, 0, 1]), federation([2, 0, 1], extra=9)  # c comes first: all other rows move
    assert parts_of(one, "c") != parts_of(other, "c")
    for c in ("a", "b"):
        assert parts_of(one, c) == parts_of(other, c)
        i = one.clients.index(c)

        def drawn(fed: Federation, i: int = i, c: str = c) -> list[list[float]]:
            found = batches(fed.train[i], 4, epochs=2, generator=generator(5, "batches", 3, c))
            return [fed.x[b].flatten().tolist() for b in found]

        assert drawn(one) == drawn(other)


@settings(max_examples=200, deadline=None)
@given(n=st.integers(0, 70), size=st.integers(1, 40), epochs=st.integers(1, 4), whole=st.booleans())
def test_every_epoch_sees_every_row_once(n: int, size: int, epochs: int, whole: bool) -> None:
    rows = torch.arange(n) + 7
    found = batches(rows, size, epochs=epochs, generator=generator(n), whole=whole)
    if n == 0 or (whole and n == 1):
        assert found == []
        return
    assert torch.cat(found).sort().values.tolist() == rows.repeat_interleave(epochs).tolist()
    if whole and size > 1:
        assert min(map(len, found)) >= min(n, 2)
    if not whole:
        assert len(found) == epochs * math.ceil(n / size)


def test_steps_are_drawn_from_passes_one_after_the_other() -> None:
    rows = torch.arange(10)
    by_steps = batches(rows, 4, steps=7, generator=generator(0))
    by_epochs = batches(rows, 4, epochs=3, generator=generator(0))
    assert [b.tolist() for b in by_steps] == [b.tolist() for b in by_epochs][:7]
    with pytest.raises(ValueError, match="one of them"):
        batches(rows, 4, generator=generator(0))


def test_a_thousand_clients_and_single_rows() -> None:
    client = [f"c{i % 1000}" for i in range(1_500)]
    fed = Federation.from_arrays(torch.rand(1_500, 2), torch.arange(1_500) % 2, client)
    assert len(fed.clients) == 1_000
    assert int(fed.sizes().min()) == 1  # a lone row is for training
    assert fed.owner().tolist() == [fed.clients.index(c) for c in client]


def test_wrong_arrays_are_refused_with_the_mend() -> None:
    x, y = torch.rand(4, 2), torch.tensor([0, 1, 2, 1])
    with pytest.raises(InputError, match="must agree"):
        Federation.from_arrays(x, y, ["a"])
    with pytest.raises(InputError, match="codes must be 0 to 1"):
        Federation.from_arrays(x, y, ["a"] * 4, labels=["p", "q"])
    x[2, 1] = torch.nan
    with pytest.raises(InputError, match="NaN or Inf in row 2"):
        Federation.from_arrays(x, y, ["a"] * 4)
    with pytest.raises(InputError, match="no times"):
        Federation.from_arrays(torch.rand(4, 2), y, ["a"] * 4, split=Split(by="time"))


def test_integers_are_classes_of_their_own_names() -> None:
    x, client = torch.rand(6, 2), ["a", "b"] * 3
    for dtype in (torch.int64, torch.int32, torch.uint8):
        fed = Federation.from_arrays(x, torch.tensor([0, 1, 3, 0, 1, 3]).to(dtype), client)
        assert fed.labels == ("0", "1", "2", "3")
        assert fed.y.dtype == torch.int64
        assert int(fed.label_counts.sum()) == int(fed.sizes().sum())
    assert Federation.from_arrays(x, torch.arange(6) % 2, client, labels=("no", "yes")).labels == ("no", "yes")
    assert Federation.from_arrays(x, torch.arange(6) / 2, client).labels == ()
    for y in (torch.arange(6) - 1, torch.arange(6) * 500):
        with pytest.raises(InputError, match=r"class codes are 0, 1, .*y\.float\(\)"):
            Federation.from_arrays(x, y, client)


def test_a_federation_says_itself_in_a_line() -> None:
    x, y = torch.rand(80, 3, 4, 4), torch.arange(80) % 2
    said = repr(Federation.from_arrays(x, y, [f"c{i % 8}" for i in range(80)], name="wards", labels=("ill", "well")))
    assert said == (
        "Federation('wards': 8 clients (c0, c1, c2, c3, c4, ...), rows: train 48, validation 16, test 16, "
        "2 labels (ill, well), x (80, 3, 4, 4))"
    )
