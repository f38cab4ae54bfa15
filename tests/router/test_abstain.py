"""Queries unlike anything that a client has are turned down, and hardly any others."""

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.randomness import generator
from fedroute.router.abstain import SCORES, Abstain, abstention, fit_abstain, tolerance
from fedroute.router.inputs import RouterInput
from fedroute.router.lda import fit_lda
from fedroute.router.rules import without
from fedroute.router.scores import Scores
from fedroute.router.sums import Sums
from fedroute.router.typical import SHRINK, Typical
from fedroute.tree import flatten, unflatten

from .worlds import anyhow, normal

WIDTH = 6


class Known(NamedTuple):
    """Three clients, normal about their own means, each with a covariance of its own."""

    mean: Tensor
    root: Tensor

    def rows(self, client: int, n: int, seed: int) -> Tensor:
        return self.mean[client] + normal(generator(seed, "known", client), n, WIDTH) @ self.root[client].T

    def all(self, n: int, seed: int) -> tuple[Tensor, Tensor]:
        owner = torch.arange(3).repeat_interleave(n)
        return torch.cat([self.rows(i, n, seed) for i in range(3)]), owner


def known() -> Known:
    g = generator(0, "known")
    sizes = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
    return Known(4 * normal(g, 3, WIDTH), sizes[:, None, None] * torch.linalg.qr(normal(g, 3, WIDTH, WIDTH)).Q)


def blank(rows: int, clients: int = 3) -> Scores:
    zero = torch.zeros(rows, clients, dtype=torch.float64)
    return Scores(
        zero, torch.full((clients,), 1 / clients).double(), torch.zeros(rows, clients, 2).double() - np.log(2)
    )


