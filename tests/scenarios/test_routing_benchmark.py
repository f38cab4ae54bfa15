"""The routing benchmark: what its data are, and that it does what it says on a small federation."""

import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from benchmarks.routing.crop import Cropped, cropped
from benchmarks.routing.evaluate import evaluate, of
from benchmarks.routing.page import PAGE, page
from benchmarks.routing.recipes import archive, cifar100, of_cifar100, sites
from benchmarks.routing.rows import said
from benchmarks.routing.settings import SETTINGS, held_out, published_rows
from benchmarks.routing.train import trained
from fedroute.certificates.rig import federation
from fedroute.data.spec import Dirichlet
from fedroute.errors import InputError
from fedroute.evaluate.predict import predict
from fedroute.randomness import generator

data = pytest.mark.skipif("FEDROUTE_DATA" not in os.environ, reason="FEDROUTE_DATA is not set")


def ramp(rows: int) -> Tensor:
    """Images whose value is the place, from left to right."""
    return torch.linspace(0, 1, 32).expand(rows, 3, 32, 32).contiguous()


def test_a_crop_is_a_part_of_the_image() -> None:
    """Of a ramp a crop is a ramp too, of less height; its area is nine tenths or more."""
    x = cropped(ramp(500), generator(0, "crop test"))
    assert float(x.min()) >= 0
    assert float(x.max()) <= 1
    slope = (x[:, 0, :, 20] - x[:, 0, :, 10]) / 10 * 31
    assert float((slope - slope[:, :1]).abs().max()) < 1e-4
    assert 0.89 < float(slope.min()) < 0.91
    assert float(slope.max()) < 1.0001
    left, right = x[:, 0, 0, 0], 1 - x[:, 0, 0, -1]
    assert abs(float(left.mean() - right.mean())) < 0.005, "crops lie on one side"


def test_crops_depend_on_seed_and_batch_alone() -> None:
    f = federation(torch.rand(20, 3, 32, 32), torch.zeros(20, dtype=torch.int64), [20])
    rows = torch.tensor([3, 1, 7])
    a, b, other = (Cropped.of(f, seed).take(rows)["x"] for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, other)
    assert not torch.equal(a, Cropped.of(f, 0).take(rows.flip(0))["x"].flip(0))
    assert torch.equal(f.take(rows)["x"], f.x[rows])


@data
def test_the_published_partition_is_the_one() -> None:
    if not (Path(os.environ["FEDROUTE_DATA"]) / "cifar10" / "feddrm_partition.parquet").is_file():
        pytest.skip("the partition of the paper's authors is not there")
    rows = published_rows()
    assert [len(r) for r in rows["test"]] == [2389, 2386, 3476, 882, 2359, 3085, 1536, 1891]
    assert sum(map(len, rows["train"])) == 41_996
    assert torch.equal(torch.cat([*rows["train"], *rows["test"]]).sort().values, torch.arange(60_000))


def test_what_is_held_out_of_training_is_a_tenth_and_seeds_draw_it() -> None:
    """A client's test rows are the same for every seed, as are its colours."""
    y = torch.arange(300) % 10
    x = torch.randint(0, 256, (300, 3, 8, 8), generator=generator(0, "images"), dtype=torch.uint8)
    train, test = torch.arange(240).split(30), torch.arange(240, 300).split([8, 8, 8, 8, 7, 7, 7, 7])
    a, b = (held_out("made", x, y, train, test, seed) for seed in (0, 1))
    assert a.sizes("validation").tolist() == [3] * 8
    assert all(torch.equal(p, q) for p, q in zip(a.test, b.test, strict=True))
    assert not torch.equal(torch.cat(a.validation), torch.cat(b.validation))
    assert torch.equal(a.x, b.x)
    assert not torch.equal(a.x, x)


