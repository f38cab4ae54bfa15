"""A site's private trees: whole or not there, of one identity, and torn files are found."""

from pathlib import Path

import pytest
import torch

from fedroute.errors import InputError
from fedroute.federation.store import Memory, Store
from fedroute.tree import Tree, sha256

WHO = {"federation": "f1", "model": "m1", "algorithm": "a1", "client": "north"}


def tree(v: float) -> Tree:
    return {"w": {"a": torch.full((2, 3), v), "n": torch.tensor(int(v))}, "opt": {}}


def store(folder: Path, said: list[str] | None = None, who: dict[str, str] = WHO) -> Store:
    return Store(folder / "private", who, lambda: tree(0.0), (said if said is not None else []).append)


def test_what_is_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    first = store(tmp_path)
    assert sha256(first.get(0).tree) == sha256(tree(0.0))
    for v in (1, 2, 3):
        first.put(v, tree(float(v)))
    again = store(tmp_path)
    assert again.versions() == [1, 2, 3]
    found = again.get(2)
    assert (found.version, found.said, found.tree["opt"]) == (2, "", {})
    assert sha256(found.tree) == sha256(tree(2.0))
    again.put(2, tree(7.0))  # a round done once more
    assert sha256(again.get(2).tree) == sha256(tree(7.0))
    again.prune([1])
    assert again.versions() == [1, 3]


def test_the_layout_in_memory_comes_back(tmp_path: Path) -> None:
    image = torch.arange(48.0).reshape(2, 2, 3, 4).to(memory_format=torch.channels_last)
    store(tmp_path).put(1, {"w": {"k": image}})
    assert store(tmp_path).get(1).tree["w"]["k"].stride() == image.stride()


@pytest.mark.parametrize("part", list(WHO))
def test_another_identity_is_refused_with_the_mend(part: str, tmp_path: Path) -> None:
    store(tmp_path).put(1, tree(1.0))
    with pytest.raises(InputError, match=f"another {part}: '{WHO[part]}', and this is 'other'; move the folder away"):
        store(tmp_path, who=WHO | {part: "other"})
    assert store(tmp_path).versions() == [1]


def test_weights_of_nobody_are_refused(tmp_path: Path) -> None:
    store(tmp_path).put(1, tree(1.0))
    (tmp_path / "private" / "identity.json").unlink()
    with pytest.raises(InputError, match="without identity"):
        store(tmp_path)


@pytest.mark.parametrize("harm", ["cut", "flipped", "gone", "half"])
def test_a_torn_file_is_found_and_the_version_before_taken(harm: str, tmp_path: Path) -> None:
    said: list[str] = []
    first = store(tmp_path, said)
    first.put(1, tree(1.0))
    first.put(2, tree(2.0))
    (file,) = (tmp_path / "private").glob("00000002-*")
    data = bytearray(file.read_bytes())
    if harm == "gone":
        file.unlink()
    elif harm == "half":
        file.write_bytes(b"")
    else:
        data[-1] ^= 1
        file.write_bytes(data[:-5] if harm == "cut" else data)
    found = store(tmp_path, said).get(2)
    assert found.version == 1
    assert sha256(found.tree) == sha256(tree(1.0))
    assert "north: no whole private weights of round 2 on its disk: those of round 1 are taken" in found.said
    assert any("torn" in text for text in said) == (harm != "gone")
    assert store(tmp_path).get(0).version == 0
    for p in (tmp_path / "private").glob("*.safetensors"):
        p.unlink()
    assert "it begins anew" in store(tmp_path).get(2).said


def test_a_kill_while_it_writes_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = store(tmp_path)
    first.put(1, tree(1.0))

    def killed(self: Path, target: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        first.put(2, tree(2.0))
    monkeypatch.undo()
    assert store(tmp_path).versions() == [1]


def test_in_memory_it_is_the_same() -> None:
    memory = Memory(lambda: tree(0.0))
    memory.put(1, tree(1.0))
    memory.put(2, tree(2.0))
    assert sha256(memory.get(1).tree) == sha256(tree(1.0))
    assert memory.get(9).version == 0
    memory.prune([])
    assert memory.versions() == [2]
    memory.clear()
    assert memory.versions() == []
