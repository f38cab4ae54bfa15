"""Sums: the same whoever adds them, in whatever order and groups."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.errors import InputError
from fedroute.router.inputs import RouterInput
from fedroute.router.sums import Sums, gather, rows_of
from tests.router.laws import added, federation, gaussian


def close(a: Sums, b: Sums, tolerance: float = 1e-10) -> bool:
    return all(
        torch.allclose(x, y, rtol=tolerance, atol=tolerance)
        for x, y in ((a.n, b.n), (a.total, b.total), (a.second, b.second))
    )


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.randoms(use_true_random=False), st.integers(1, 7))
def test_federated_sums_are_the_pooled_ones(sizes: list[int], random: object, chunk: int) -> None:
    """T22: any order of clients, any groups of them, any chunks."""
    g = torch.Generator().manual_seed(sum(sizes))
    rows = [torch.randn(n, 4, generator=g, dtype=torch.float64) * 3 + 1 for n in sizes]
    one = Sums.of(torch.cat(rows))
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    cut = len(order) // 2
    parts = [Sums.of(rows[i], chunk) for i in order]
    halves = [Sums.together(p) for p in (parts[:cut], parts[cut:]) if p]
    assert close(Sums.together(halves).pooled(), one)
    again = Sums.together(parts)
    assert torch.equal(again.n, torch.tensor([float(len(rows[i])) for i in order], dtype=torch.float64))
    assert torch.allclose(again.within(), sum((s.about_mean() for s in parts), torch.zeros(4, 4)), atol=1e-9)


def test_moments_are_those_of_the_rows() -> None:
    rows = gaussian([50, 20])
    sums = added(rows)
    assert torch.allclose(sums.mean, torch.stack([z.mean(0) for z in rows]), atol=1e-12)
    together = torch.cat(rows)
    assert torch.allclose(sums.about_mean() / 70, together.T.cov(correction=0), atol=1e-12)
    within = sum((z.T.cov(correction=0) * len(z) for z in rows), torch.zeros(3, 3))
    assert torch.allclose(sums.within(), within, atol=1e-10)


def test_an_upload_is_the_upper_triangle() -> None:
    sums = Sums.of(gaussian([40])[0])
    flat = sums.packed()
    assert flat.numel() == 1 + 3 + 6
    assert sums.upload_bytes() == flat.numel() * flat.element_size()
    assert close(Sums.unpacked(flat, 3), sums, 1e-15)
    half = sums.packed(torch.float32)
    assert half.numel() * half.element_size() == sums.upload_bytes(4)
    assert close(Sums.unpacked(half, 3), sums, 1e-5)
    with pytest.raises(ValueError, match="its own"):
        added(gaussian([3, 3])).packed()


def test_groups_of_clients() -> None:
    rows = gaussian([5, 6, 7, 8])
    merged = added(rows).grouped([1, 0, 1, 0], 2)
    assert close(merged, added([torch.cat([rows[1], rows[3]]), torch.cat([rows[0], rows[2]])]))


def test_different_inputs_do_not_add_up() -> None:
    with pytest.raises(InputError, match=r"3 numbers a row and of 2.*same router\.input|2 numbers a row and of 3"):
        Sums.together([Sums.of(torch.zeros(2, 3)), Sums.of(torch.zeros(2, 2))])


def test_gather_reads_each_clients_part_and_no_newcomers() -> None:
    f = federation(gaussian([40, 30, 20]))
    read = RouterInput.of("columns", None, {}, f)
    sums = gather(read, f)
    assert sums.n.tolist() == f.sizes().tolist()
    assert close(sums, added([rows_of(read, f, i) for i in range(3)]))
    assert gather(read, f, "test").n.tolist() == f.sizes("test").tolist()
    late = f.with_newcomers(["c1"])
    assert gather(read, late).n.tolist() == late.training_sizes().tolist()