def packed(folder: Path, rows: int = 200) -> None:
    """CIFAR-100's python archive, small."""
    rng = np.random.default_rng(0)
    inside = folder / "cifar-100-python"
    inside.mkdir(parents=True)
    for part in ("train", "test"):
        fine = rng.integers(0, 100, rows)
        made = {
            b"data": rng.integers(0, 256, (rows, 3072), dtype=np.uint8), b"fine_labels": fine.tolist(),
            b"coarse_labels": (fine // 5).tolist(), b"filenames": [b"a.png"] * rows, b"batch_label": b"1",
        }  # fmt: skip
        (inside / part).write_bytes(pickle.dumps(made, protocol=2))
    names = {
        b"fine_label_names": [b"f%d" % k for k in range(100)],
        b"coarse_label_names": [b"c%d" % k for k in range(20)],
    }
    (inside / "meta").write_bytes(pickle.dumps(names, protocol=2))


@pytest.mark.parametrize("how", ["a folder", "an archive"])
def test_cifar100_as_its_publisher_has_it(tmp_path: Path, how: str) -> None:
    packed(tmp_path / "cifar100")
    if how == "an archive":
        inside = tmp_path / "cifar100" / "cifar-100-python"
        with tarfile.open(tmp_path / "cifar100" / "cifar-100-python.tar.gz", "w:gz") as tar:
            tar.add(inside, arcname="cifar-100-python")
        for file in inside.iterdir():
            file.unlink()
    x, y, names = cifar100(tmp_path / "cifar100")
    assert (x.shape, x.dtype) == ((400, 3, 32, 32), torch.uint8)
    assert torch.equal(y["fine"] // 5, y["coarse"])
    assert (len(names["fine"]), names["coarse"][3]) == (100, "c3")


def test_cifar20_is_dealt_by_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path / "cifar100", rows=2000)
    monkeypatch.setenv("FEDROUTE_DATA", str(tmp_path))
    one = Dirichlet(clients=8, alpha=0.3, minimum=10)
    coarse, fine = (of_cifar100(kind, one)(0, tmp_path) for kind in ("coarse", "fine"))
    assert (len(coarse.labels), len(fine.labels)) == (20, 100)
    assert torch.equal(coarse.owner(), fine.owner())
    total = coarse.sizes("train") + coarse.sizes("validation") + coarse.sizes("test")
    assert ((coarse.sizes("test") - 0.3 * total).abs() <= 0.5).all()


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    class Call:
        def __reduce__(self) -> Any:
            return os.getcwd, ()

    packed(tmp_path)
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps(Call()))
    with pytest.raises(InputError, match="an archive of images has no use for it"):
        archive(tmp_path)
    with pytest.raises(InputError, match="is not there"):
        archive(tmp_path / "elsewhere")


def test_fundus_images_of_several_sites(tmp_path: Path) -> None:
    for site, size in (("ACRIMA", 40), ("RIM", 60)):
        for part, count in (("Training", 8), ("Testing", 2)):
            for label in ("Glaucoma", "Normal"):
                folder = tmp_path / site / part / label
                folder.mkdir(parents=True)
                for k in range(count):
                    Image.new("RGB", (size, size), (200, 40 * k % 256, 30)).save(folder / f"{k}.png")
    f = sites(tmp_path, 0)
    assert (f.clients, f.labels) == (("ACRIMA", "RIM"), ("Glaucoma", "Normal"))
    assert f.x.shape == (40, 3, 96, 96)
    assert f.sizes("test").tolist() == [6, 6]
    assert set(f.y[f.train[0]].tolist()) == {0, 1}
    (tmp_path / "RIM" / "Testing" / "Normal" / "0.png").write_text("no image")
    with pytest.raises(InputError, match=r"0\.png: is no image that can be read"):
        sites(tmp_path, 0)
    with pytest.raises(InputError, match="has no images as SITE/Training/CLASS/FILE"):
        sites(tmp_path / "nowhere", 0)


@data
def test_one_pass_says_what_each_model_says_and_the_oracle_is_the_average(tmp_path: Path) -> None:
    f = SETTINGS["heart4"].federation(0, tmp_path)
    t = trained("heart4", "feddrm-0.9", 0, f, tmp_path, say=lambda text: None)
    s = said(t, f)
    for i in range(4):
        own = predict(t.algorithm.predictor(), t.personal(i), f.x).double().log_softmax(1)
        assert float((s.heads[:, i] - own).abs().max()) < 1e-5
    found = evaluate("heart4", "feddrm-0.9", 0, tmp_path, say=lambda text: None)
    hits = [(s.heads[rows, i].argmax(1) == f.y[rows]) for i, rows in enumerate(f.test)]
    average = float(torch.cat(hits).double().mean())
    for one in found["routers"].values():
        assert of(one, "test", "oracle") == average
    again = evaluate("heart4", "feddrm-0.9", 0, tmp_path, say=lambda text: None)
    assert again == found


def test_the_page_says_what_the_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m benchmarks.routing.page`"
