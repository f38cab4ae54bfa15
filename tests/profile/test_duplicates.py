"""Rows written again: found exact, with a jitter, coded anew and shuffled; and chance is not taken for a fault."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.profile.sick import Sick, sick

Array = NDArray[Any]
RNG = np.random.default_rng(7)


def table(rows: int, columns: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)).astype("f")
    return x, (x[:, 0] + 0.5 * rng.normal(size=rows) > 0).astype(int)


def joined(parts: dict[str, tuple[Array, Array]], **keys: Any) -> Federation:
    x, y = (np.concatenate([p[k] for p in parts.values()]) for k in (0, 1))
    names = [name for name, p in parts.items() for _ in p[1]]
    return Federation.from_arrays(torch.tensor(x), torch.tensor(y), names, **keys)


def written(x: Array, y: Array, times: int, jitter: float, seed: int = 0) -> tuple[Array, Array]:
    """Each row so many times, shuffled."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x) * times)
    again = np.repeat(x, times, 0)
    return (again + jitter * rng.normal(size=again.shape)).astype(x.dtype)[order], np.repeat(y, times)[order]


def only(found: Sick, kind: str, client: str) -> Any:
    (f,) = [f for f in found.findings if f.kind == kind and f.client == client]
    return f


@pytest.mark.parametrize("jitter", [0, 1e-6, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("columns", [4, 20])
def test_a_client_whose_rows_are_written_30_times(columns: int, jitter: float) -> None:
    x, y = table(200, columns, 1)
    fed = joined({"a": table(300, columns, 2), "sick": written(x, y, 30, jitter), "z": table(250, columns, 3)})
    found = sick(fed)
    assert found.clients["sick"].effective == pytest.approx(200, rel=0.02)
    assert found.clients["sick"].exact + found.clients["sick"].near == pytest.approx(5800, rel=0.001)
    assert (found.clients["a"].effective, found.clients["z"].effective) == (300, 250)
    f = only(found, "copied rows", "sick")
    assert f.severity == "severe"
    assert f.number == pytest.approx(5800, rel=0.001)
    assert "6,000 rows at sick are" in f.sentence
    assert "about 30 times" in f.sentence
    assert "drop the copies at sick" in f.mend
    assert ("weighting: {by: effective}" in f.mend) == (jitter == 0)
    assert only(found, "test rows that are trained on", "sick").severity == "severe"
    assert {f.client for f in found.findings if f.severity != "note"} == {"sick"}


@pytest.mark.parametrize("jitter", [0, 1e-3])
@pytest.mark.parametrize(("columns", "share"), [(3, 0.5), (8, 0.1), (8, 0.5)])
def test_a_table_of_few_possible_values_written_30_times_has_its_own_number_of_rows(
    columns: int, share: float, jitter: float
) -> None:
    """Rows that chance made equal count: 400 rows of three yes/no columns are 400 rows and not 8."""
    rng = np.random.default_rng(columns)
    x, y = (rng.random((400, columns)) < share).astype("f"), rng.integers(0, 2, 400)
    clean = sick(joined({"a": (x, y), "b": (x[::-1].copy(), y)}))
    assert {c.effective for c in clean.clients.values()} == {400}
    assert not [f for f in clean.findings if f.severity == "severe"]
    again = sick(joined({"a": written(x, y, 30, jitter), "b": (x, y)}))
    assert again.clients["a"].effective == pytest.approx(400, rel=0.02)
    assert again.clients["a"].fault
    assert again.clients["b"].effective == 400


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_some_rows_written_twice_or_more(share: float) -> None:
    x, y = table(1000, 6, 5)
    more = np.random.default_rng(0).permutation(1000)[: int(1000 * share)]
    fed = joined({"a": (np.concatenate([x, x[more]]), np.concatenate([y, y[more]])), "b": table(500, 6, 6)})
    found = sick(fed)
    assert found.clients["a"].exact == len(more)
    assert found.clients["a"].effective == 1000
    f = only(found, "copied rows", "a")
    assert f.severity == ("severe" if share > 0.05 else "warning")
    copies = set(f.rows)
    assert len(copies) == len(more)
    first = {fed.x[i].numpy().tobytes() for i in range(len(fed.x)) if i not in copies}
    assert all(fed.x[i].numpy().tobytes() in first for i in copies)


def coded_again(image: Array, quality: int) -> Array:
    image_module = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image_module.fromarray(image).save(file, "JPEG", quality=quality)
    return np.array(image_module.open(file))


def test_images_coded_again_30_times() -> None:
    digits = load_federation("bundled:digits")
    small = (digits.x[digits.train[1]][:80, 0] * 255).round().byte().numpy()
    big = small.repeat(4, 1).repeat(4, 2)
    rng = np.random.default_rng(0)
    again = np.stack([coded_again(i, int(rng.integers(60, 96))) for i in big for _ in range(30)])
    order = rng.permutation(len(again))
    label = digits.y[digits.train[1]][:80].numpy()
    other = (digits.x[digits.train[4]][:, 0] * 255).round().byte().numpy().repeat(4, 1).repeat(4, 2)
    fed = joined({
        "sick": (again[order][:, None], np.repeat(label, 30)[order]),
        "well": (other[:, None], digits.y[digits.train[4]].numpy()),
    })  # fmt: skip
    assert fed.x.dtype == torch.uint8
    found = sick(fed)
    assert found.clients["sick"].effective == pytest.approx(80, rel=0.02)
    assert found.clients["sick"].near > 0
    assert found.clients["well"].effective == len(other)
    assert only(found, "copied rows", "sick").severity == "severe"


@pytest.mark.parametrize("jitter", [0, 1e-4, 1e-3])
def test_rows_of_one_clients_training_in_anothers_test(jitter: float) -> None:
    a, b = table(400, 8, 8), table(300, 8, 9)
    fed = joined({"a": a, "b": b, "c": table(300, 8, 10)})
    at, into = fed.train[0][:40], fed.test[1][:40]
    x, y = fed.x.clone(), fed.y.clone()
    x[into] = x[at] + jitter * torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
    y[into] = y[at]
    found = sick(Federation(**{**vars(fed), "x": x, "y": y}))
    f = only(found, "test rows that another client trains on", "b")
    assert (f.others, f.severity) == (("a",), "severe")
    assert f.number == 40 if jitter == 0 else f.number >= 38
    assert set(f.rows) <= set(into.tolist())
    assert "training rows at a" in f.sentence
    assert f in found.leaks
    assert not [g for g in found.findings if "c" in (g.client, *g.others)]
    assert found.clients["a"].effective == 400


def test_rows_of_two_clients_are_not_looked_for_where_hashes_may_not_leave() -> None:
    x, y = table(200, 6, 1)
    fed = joined({"a": (x, y), "b": (x, y)})
    assert only(sick(fed), "rows at two clients", "a").number == 200
    without = sick(fed, shared_rows=False)
    assert not without.findings
    assert "hashes" not in without.sent["a"]


def test_equal_readings_at_other_times_are_frozen_and_at_the_same_time_copies() -> None:
    x, y = table(500, 5, 3)
    x[100:150] = x[99]
    y[100:150] = y[99]
    still = sick(joined({"a": (x, y), "b": table(300, 5, 4)}, time=torch.arange(800.0)))
    assert only(still, "frozen readings", "a").number == 50
    assert still.clients["a"].effective == 500
    at = np.concatenate([np.arange(500), np.arange(50), np.arange(300)])
    again = joined(
        {"a": (np.concatenate([x, x[:50]]), np.concatenate([y, y[:50]])), "b": table(300, 5, 4)},
        time=torch.tensor(at).double(),
    )
    found = sick(again)
    assert found.clients["a"].exact == 50
    assert found.clients["a"].effective == 500


def test_a_federation_of_any_order_has_the_same_copies() -> None:
    x, y = table(100, 6, 1)
    parts = {"a": written(x, y, 5, 1e-3), "b": table(150, 6, 2)}
    one, other = sick(joined(parts)), sick(joined(dict(reversed(parts.items()))))
    assert one.clients == other.clients
    assert [f.sentence for f in one.findings] == [f.sentence for f in other.findings]


def test_smooth_series_of_close_values_are_no_copies() -> None:
    """A slow wave is read often: each row is close to the next, and none is a copy."""
    t = np.linspace(0, 20, 4000)[:, None]
    x = np.sin(t * np.arange(1, 6)).astype("f")
    found = sick(joined({"a": (x, (x[:, 0] > 0).astype(int)), "b": table(300, 5, 4)}))
    assert found.clients["a"].near == 0
    assert found.clients["a"].effective == 4000


def test_one_row_that_differs_in_a_rare_flag_does_not_excuse_copies() -> None:
    x, y = table(400, 6, 3)
    x[:, 5] = np.arange(400) % 100 == 0
    x[399], y[399] = x[0], y[0]
    x[399, 5] = 0  # all as row 0 but the flag
    x[396:399], y[396:399] = x[10:13], y[10:13]
    found = sick(joined({"a": (x, y), "b": table(300, 6, 4)}))
    assert found.clients["a"].fault
    assert found.clients["a"].effective == 397


def few_columns(kind: str, rows: int, rng: np.random.Generator) -> Array:
    """Independent rows whose columns belong together."""
    z = rng.normal(size=(rows, 4))
    year, group = rng.uniform(0, 2 * np.pi, rows), rng.integers(0, 5, rows)
    warm = 12 + 10 * np.sin(year) + 2 * z[:, 0]
    kinds: dict[str, Array] = {
        "seasonal": np.c_[warm, 60 - warm + 8 * z[:, 1], np.exp(z[:, 2] / 2)],
        "correlated": np.c_[z[:, 0], z[:, 1], z[:, 0] + z[:, 1] + z[:, 2] / 10, z[:, 0] - z[:, 1] + z[:, 3] / 10],
        "clustered": 3 * np.random.default_rng(99).normal(size=(5, 4))[group] + 0.3 * z,
        "two": z[:, :2],
    }
    return kinds[kind].astype("f")


BETWEEN = ("rows at two clients", "test rows that another client trains on")


@pytest.mark.parametrize("beside", ["label", "time", "number"])
@pytest.mark.parametrize("kind", ["seasonal", "correlated", "clustered", "two"])
def test_rows_of_few_columns_that_come_near_are_no_copies(kind: str, beside: str) -> None:
    """Also where all rows have times or numbers to predict of their own, so that no two of a client share them."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = few_columns(kind, 1218, rng)
        y = x[:, 0] - x[:, 0].mean() + 0.3 * x[:, 0].std() * rng.normal(size=1218)
        names = [name for name, n in {"a": 500, "b": 400, "c": 300, "d": 18}.items() for _ in range(n)]
        fed = Federation.from_arrays(
            torch.tensor(x), torch.tensor(y).float() if beside == "number" else torch.tensor(y > 0).long(), names,
            time=torch.tensor(rng.random(1218)) if beside == "time" else None,
        )  # fmt: skip
        assert not [f.sentence for f in sick(fed).findings if f.kind in BETWEEN]


@pytest.mark.parametrize("jitter", [0, 1e-4, 1e-3])
@pytest.mark.parametrize(("kind", "copies"), [("correlated", 80), ("clustered", 60)])
def test_copies_at_another_client_are_told_from_rows_of_few_columns_that_come_near(
    kind: str, copies: int, jitter: float
) -> None:
    rng = np.random.default_rng(3)
    x = few_columns(kind, 1200, rng)
    x[400 : 400 + copies] = x[:copies] + jitter * x.std(0) * rng.normal(size=(copies, 4))
    fed = Federation.from_arrays(
        torch.tensor(x), torch.tensor(x[:, 0] > x[:, 0].mean()).long(), ["a"] * 400 + ["b"] * 400 + ["c"] * 400,
        time=torch.tensor(rng.random(1200)),
    )  # fmt: skip
    found = sick(fed)
    assert 0.9 * copies <= only(found, "rows at two clients", "a").number <= 1.3 * copies
    assert {(f.client, *f.others) for f in found.findings if f.kind in BETWEEN} <= {("a", "b"), ("b", "a")}


def test_rows_that_come_near_do_not_hide_a_few_that_are_equal() -> None:
    rng = np.random.default_rng(5)
    x = few_columns("two", 1000, rng)
    x[500:506] = x[:6]
    found = sick(Federation.from_arrays(torch.tensor(x), torch.tensor(x[:, 0] > 0).long(), ["a"] * 500 + ["b"] * 500))
    f = only(found, "rows at two clients", "a")
    assert (f.number, len(f.rows), f.severity) == (6, 6, "warning")
    assert "6 rows (6 equal, 0 nearly so)" in f.sentence


def test_a_single_equal_row_is_a_note_at_a_client_and_between_two() -> None:
    x, y = table(700, 6, 4)
    x[1], y[1] = x[0], y[0]
    x[400], y[400] = x[2], y[2]
    found = sick(joined({"a": (x[:300], y[:300]), "b": (x[300:], y[300:])}))
    assert only(found, "copied rows", "a").number == only(found, "rows at two clients", "a").number == 1
    assert {f.severity for f in found.findings} == {"note"}


def test_two_of_a_few_rows_that_lie_near_are_no_copies_and_ten_with_a_jitter_are() -> None:
    """Of clients of 30 rows some have two near each other, and none a little farther apart."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        parts = {f"{k}": table(30, 3, 100 * seed + k) for k in range(8)}
        assert not [f.sentence for f in sick(joined(parts)).findings if "few rows" not in f.kind]
        x, y = table(200, 6, seed)
        x[190:], y[190:] = x[:10] + 0.01 * rng.normal(size=(10, 6)), y[:10]
        found = sick(joined({"a": (x, y), "b": table(200, 6, 50 + seed)}))
        assert found.clients["a"].effective == pytest.approx(190, abs=1)
        assert found.clients["b"].effective == 200
