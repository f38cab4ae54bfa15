"""Arrays, datasets, the bundled digits, the registry, and what a spec may say."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from fedroute.data import registry
from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.sources import SOURCES
from fedroute.data.spec import Dirichlet, Split, check
from fedroute.errors import InputError


def npz(tmp_path: Path, **arrays: Any) -> dict[str, Any]:
    np.savez(tmp_path / "d.npz", **arrays)
    return {"source": "npz", "path": str(tmp_path / "d.npz")}


def test_npz(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (12, 4, 5), dtype=np.uint8)
    spec = npz(tmp_path, x=x, y=np.arange(12) % 3, who=np.array(["b", "a"] * 6))
    fed = load_federation(spec | {"client": "who", "label_names": ["p", "q", "r"]})
    assert fed.x.shape == (12, 1, 4, 5)
    assert fed.x.dtype == torch.uint8
    assert (fed.clients, fed.labels) == (("a", "b"), ("p", "q", "r"))
    colour = npz(tmp_path, x=np.zeros((6, 4, 5, 3), np.uint8), y=np.array(list("abcabc")))
    assert load_federation(colour | {"partition": {"method": "iid", "clients": 2}}).x.shape == (6, 3, 4, 5)
    numbers = npz(tmp_path, x=np.zeros((6, 2)), y=np.linspace(0, 1, 6), c=np.arange(6) % 2)
    fed = load_federation(numbers | {"client": "c"})
    assert (fed.y.dtype, fed.labels, fed.clients) == (torch.float32, (), ("0", "1"))


def test_npz_whose_clients_need_not_be_named(tmp_path: Path) -> None:
    spec = npz(tmp_path, x=np.zeros((6, 2)), y=np.arange(6) % 2, client=np.array(["b", "a"] * 3))
    assert load_federation(spec).clients == ("a", "b")
    dealt = load_federation(spec | {"partition": {"method": "iid", "clients": 3}})  # which then makes the clients
    assert len(dealt.clients) == 3


def test_npz_that_is_wrong(tmp_path: Path) -> None:
    dealt = {"partition": {"method": "iid", "clients": 2}}
    with pytest.raises(InputError, match=r"d\.npz: no array 'y' \(federation.y\)"):
        load_federation(npz(tmp_path, x=np.zeros((4, 2)), Y=np.zeros(4)) | dealt)
    with pytest.raises(InputError, match="y needs one value for each of the 4 rows"):
        load_federation(npz(tmp_path, x=np.zeros((4, 2)), y=np.zeros(3)) | dealt)
    with pytest.raises(InputError, match="holds Python objects"):
        load_federation(npz(tmp_path, x=np.array([{}, {}], dtype=object), y=np.zeros(2)) | dealt)
    with pytest.raises(InputError, match="NaN or Inf in row 1"):
        load_federation(npz(tmp_path, x=np.array([[0.0], [np.nan]]), y=np.zeros(2)) | dealt)
    (tmp_path / "d.npz").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(InputError, match="cannot be read"):
        load_federation({"source": "npz", "path": str(tmp_path / "d.npz")} | dealt)


class Named(torch.utils.data.Dataset[dict[str, Any]]):
    """Dicts with PIL images and names, as Hugging Face gives them."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, i: int) -> dict[str, Any]:
        from PIL import Image

        return {"img": Image.new("RGB", (3, 2), (i, 0, 0)), "what": "pqr"[i % 3], "site": f"s{i % 2}"}


def test_any_map_style_dataset() -> None:
    x, y = torch.rand(20, 3), torch.arange(20) % 4 + 5
    fed = Federation.from_dataset(TensorDataset(x, y), ["a", "b"] * 10, split=Split(test=0.5))
    assert torch.equal(fed.x, x)
    assert fed.labels == ("5", "6", "7", "8")
    assert fed.y.tolist() == [i % 4 for i in range(20)]
    by_item = Federation.from_dataset(TensorDataset(x, y), lambda item: "hi" if item[1] > 6 else "lo")
    assert by_item.clients == ("hi", "lo")
    dealt = Federation.from_dataset(TensorDataset(x, y), partition=Dirichlet(clients=3, alpha=0.5))
    assert len(dealt.clients) == 3
    pytest.importorskip("PIL")
    named = Federation.from_dataset(Named(), "site", x="img", y="what")
    assert named.x.shape == (9, 3, 2, 3)
    assert named.x[:, 0, 0, 0].tolist() == list(range(9))
    assert (named.clients, named.labels) == (("s0", "s1"), ("p", "q", "r"))


