"""Images written again in another coding are one image, down to 8x8; images that are merely alike are as many as they
are."""

import io
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.fft import dctn, idctn

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.registry import description
from fedroute.profile.near import IMAGES, near_copies, starred
from fedroute.profile.sick import sick
from fedroute.profile.waves import BRIGHT, waves

Array = NDArray[Any]
DATA = Path(os.environ.get("FEDROUTE_DATA", "/nowhere"))


def digits(size: int = 8) -> tuple[Array, Array]:
    """All of the bundled digits, (n, 1, size, size) uint8, and their labels; larger ones by whole factors."""
    fed = load_federation("bundled:digits")
    x = (fed.x * 255).round().byte().numpy()
    return x.repeat(size // 8, 2).repeat(size // 8, 3), fed.y.numpy()


@cache
def loaded(name: str) -> Federation:
    return load_federation(description(name))


def known(name: str, size: int, rows: int = 900) -> tuple[Array, Array]:
    """(n, C, size, size) uint8 of a set of FEDROUTE_DATA, drawn, made smaller by the means of blocks."""
    if not (DATA / name).is_dir():
        pytest.skip(f"FEDROUTE_DATA has no {name}")
    fed = loaded(name)
    at = torch.randperm(len(fed.y), generator=torch.Generator().manual_seed(0))[:rows]
    x = fed.x[at].float() * (1 if fed.x.dtype == torch.uint8 else 255)
    small = torch.nn.functional.adaptive_avg_pool2d(x, size)
    return small.round().clamp(0, 255).byte().numpy(), fed.y[at].numpy()


def coded(image: Array, how: str, rng: np.random.Generator) -> Array:
    """(C, H, W) after a coding: "60" is JPEG of a quality from 60 to 95."""
    if how == "jitter":
        return np.rint(image + rng.normal(size=image.shape)).clip(0, 255).astype(np.uint8)
    image_module = pytest.importorskip("PIL.Image")
    file, plain = io.BytesIO(), image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    if how == "png":
        image_module.fromarray(plain).save(file, "PNG")
    else:
        image_module.fromarray(plain).save(file, "JPEG", quality=int(rng.integers(int(how), 96)))
    again = np.array(image_module.open(file))
    return again[None] if again.ndim == 2 else again.transpose(2, 0, 1)


def federation(x: Array, y: Array, sick_ones: Array, how: str, seed: int) -> Federation:
    """Client "sick" has those images, each coded 30 times, shuffled; three others have 150 each."""
    rng = np.random.default_rng(seed)
    rest = rng.permutation(np.setdiff1d(np.arange(len(x)), sick_ones))[:450]
    again = np.stack([coded(x[i], how, rng) for i in sick_ones for _ in range(30)])
    order = rng.permutation(len(again))
    names = ["sick"] * len(again) + [f"well {i % 3}" for i in range(len(rest))]
    images = np.concatenate([again[order], x[rest]])
    labels = np.concatenate([np.repeat(y[sick_ones], 30)[order], y[rest]])
    return Federation.from_arrays(torch.tensor(images), torch.tensor(labels.astype(np.int64)), names)


def judged(x: Array, y: Array, how: str, seed: int = 0, images: int = 50) -> tuple[int, list[int]]:
    """(how many images the sick client has, rows that the others are said to have too many)."""
    some = np.random.default_rng(seed).permutation(len(x))[:images]
    found = sick(federation(x, y, some, how, seed))
    assert [f.severity for f in found.findings if f.kind == "copied rows"] == ["severe"]
    return found.clients["sick"].effective, [
        c.rows - c.effective for name, c in found.clients.items() if name != "sick"
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["60", "75", "png", "jitter"])
@pytest.mark.parametrize("size", [8, 16])
def test_digits_coded_again_30_times_are_as_many_as_they_were(size: int, how: str) -> None:
    effective, accused = judged(*digits(size), how)
    assert effective == pytest.approx(50, abs=1)
    assert accused == [0, 0, 0]


@pytest.mark.parametrize("how", ["60", "75"])
@pytest.mark.parametrize(("name", "size"), [("digits4", 16), ("digits4", 28), ("cifar10", 32), ("cifar10", 8)])
def test_other_images_coded_again_30_times(name: str, size: int, how: str) -> None:
    effective, accused = judged(*known(name, size), how)
    assert effective == pytest.approx(50, abs=1)
    assert accused == [0, 0, 0]


@pytest.mark.parametrize("qualities", [(60, 65, 70, 75, 80, 85, 90, 95), (60, 75, 90), (60, 90), (75,)])
@pytest.mark.parametrize("size", [8, 16])
def test_copies_of_few_qualities_that_are_equal_three_times_and_more(size: int, qualities: tuple[int, ...]) -> None:
    """Each coding of an image is there equally often: that does not make it an image of its own."""
    x, y = digits(size)
    rng = np.random.default_rng(0)
    some = rng.permutation(len(x))[:500]
    image_module = pytest.importorskip("PIL.Image")

    def jpeg(image: Array, quality: int) -> Array:
        file = io.BytesIO()
        image_module.fromarray(image[0]).save(file, "JPEG", quality=quality)
        return np.array(image_module.open(file))[None]

    again = np.stack([jpeg(x[i], qualities[k % len(qualities)]) for i in some[:50] for k in range(30)])
    names = ["sick"] * len(again) + ["well"] * 450
    images, labels = np.concatenate([again, x[some[50:]]]), np.concatenate([np.repeat(y[some[:50]], 30), y[some[50:]]])
    found = sick(Federation.from_arrays(torch.tensor(images), torch.tensor(labels), names))
    assert found.clients["sick"].effective == pytest.approx(50, abs=1)
    assert found.clients["well"].effective == 450


def alike(x: Array, y: Array, pairs: int) -> Array:
    """The images of one label that are most alike, two and two."""
    from scipy.spatial.distance import cdist

    flat = x.reshape(len(x), -1).astype(np.float64)
    apart = cdist(flat, flat)
    apart[(y[:, None] != y) | (np.arange(len(y))[:, None] >= np.arange(len(y)))] = np.inf
    chosen = list[int]()
    for at in np.argsort(apart, axis=None)[: 40 * pairs]:
        i, j = divmod(int(at), len(x))
        if len(chosen) < 2 * pairs and i not in chosen and j not in chosen:
            chosen += [i, j]
    return np.array(chosen)


@pytest.mark.parametrize("how", ["75", "png"])
def test_the_most_alike_of_1797_digits_stay_apart_when_each_is_coded_30_times(how: str) -> None:
    """Twelve pairs of twins, closer than copies of quality 60 are, beside 26 others."""
    x, y = digits()
    twins = alike(x, y, 12)
    others = np.setdiff1d(np.random.default_rng(0).permutation(len(x))[:60], twins)[:26]
    found = sick(federation(x, y, np.concatenate([twins, others]), how, 0))
    assert found.clients["sick"].effective == pytest.approx(50, abs=1)


def test_the_most_alike_of_1797_digits_are_no_copies() -> None:
    x, y = digits()
    twins = alike(x, y, 60)
    names = ["a" if i % 2 else "b" for i in range(len(x))]
    for i in twins:
        names[i] = "twins"
    found = sick(Federation.from_arrays(torch.tensor(x), torch.tensor(y), names))
    assert found.clients["twins"].rows == 120
    assert all(c.effective == c.rows for c in found.clients.values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("partition", [{"method": "iid", "clients": 12},
                                       {"method": "dirichlet", "alpha": 0.1, "clients": 8}])  # fmt: skip
def test_images_dealt_anew_are_no_copies(partition: dict[str, Any], seed: int) -> None:
    x, y = digits()
    fed = Federation.from_arrays(torch.tensor(x), torch.tensor(y), partition=partition, seed=seed)
    assert all(c.effective == c.rows for c in sick(fed, seed, shared_rows=False).clients.values())


@pytest.mark.parametrize("name", ["digits4", "cifar10"])
@pytest.mark.parametrize("size", [8, 28])
def test_other_images_are_no_copies(name: str, size: int) -> None:
    x, y = known(name, size, rows=3000)
    fed = Federation.from_arrays(
        torch.tensor(x), torch.tensor(y), partition={"method": "dirichlet", "alpha": 0.3, "clients": 10}
    )
    found = sick(fed, shared_rows=False).clients
    assert all(c.effective >= 0.99 * c.rows for c in found.values())
    assert sum(c.rows - c.effective for c in found.values()) <= 3


def test_some_images_coded_again_and_most_not() -> None:
    x, y = digits()
    rng = np.random.default_rng(0)
    more = rng.permutation(300)[:60]
    again = np.stack([coded(x[i], "75", rng) for i in more for _ in range(2)])
    images = np.concatenate([x[:300], again, x[300:600]])
    labels = np.concatenate([y[:300], np.repeat(y[more], 2), y[300:600]])
    found = sick(Federation.from_arrays(torch.tensor(images), torch.tensor(labels), ["a"] * 420 + ["b"] * 300))
    assert found.clients["a"].effective == pytest.approx(300, rel=0.02)
    assert found.clients["b"].effective == 300


def test_a_chain_of_images_that_turn_into_one_another_is_not_one_image() -> None:
    """From a 0 to a 1 in 24 steps, each written 5 times with a jitter of a fiftieth of a step: next to each other they
    are nearer than coarse codings of one image."""
    x, y = digits()
    a, b = (x[y == label][0].astype(np.float64).reshape(-1) / 255 for label in (0, 1))
    part = np.linspace(0, 1, 25)[:, None]
    rng = np.random.default_rng(0)
    chain = np.repeat((1 - part) * a + part * b, 5, 0)
    step = np.abs(a - b).mean() / 24
    z = waves((chain + step / 50 * rng.normal(size=chain.shape)) / 0.27, (1, 8, 8))
    ones = np.ones(len(z), dtype=np.int64)
    group = near_copies(z, ones.astype(np.uint64), ones, IMAGES, 0).group
    assert len(set(group.tolist())) == 25
    assert all(len(set(five)) == 1 for five in group.reshape(25, 5).tolist())


@pytest.mark.parametrize("rows", [5, 900])
def test_a_star_has_a_row_in_its_middle_and_none_of_another_group(rows: int) -> None:
    """A chain of many small steps is several stars; rows that are written more often are the middle."""
    rng = np.random.default_rng(rows)
    z = np.sort(rng.uniform(0, 1, rows)).astype(np.float32)[:, None] * np.ones((1, 4), dtype=np.float32)
    groups = (np.arange(rows) >= rows // 2).astype(np.int64)
    found = starred(z, np.ones(rows, dtype=np.int64), groups, 0.1, 0)
    assert set(found.tolist()) == set(range(found.max() + 1))
    for star in range(found.max() + 1):
        mine = z[found == star, 0]
        assert np.abs(mine[:, None] - mine).max(1).min() <= 0.1 + 1e-6
        assert len(set(groups[found == star].tolist())) == 1
    line = np.array([[0.0], [0.09], [0.18], [0.27]], dtype=np.float32)
    together = np.zeros(4, dtype=np.int64)
    assert len(set(starred(line, np.array([1, 9, 9, 1]), together, 0.1, 0).tolist())) == 2
    often = starred(line, np.array([1, 1, 9, 2]), together, 0.1, 0)
    assert often[1] == often[2] == often[3] != often[0]


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8), (3, 32, 32), (4, 20), (2, 8, 5)])
def test_noise_in_all_blocks_is_as_strong_in_waves(shape: tuple[int, ...]) -> None:
    width = int(np.prod([*shape[:-2], *(min(8, side) for side in shape[-2:])]))
    noise = np.random.default_rng(0).normal(size=(4000, width))
    assert float((waves(noise, shape).astype(np.float64) ** 2).mean()) == pytest.approx(1, rel=0.03)


def test_what_rounding_to_steps_may_change_is_the_same_in_all_waves() -> None:
    """Half a step of each, which is what the weights are for."""
    rng = np.random.default_rng(0)
    image = rng.uniform(0, 255, (200, 8, 8))
    scale = 0.8  # of the steps, at quality 60
    kept = np.rint(dctn(image, axes=(1, 2), norm="ortho") / (scale * BRIGHT)) * scale * BRIGHT
    again = idctn(kept, axes=(1, 2), norm="ortho")
    change = np.abs(waves((again - image).reshape(200, -1), (8, 8)))
    unit = 1 / np.sqrt((1 / BRIGHT**2.0).mean())
    assert change.max(0) == pytest.approx(np.full(64, scale / 2 * unit), rel=0.05)
