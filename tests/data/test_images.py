"""Folders and columns of images, as cameras and people leave them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedroute.data.load import load_federation
from fedroute.errors import InputError

Image = pytest.importorskip("PIL.Image")
pa = pytest.importorskip("pyarrow")
RNG = np.random.default_rng(0)


def picture(mode: str = "RGB", size: tuple[int, int] = (6, 8), kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of a random picture of (height, width)."""
    shape = size if mode in ("L", "P") else (*size, len(mode))
    out = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8), mode if mode != "P" else "L").convert(mode).save(
        out, kind, **options
    )
    return out.getvalue()


def put(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def folder(root: Path, **keys: Any) -> Any:
    return load_federation({"source": "images", "path": str(root), "split": {"validation": 0}} | keys)


def test_a_messy_folder(tmp_path: Path) -> None:
    """Grey among RGB, endings in any case, a palette, transparency, corrupt and foreign files, other class folders."""
    put(
        tmp_path,
        {
            "north/cat/a.JPG": picture(kind="JPEG"),
            "north/cat/b.png": picture("L"),
            "north/dog/c.Jpeg": picture(kind="JPEG")[:200],
            "north/dog/d.png": picture("RGBA"),
            "north/dog/e.png": b"",
            "south/fox/a.png": picture("P"),
            "south/cat/b.bmp": picture(kind="BMP"),
            "south/cat/Thumbs.db": b"x",
            "south/.DS_Store": b"x",
            "south/cat/._b.bmp": b"x",
        },
    )
    fed = folder(tmp_path)
    assert fed.x.shape == (5, 3, 6, 8)
    assert fed.x.dtype == torch.uint8
    assert fed.clients == ("north", "south")
    assert fed.labels == ("cat", "dog", "fox")
    said = " ".join(fed.notes)
    for word in ("2 images cannot be read", "c.Jpeg", "e.png", "1 grey image ", "1 file that is no image was"):
        assert word in said
    grey = fed.x[1]
    assert torch.equal(grey[0], grey[1])
    rgb = np.asarray(Image.open(tmp_path / "north/cat/a.JPG"))
    assert np.array_equal(fed.x[0].permute(1, 2, 0).numpy(), rgb)
    assert folder(tmp_path, colour="grey").x.shape == (5, 1, 6, 8)


def test_grey_stays_grey_and_16_bits_become_8(tmp_path: Path) -> None:
    wide = io.BytesIO()
    Image.fromarray(np.array([[0, 65535], [32896, 257]], dtype=np.uint16)).save(wide, "PNG")
    put(tmp_path, {"a/p/1.png": wide.getvalue(), "a/q/2.png": picture("L", (2, 2))})
    fed = folder(tmp_path)
    assert fed.x.shape == (2, 1, 2, 2)
    assert fed.x[0, 0].tolist() == [[0, 255], [128, 1]]


def test_a_turned_camera_is_turned_back(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    put(tmp_path, {"a/p/1.png": picture("L", (4, 4)), "a/q/2.png": picture("L", (4, 4))})
    pixels = np.arange(16, dtype=np.uint8).reshape(4, 4)
    Image.fromarray(pixels).save(tmp_path / "a/p/1.png", exif=exif)
    assert np.array_equal(folder(tmp_path).x[0, 0].numpy(), np.rot90(pixels, -1))


def test_sizes_that_differ_are_refused_or_made_alike(tmp_path: Path) -> None:
    put(tmp_path, {"a/p/1.png": picture(), "a/q/2.png": picture(size=(9, 9))})
    with pytest.raises(InputError, match=r"2\.png: is 9 x 9 and .*1\.png is 6 x 8; say `size: \[H, W\]`"):
        folder(tmp_path)
    assert folder(tmp_path, size=[5, 4]).x.shape == (2, 3, 5, 4)


def test_layouts(tmp_path: Path) -> None:
    put(tmp_path, {f"{c}/{i}.png": picture() for c in "pq" for i in range(6)})
    with pytest.raises(InputError, match="layout: class/file"):
        folder(tmp_path)
    fed = folder(tmp_path, layout="class/file", partition={"method": "classes", "clients": 2, "classes": 1})
    assert [len({*fed.y[p].tolist()}) for p in fed.train] == [1, 1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no images"):
        folder(tmp_path / "empty")
    with pytest.raises(InputError, match="wants a folder"):
        folder(tmp_path / "p" / "0.png")
    with pytest.raises(InputError, match="no file"):
        folder(tmp_path / "nowhere")
    put(tmp_path, {"bad/x/p/1.png": b"no"})
    with pytest.raises(InputError, match=r"no image can be read, 1 cannot.*1\.png"):
        folder(tmp_path / "bad")


def column(tmp_path: Path, images: Any, **keys: Any) -> Any:
    from pyarrow import parquet

    n = len(images)
    path = tmp_path / "i.parquet"
    parquet.write_table(pa.table({"image": images, "label": list(range(n)), "site": ["a"] * n}), path)
    spec = {"source": "parquet", "path": str(path), "client": "site", "label": "label", "image": "image"}
    return load_federation(spec | {"split": {"validation": 0, "test": 0}} | keys)


def test_encoded_bytes_in_a_column(tmp_path: Path) -> None:
    pictures = [picture(), b"broken", None, picture(kind="JPEG"), picture("L")]
    fed = column(tmp_path, pa.array(pictures, pa.binary()))
    assert fed.x.shape == (3, 3, 6, 8)
    assert fed.y.tolist() == [0, 3, 4]  # names are kept with their rows
    assert any("2 images cannot be read" in n and "row 2" in n for n in fed.notes)
    hugging_face = pa.array([{"bytes": p, "path": "x"} for p in pictures])
    assert torch.equal(column(tmp_path, hugging_face).x, fed.x)
    with pytest.raises(InputError, match="holds string and not bytes"):
        column(tmp_path, pa.array(["a.png"]))


def test_raw_bytes_in_a_column(tmp_path: Path) -> None:
    raw = RNG.integers(0, 256, (5, 3, 2, 4), dtype=np.uint8)
    images = [r.tobytes() for r in raw]
    expected = torch.from_numpy(raw)
    assert torch.equal(column(tmp_path, pa.array(images, pa.binary()), shape=[3, 2, 4]).x, expected)
    assert torch.equal(column(tmp_path, pa.array(images, pa.binary(24)), shape=[3, 2, 4]).x, expected)
    sliced = pa.array(images, pa.binary())[2:]
    assert torch.equal(column(tmp_path, sliced, shape=[3, 2, 4]).x, expected[2:])
    assert column(tmp_path, pa.array(images, pa.binary()), shape=[6, 4]).x.shape == (5, 1, 6, 4)
    short = column(tmp_path, pa.array([*images, b"x", None], pa.binary()), shape=[3, 2, 4])
    assert torch.equal(short.x, expected)
    assert short.notes == ("2 images do not have 24 bytes and were left out",)
    with pytest.raises(InputError, match=r"has 24 bytes and federation.shape \[5, 5\] needs 25"):
        column(tmp_path, pa.array(images, pa.binary()), shape=[5, 5])


def test_one_number_is_height_and_width(tmp_path: Path) -> None:
    put(tmp_path, {"a/p/1.png": picture(), "a/q/2.png": picture("L", (4, 4))})
    assert torch.equal(folder(tmp_path, size=5).x, folder(tmp_path, size=[5, 5]).x)
    for wrong, said in (
        ([16], r"federation\.size: \[16\] does not fit: give height and width, \[16, 16\]"),
        (0, r"federation\.size\.0: 0 does not fit: .* greater than or equal to 1"),
        (True, r"federation\.size: True does not fit"),
        ([4, 4, 3], "at most 2 items"),
    ):
        with pytest.raises(InputError, match=said):
            folder(tmp_path, size=wrong)
