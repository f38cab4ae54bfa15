"""Clients and labels jointly: label shift, for which a router of clients alone has no form."""

import math

import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.router.cells import Cells, fit_cells, gather_cells, sums_by_label
from fedroute.router.inputs import RouterInput
from fedroute.router.lda import fit_lda
from fedroute.router.sums import Sums
from tests.router.laws import federation, gaussian, hit
from tests.router.worlds import World, differing


def sums_of(world: World, rows: int = 20_000, seed: int = 0) -> tuple[Sums, list[tuple[torch.Tensor, torch.Tensor]]]:
    x, owner, y = world.draw(rows, seed)
    parts = [(x[owner == i], y[owner == i]) for i in range(len(world.w))]
    return Sums.together(sums_by_label(*part, world.pi.shape[1]) for part in parts), parts


def test_it_is_the_truth_where_cells_are_gaussian() -> None:
    world = differing(rows_seed := 5)
    sums, _ = sums_of(world, 200_000)
    fit = fit_cells(sums, 4)
    x, owner, _ = world.draw(4000, seed=rows_seed)
    true = world.log_joint(x) + world.w.log()[:, None]
    assert float((fit.cells(x).flatten(1).softmax(1) - true.flatten(1).softmax(1)).abs().mean()) < 2e-3
    assert torch.allclose(fit.of_labels(x).exp(), world.pooled(x).exp(), atol=0.05)
    bayes = hit(true.logsumexp(2), owner)
    assert hit(fit.logits(x), owner) == pytest.approx(bayes, abs=0.01)
    assert hit(fit_lda(sums.grouped([i // 4 for i in range(20)], 5)).logits(x), owner) < bayes - 0.03


def test_marginals_agree() -> None:
    sums, _ = sums_of(differing())
    fit, z = fit_cells(sums, 4), torch.randn(9, 6, dtype=torch.float64)
    joint = fit.cells(z).flatten(1).softmax(1).unflatten(1, (5, 4))
    assert torch.allclose(joint.sum(2), fit.logits(z).softmax(1), atol=1e-12)
    assert torch.allclose(joint.sum(1), fit.of_labels(z).exp(), atol=1e-12)
    assert torch.allclose(fit.prior, sums.n.reshape(5, 4).sum(1) / sums.n.sum())


def test_one_label_is_lda() -> None:
    rows, z = gaussian([60, 30]), torch.randn(9, 3, dtype=torch.float64)
    sums = Sums.together(sums_by_label(r, torch.zeros(len(r), dtype=torch.int64), 1) for r in rows)
    assert torch.allclose(fit_cells(sums, 1).logits(z), fit_lda(sums).logits(z), atol=1e-12)


def test_a_client_joins_and_leaves() -> None:
    """T21: by its counts and means of labels; nobody else's logits change, and a copy gets the same row."""
    sums, parts = sums_of(differing())
    fit, z = fit_cells(sums, 4), torch.randn(9, 6, dtype=torch.float64)
    joined = fit.join(sums_by_label(*parts[2], 4))
    assert torch.equal(joined.logits(z)[:, :5], fit.logits(z))
    assert torch.allclose(joined.logits(z)[:, 5], fit.logits(z)[:, 2], atol=1e-11)
    assert torch.equal(joined.leave(5).logits(z), fit.logits(z))
    assert torch.equal(fit.leave(1).logits(z), fit.logits(z)[:, [0, 2, 3, 4]])
    with pytest.raises(InputError, match="not of whole clients of 4 labels"):
        fit.join(Sums.of(parts[0][0]))


def test_labels_that_a_client_lacks_are_not_there() -> None:
    rows = gaussian([60, 30])
    y = [torch.arange(60) % 2, torch.zeros(30, dtype=torch.int64)]
    fit = fit_cells(Sums.together(sums_by_label(r, k, 3) for r, k in zip(rows, y, strict=True)), 3)
    cells = fit.cells(torch.cat(rows))
    assert bool((cells[:, 1, 1:] == -math.inf).all())
    assert bool((cells[:, :, 2] == -math.inf).all())
    assert bool(fit.logits(torch.cat(rows)).isfinite().all())
    assert torch.equal(Cells.of(fit.state()).logits(rows[0]), fit.logits(rows[0]))


def test_gathered_from_a_federation() -> None:
    f = federation(gaussian([40, 30, 20]), labels=3)
    read = RouterInput.of("columns", None, {}, f)
    sums = gather_cells(read, f)
    assert torch.equal(sums.n.reshape(3, 3), f.label_counts.double())
    assert gather_cells(read, f.with_newcomers(["c1"])).n.reshape(3, 3)[1].tolist() == [0, 0, 0]
    numbers = Federation.from_arrays(f.x, f.x[:, 0], [f.clients[i] for i in f.owner().tolist()])
    with pytest.raises(InputError, match="are no classes; take lda"):
        gather_cells(read, numbers)