def test_datasets_that_are_wrong() -> None:
    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    with pytest.raises(InputError, match="give a map-style dataset"):
        Federation.from_dataset(Endless(), ["a"])
    data = TensorDataset(torch.zeros(4, 1000), torch.zeros(4))
    with pytest.raises(InputError, match="more than 100 bytes"):
        Federation.from_dataset(data, ["a"] * 4, bound=100)
    with pytest.raises(InputError, match="name x="):
        Federation.from_dataset(Named(), "site")
    with pytest.raises(InputError, match="must agree"):
        Federation.from_dataset(data, ["a"] * 3)
    ragged: Any = [(torch.zeros(2), 0), (torch.zeros(3), 1)]
    with pytest.raises(InputError, match=r"row 1 is \(3,\)"):
        Federation.from_dataset(ragged, ["a", "b"])


def digest(fed: Federation) -> str:
    h = hashlib.sha256(fed.x.numpy().tobytes() + fed.y.numpy().tobytes())
    for part in (*fed.train, *fed.validation, *fed.test):
        h.update(part.numpy().tobytes())
    return h.hexdigest()


def test_bundled_digits_are_six_offices_that_differ() -> None:
    fed = load_federation("bundled:digits")
    assert fed.x.shape == (1797, 1, 8, 8)
    assert 0 <= float(fed.x.min()) <= float(fed.x.max()) <= 1
    assert fed.clients == ("archive", "bank", "clinic", "library", "post_office", "school")
    assert fed.labels == tuple("0123456789")
    assert int(fed.sizes().min()) >= 60
    mix = torch.stack([torch.bincount(fed.y[i], minlength=10) / len(i) for i in fed.train])
    distance = [(mix[i] - mix[j]).abs().sum() / 2 for i in range(6) for j in range(i)]
    assert 0.3 < float(torch.stack(distance).mean()) < 0.8  # label skew (total variation)
    plain = load_federation({"source": "bundled", "name": "digits", "partition": {"method": "iid", "clients": 6}})
    owner = fed.owner()
    for i, c in enumerate(fed.clients):  # the bank alone scans as it is
        assert torch.equal(fed.x[owner == i], plain.x[owner == i]) == (c == "bank")


def test_a_seed_makes_another_split_of_the_same_rows() -> None:
    one, again, other = (load_federation("bundled:digits", seed) for seed in (0, 0, 1))
    assert digest(one) == digest(again) != digest(other)
    assert torch.equal(one.x, other.x)


def test_shift_and_concept_in_a_spec() -> None:
    spec = {"source": "bundled", "name": "digits", "partition": {"method": "iid", "clients": 4}}
    plain = load_federation(spec)
    moved = load_federation(spec | {"shift": {"method": "rotation"}, "concept": {"clients": ["client_1"]}})
    for i in range(4):
        rows = plain.train[i]
        assert torch.equal(rows, moved.train[i])  # the split is by the labels before
        assert not torch.allclose(plain.x[rows], moved.x[rows])
        assert torch.equal(plain.y[rows], moved.y[rows]) == (i != 1)
    assert any("labels change places at client_1" in n for n in moved.notes)


def test_a_yaml_file_and_what_may_be_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(
        "v,w,who,ill\n" + "".join(f"{i % 7},{i % 3},{'ab'[i % 2]},{i % 2}\n" for i in range(40))
    )
    path = tmp_path / "c.yaml"
    path.write_text("federation: {source: csv, path: d.csv, client: who, label: ill}\nmodel: {name: mlp}\n")
    assert load_federation(path).clients == ("a", "b")  # the path starts at the file's folder
    assert load_federation(str(path)).clients == ("a", "b")
    path.write_text("federation: bundled:digits")
    assert len(load_federation(path).clients) == 6
    for text, words in [("model: {}", "has no `federation:` part"), ("a: [", "is not YAML"), ("", "no `federation:`")]:
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            load_federation(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_federation(tmp_path / "none.yaml")
    with pytest.raises(InputError, match=r"federation\.name"):
        load_federation("bundled:digit")


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["federation.source: not given", "parquet"]),
    ({"source": "parket"}, ["federation.source: no 'parket'", "did you mean 'parquet'"]),
    ({"source": "csv", "path": "a"}, ["federation.label: not given"]),
    ({"source": "csv", "path": "a", "label": "y", "drops": []}, ["federation.drops: no such", "mean 'drop'"]),
    ({"source": "bundled", "split": {"tset": 0.2}}, ["federation.split.tset", "did you mean 'test'"]),
    ({"source": "bundled", "split": {"test": 1.5}}, ["federation.split.test", "1.5"]),
    ({"source": "bundled", "split": {"test": 0.6, "validation": 0.4}}, ["federation.split", "nothing to train on"]),
    ({"source": "bundled", "partition": {"clients": 3}}, ["federation.partition.method: not given", "dirichlet"]),
    ({"source": "bundled", "partition": {"method": "dirichle"}}, ["partition.method", "did you mean 'dirichlet'"]),
    ({"source": "bundled", "partition": {"method": "iid", "alpha": 1}}, ["federation.partition.alpha: no such key"]),
    ({"source": "bundled", "partition": {"method": "dirichlet", "alpha": 0}}, ["federation.partition.alpha: 0 "]),
    ({"source": "bundled", "partition": {"method": "time", "clients": 0}}, ["federation.partition.clients: 0"]),
    ({"source": "bundled", "shift": {"method": "colour", "level": "max"}}, ["federation.shift.level", "'max'"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "words"), WRONG, ids=[w[1][0] for w in WRONG])