def made(n: int = 2000, alpha: float = 0.05) -> Abstain:
    world = known()
    z, owner = world.all(n // 2, 1)
    sums = [Sums.of(world.rows(i, n, 0)) for i in range(3)]
    return fit_abstain(z, blank(len(z)), owner, sums, alpha=alpha)


def test_distances_are_mahalanobis_of_each_clients_own() -> None:
    world = known()
    rows = [world.rows(i, 5000, 0) for i in range(3)]
    t = Typical.of([Sums.of(r) for r in rows])
    z = 3 * normal(generator(2, "queries"), 40, WIDTH)
    for i, r in enumerate(rows):
        off = z - r.mean(0)
        everybodys = sum((torch.cov(r.T, correction=0) for r in rows), torch.zeros(WIDTH, WIDTH)) / 3
        own = (5000 * torch.cov(r.T, correction=0) + WIDTH * everybodys) / (5000 + WIDTH)
        own = own + SHRINK * everybodys.diagonal().mean() * torch.eye(WIDTH).double()
        assert torch.allclose(t.distances(z)[:, i], (off @ torch.linalg.inv(own) * off).sum(1), rtol=1e-9)
    assert torch.allclose(Typical.of([Sums.of(r.flip(0)) for r in rows]).distances(z), t.distances(z), rtol=1e-9)


def test_clients_that_share_a_covariance_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    world = known()
    sums = [Sums.of(world.rows(i, 400, 0)) for i in range(3)]
    z = 3 * normal(generator(2, "queries"), 40, WIDTH)
    monkeypatch.setattr("fedroute.router.typical.MOST", 0)
    t = Typical.of(sums)
    assert t.white.shape == (1, WIDTH, WIDTH)
    merged = Sums.together(sums)
    off = z[:, None] - merged.mean
    shared = merged.within() / merged.n.sum()
    shared = shared + SHRINK * shared.diagonal().mean() * torch.eye(WIDTH).double()
    exact = torch.einsum("bnd,de,bne->bn", off, torch.linalg.inv(shared), off)
    assert torch.allclose(t.distances(z), exact, rtol=1e-9)
    more = t.join(Sums.of(world.rows(0, 50, 3)))
    assert torch.allclose(more.distances(z)[:, :3], t.distances(z), rtol=1e-12)
    assert torch.allclose(more.leave(3).distances(z), t.distances(z), rtol=1e-12)


def test_each_client_turns_down_alike_many_of_its_own() -> None:
    """Though the rows of one scatter fifteen times as widely as those of another."""
    a = made()
    z, owner = known().all(20_000, 5)
    found = abstention(a.refuses(z, blank(len(z))), owner, ["x", "y", "z"])
    assert 0.02 < found["false_abstention"] < 0.05
    assert all(0.02 < v < 0.06 for v in found["by_client"].values())
    low, high = found["interval"]
    assert low < found["false_abstention"] < high


def test_what_is_far_from_everybody_is_turned_down() -> None:
    a = made()
    g = generator(3, "foreign")
    for z in (20 + normal(g, 500, WIDTH), -20 + normal(g, 500, WIDTH), 30 * normal(g, 500, WIDTH)):
        assert float(a.refuses(z, blank(500)).double().mean()) > 0.99
    assert bool(a.refuses(torch.full((2, WIDTH), torch.nan).double(), blank(2)).all())


def test_between_clients_is_nowhere() -> None:
    """The middle of two tight clients is far from both, though it is near the middle of all."""
    world = known()._replace(root=0.2 * torch.eye(WIDTH).double().expand(3, -1, -1))
    z, owner = world.all(500, 1)
    a = fit_abstain(z, blank(len(z)), owner, [Sums.of(world.rows(i, 500, 0)) for i in range(3)])
    middle = world.mean.mean(0) + 0.2 * normal(generator(4, "middle"), 200, WIDTH)
    assert bool(a.refuses(middle, blank(200)).all())


@pytest.mark.parametrize("n", [59, 100, 500, 3000])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_threshold_keeps_its_promise(n: int, alpha: float) -> None:
    """Exactly: k is the least for which more than alpha lie beyond the k-th smallest of n in at most 5 % of draws; that
    is, in which more than n - k of n lie beyond a point that alpha lie beyond."""
    k = tolerance(n, alpha, 0.95)
    assert binom.cdf(n - k, n, alpha) <= 0.05
    assert k == 1 or binom.cdf(n - k + 1, n, alpha) > 0.05


def test_too_few_rows_to_promise_and_shares_that_are_none() -> None:
    assert tolerance(58, 0.05, 0.95) == 58
    assert tolerance(134, 0.05) == tolerance(135, 0.05) - 1 == 134
    assert tolerance(1, 0.05) == 1
    assert tolerance(1000, 0.05, 0.5) > tolerance(1000, 0.06, 0.5)
    for alpha in (0.0, 1.0, -1.0):
        with pytest.raises(InputError, match="is no share"):
            tolerance(10, alpha)


def test_over_many_draws_no_more_than_was_allowed() -> None:
    """Of 200 federations the share of known queries turned down is above alpha in about one of twenty."""
    g = generator(0, "draws")
    over = 0
    for _ in range(200):
        score = torch.randn(300, generator=g, dtype=torch.float64).sort().values
        threshold = float(score[tolerance(300, 0.05, 0.95) - 1])
        over += 0.5 * (1 - torch.erf(torch.tensor(threshold / 2**0.5)).item()) > 0.05
    assert over <= 20


@pytest.mark.parametrize("name", [s for s in SCORES if s != "distance"])
def test_plain_scores_keep_the_promise_too(name: str) -> None:
    s, z = anyhow(6000), torch.zeros(6000, 1)
    seen, fresh = (s._replace(router=s.router[i], heads=s.heads[i]) for i in torch.arange(6000).split([2000, 4000]))
    a = fit_abstain(z[:2000], seen, torch.zeros(2000, dtype=torch.int64), using=[name])
    assert 0.01 < float(a.refuses(z[2000:], fresh).double().mean()) < 0.05


def test_the_scores_by_hand() -> None:
    router = torch.tensor([[2.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    heads = torch.tensor([[[1.0, 0.0]] * 2, [[0.5, 0.5]] * 2], dtype=torch.float64).log()
    s = Scores(router, torch.tensor([0.5, 0.5]).double(), heads)
    z = torch.zeros(2, 1)
    raw = {
        n: fit_abstain(z, s, torch.tensor([0, 1]), using=[n])._score(n, z, s) for n in ("ratio", "entropy", "energy")
    }
    p = 1 / (1 + np.exp(-2))
    assert raw["ratio"].tolist() == pytest.approx([-np.log(2 * p), 0])
    assert raw["entropy"].tolist() == pytest.approx([0, np.log(2)])
    assert raw["energy"].tolist() == pytest.approx([-np.log(1 + np.exp(2)), -np.log(2)])


def test_of_several_scores_one_is_enough_to_be_turned_down() -> None:
    world = known()
    z, owner = world.all(1000, 1)
    s = blank(3000)
    unsure = 0.5 + 0.5 * torch.rand(3000, 1, generator=generator(0, "sure"), dtype=torch.float64)
    s = s._replace(heads=torch.cat([unsure, 1 - unsure], 1)[:, None].expand(-1, 3, -1).log())
    a = fit_abstain(z, s, owner, [Sums.of(world.rows(i, 2000, 0)) for i in range(3)], using=["distance", "entropy"])
    assert 0.02 < float(a.refuses(z, s).double().mean()) < 0.05
    assert bool(a.refuses(z[:5] + 50, s._replace(router=s.router[:5], heads=s.heads[:5])).all())


def test_a_client_that_is_away_makes_its_queries_foreign() -> None:
    a, world = made(), known()
    z = world.rows(1, 300, 9)
    assert float(a.refuses(z, blank(300)).double().mean()) < 0.1
    assert float(a.refuses(z, without(blank(300), [1])).double().mean()) > 0.9
    gone = a.leave(1)
    assert float(gone.refuses(z, blank(300, 2)).double().mean()) > 0.9


def test_who_joins_is_no_longer_foreign_and_nobody_else_is_moved() -> None:
    a, world = made(), known()
    new = 15 + normal(generator(0, "new"), 800, WIDTH)
    assert float(a.refuses(new, blank(800)).double().mean()) > 0.99
    joined = a.join(Sums.of(new[:400]))
    assert float(joined.refuses(new[400:], blank(400, 4)).double().mean()) < 0.15
    assert a.typical is not None
    assert joined.typical is not None
    z, _ = world.all(50, 7)
    assert torch.equal(joined.typical.distances(z)[:, :3], a.typical.distances(z))
    assert torch.equal(joined.leave(3).foreign(z, blank(150)), a.foreign(z, blank(150)))


def test_it_is_stored_and_comes_back() -> None:
    s = anyhow(300, 3, 2)
    z, owner = known().all(100, 1)
    sums = [Sums.of(known().rows(i, 200, 0)) for i in range(3)]
    for using in (["distance"], ["entropy", "distance"], ["ratio"]):
        a = fit_abstain(z, s, owner, sums, using=using)
        back = Abstain.of(unflatten(flatten(a.state(), whole=True)))
        assert back.using == tuple(using)
        assert torch.equal(back.foreign(z, s), a.foreign(z, s))
        assert torch.equal(back.refuses(z, s), a.refuses(z, s))


def test_clients_without_rows_with_one_and_with_all_alike() -> None:
    g = generator(0, "few")
    sums = [
        Sums.of(normal(g, 200, 3)),
        Sums.of(torch.zeros(0, 3)),
        Sums.of(torch.zeros(1, 3)),
        Sums.of(torch.ones(40, 3) * 9),
    ]
    z, owner = torch.cat([normal(g, 50, 3), torch.full((20, 3), 9.0)]), torch.tensor([0] * 50 + [3] * 20)
    a = fit_abstain(z, blank(70, 4), owner, sums)
    d = a.typical.distances(z)  # type: ignore[union-attr]
    assert bool((d[:, 1] == torch.inf).all())
    assert not bool(d.isnan().any())
    assert float(a.refuses(z, blank(70, 4)).double().mean()) < 0.1
    assert bool(a.refuses(torch.full((1, 3), 40.0), blank(1, 4)))


def test_wrong_input() -> None:
    z, owner = known().all(100, 1)
    sums = [Sums.of(z[owner == i]) for i in range(3)]
    with pytest.raises(InputError, match="did you mean distance"):
        fit_abstain(z, blank(300), owner, sums, using=["distanse"])
    with pytest.raises(InputError, match="no score is named"):
        fit_abstain(z, blank(300), owner, sums, using=[])
    with pytest.raises(InputError, match="2 sums for 3 clients"):
        fit_abstain(z, blank(300), owner, sums[:2])
    with pytest.raises(InputError, match="no validation rows"):
        fit_abstain(z[:0], blank(0), owner[:0], sums)
    with pytest.raises(InputError, match="no client has rows"):
        fit_abstain(z, blank(300), owner, [Sums.of(z[:0])] * 3)


def test_of_no_query() -> None:
    a = made()
    assert a.refuses(torch.zeros(0, WIDTH), blank(0)).shape == (0,)
    found = abstention(torch.zeros(0, dtype=torch.bool), torch.zeros(0, dtype=torch.int64), ["x"])
    assert found == {"false_abstention": None, "interval": None, "by_client": {"x": None}}


# four archives of digits, one left out of training

FOLDER = Path(os.environ.get("FEDROUTE_DATA", "")) / "digits4"
ARCHIVES = ("mnist", "optdigits", "pendigits", "semeion")


@cache
def digits() -> tuple[Tensor, Tensor, "np.ndarray[tuple[int], np.dtype[np.str_]]"]:
    import pyarrow.parquet as pq

    t = pq.read_table(FOLDER / "digits.parquet")
    x = np.frombuffer(b"".join(t["image"].to_pylist()), np.uint8).reshape(-1, 1, 28, 28)
    return (
        torch.from_numpy(x.copy()),
        torch.from_numpy(t["label"].to_numpy().astype(np.int64)),
        np.array(t["domain"].to_pylist()),
    )


@pytest.mark.skipif(not (FOLDER / "digits.parquet").exists(), reason="FEDROUTE_DATA has no digits4")
@pytest.mark.parametrize("left_out", ARCHIVES)
def test_digits_of_an_unknown_archive_noise_and_inverted_images_are_turned_down(left_out: str) -> None:
    """95 % of each, and under 5 % of known ones, by a threshold set on validation rows of the known archives alone."""
    x, y, archive = digits()
    kept = torch.from_numpy(archive != left_out)
    names = [str(k) for k in range(10)]
    f = Federation.from_arrays(x[kept], y[kept], archive[kept.numpy()].tolist(), labels=names, seed=0)
    read = RouterInput.of(["style", "histogram"], None, {}, f)
    sums = [Sums.of(read.read(f.x[rows])) for rows in f.train]
    posterior = fit_lda(Sums.together(sums))

    def seen(x: Tensor) -> tuple[Tensor, Scores]:
        z = read.read(x)
        return z, Scores(posterior.logits(z), posterior.prior, torch.zeros(len(z), 3, 0).double())

    held = torch.cat([torch.full((len(rows),), i) for i, rows in enumerate(f.validation)])
    a = fit_abstain(*seen(f.x[torch.cat(f.validation)]), held, sums)
    queries = f.x[torch.cat(f.test)]

    def share(x: Tensor) -> float:
        return float(a.refuses(*seen(x)).double().mean())

    noise = torch.randint(0, 256, (500, 1, 28, 28), generator=generator(0, "noise"), dtype=torch.uint8)
    assert share(queries) < 0.05
    assert share(noise) > 0.95
    assert share(255 - queries[::5]) > 0.95
    assert share(x[~kept][::3]) > 0.95