def test_a_wrong_key_is_named_with_the_nearest_right_one(spec: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as e:
        check(spec)
    for word in words:
        assert word in str(e.value)


def test_every_source_has_a_line_and_a_checked_spec() -> None:
    for name, line in SOURCES.items():
        assert line
        with pytest.raises(InputError) as e:
            check({"source": name, "no_such_key": 1, "split": {"x": 1}})
        assert "federation.source" not in str(e.value)


def test_a_checked_spec_reads_the_same_from_json() -> None:
    spec = {"source": "csv", "path": "a.csv", "client": "c", "label": "y", "label_names": {0: "no", 1: "yes"},
            "missing": {"v": [0, "x"]}, "partition": {"method": "dirichlet"}, "concept": {"clients": 0.5}}  # fmt: skip
    once = check(spec).model_dump(mode="json", exclude_none=True)
    assert check(once).model_dump(mode="json", exclude_none=True) == once


def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str = "https://example.org/") -> bytes:
    """A registry of one set with one file, and folders of its own."""
    data = b"v,who,ill\n" + b"".join(f"{i % 5},{'ab'[i % 2]},{i % 2}\n".encode() for i in range(20))
    sha = hashlib.sha256(data).hexdigest()
    spec = {"source": "csv", "path": "registry:tiny/t.csv", "client": "who", "label": "ill"}
    entry = registry.Known("a tiny set", {"t.csv": sha}, spec, "its maker", url)
    monkeypatch.setattr(registry, "REGISTRY", {"tiny": entry})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDROUTE_DATA", str(tmp_path / "given"))
    (tmp_path / "given" / "tiny").mkdir(parents=True)
    return data


def test_the_registry_takes_the_given_folder_first_and_checks_the_sum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = known(monkeypatch, tmp_path)
    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **k: pytest.fail("fetched though the file is there"))
    file = tmp_path / "given" / "tiny" / "t.csv"
    file.write_bytes(data)
    fed = load_federation("registry:tiny")
    assert fed.clients == ("a", "b")
    again = load_federation({"source": "registry", "name": "tiny", "client": None, "drop": ["who"],
                             "partition": {"method": "iid", "clients": 3}})  # fmt: skip
    assert len(again.clients) == 3
    file.write_bytes(data + b"\n")
    with pytest.raises(InputError, match=r"t\.csv: is not the file that tiny needs .*; replace it"):
        load_federation("registry:tiny")
    with pytest.raises(InputError, match="no data set 'tinny' in the registry; did you mean 'tiny'"):
        load_federation("registry:tinny")
    with pytest.raises(InputError, match=r"federation.drops: no such key; did you mean 'drop'"):
        load_federation({"source": "registry", "name": "tiny", "drops": []})


def test_the_registry_fetches_once_and_says_what_to_do_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import io

    data, asked = known(monkeypatch, tmp_path), list[str]()

    def offline(url: str, timeout: float) -> io.BytesIO:
        raise urllib.error.URLError("no route to host")

    def online(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(data)

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(InputError, match=r"t\.csv is not in \$FEDROUTE_DATA/tiny and cannot be fetched.*put it there"):
        load_federation("registry:tiny")
    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **k: io.BytesIO(b"<html>moved</html>"))
    with pytest.raises(InputError, match="is not the file expected"):
        load_federation("registry:tiny")
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(urllib.request, "urlopen", online)
    for _ in range(2):
        assert load_federation("registry:tiny").clients == ("a", "b")
    assert asked == ["https://example.org/t.csv"]
    known_ = registry.REGISTRY["tiny"]._replace(url="")
    monkeypatch.setattr(registry, "REGISTRY", {"tiny": known_})
    (tmp_path / "cache/fedroute/tiny/t.csv").unlink()
    with pytest.raises(InputError, match=r"its publisher .* has it in another form; put the file with SHA-256"):
        load_federation("registry:tiny")


def test_every_known_set_has_a_spec_that_checks() -> None:
    for name, entry in registry.REGISTRY.items():
        assert check(entry.spec).source in ("csv", "parquet")
        assert all(len(sha) == 64 for sha in entry.files.values()), name
