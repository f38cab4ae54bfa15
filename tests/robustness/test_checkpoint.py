"""Checkpoints: what goes in comes out, and what is torn, another's, or does not fit the disk is found and said."""

import hashlib
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedroute.checkpoint import load_newest, save
from fedroute.durable import write
from fedroute.errors import InputError, RunFailed
from fedroute.quarantine import Quarantined
from fedroute.rounds import State
from fedroute.tree import Tree, sha256


def state(rounds: int = 3, clients: int = 4) -> State:
    shared: Tree = {"w": {}, "c": {"fc.weight": torch.randn(2, 3)}}
    privates = dict.fromkeys(range(clients), shared)
    privates[1] = {"w": {"bn.weight": torch.randn(5)}, "c": {}}
    server: Tree = {"w": {"z": torch.randn(4), "a": torch.tensor(7), "e/f": torch.zeros(0, 2)}, "opt": {}}
    return State(
        rounds,
        server,
        privates,
        history=[{"round": rounds, "train_loss": 0.1 + 0.2, "personal": None}],
        quarantined=[Quarantined(1, "north", "w has NaN or Inf")],
        void_rounds=[2],
        up_bytes=10**12,
        down_bytes=5,
        loss=0.3,
        evaluate_every=2,
    )


def same(a: State, b: State) -> bool:
    plain = [{k: v for k, v in vars(s).items() if k not in ("server", "privates")} for s in (a, b)]
    trees = [(sha256(s.server), {i: sha256(p) for i, p in s.privates.items()}) for s in (a, b)]
    return plain[0] == plain[1] and trees[0] == trees[1] and form(a.server) == form(b.server)


def form(tree: Tree) -> object:
    """Keys in their order, empty dicts included, and how each tensor lies in memory."""
    return [(k, form(v) if isinstance(v, dict) else v.stride()) for k, v in tree.items()]


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    before = state()
    save(tmp_path, before, {"seed": "0"})
    after = load_newest(tmp_path, {"seed": "0"})
    assert after is not None
    assert same(before, after)
    assert all(form(before.privates[i]) == form(after.privates[i]) for i in before.privates)
    assert all(type(q) is Quarantined for q in after.quarantined)


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.int32,
]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    t = torch.randint(0, 200, shape).to(draw(st.sampled_from(DTYPES)))
    return t.permute(draw(st.permutations(range(t.ndim))))


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=5)
TREES = st.recursive(
    st.dictionaries(KEYS, tensors(), max_size=3), lambda t: st.dictionaries(KEYS, t | tensors(), max_size=3)
)


@given(server=TREES, privates=st.lists(TREES, max_size=4))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tree_comes_back(server: Tree, privates: list[Tree], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    before = State(1, server, dict(enumerate(privates)))
    save(folder, before, {})
    after = load_newest(folder, {})
    assert after is not None
    for a, b in zip([server, *privates], [after.server, *after.privates.values()], strict=True):
        assert leaves(a) == leaves(b)


def leaves(tree: Tree) -> object:
    """Keys in order, and of each tensor type, shape, layout and bits."""

    def of(t: Tensor) -> object:
        flat = t.contiguous().reshape(-1)
        return str(t.dtype), tuple(t.shape), t.stride() if t.numel() else (), flat.view(torch.uint8).tolist()

    return [(k, leaves(v) if isinstance(v, dict) else of(v)) for k, v in tree.items()]


@pytest.mark.parametrize("kernel", [(5, 5), (1, 1)])
def test_channels_last_weights_stay_channels_last(tmp_path: Path, kernel: tuple[int, int]) -> None:
    w = torch.randn(8, 3, *kernel).to(memory_format=torch.channels_last)
    save(tmp_path, State(1, {"w": {"conv": w}}, {}), {})
    after = load_newest(tmp_path)
    assert after is not None
    back = after.server["w"]["conv"]
    assert torch.equal(w, back)
    assert back.stride() == w.stride()


def test_the_last_two_are_kept_and_nothing_else(tmp_path: Path) -> None:
    for r in (1, 2, 3, 4):
        save(tmp_path, state(r), {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000003-0", "00000004-0"]
    save(tmp_path, state(4), {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000004-0", "00000004-1"]


def test_there_is_no_pickle_and_every_file_is_what_its_name_says(tmp_path: Path) -> None:
    folder = save(tmp_path, state(), {})
    assert {p.suffix for p in folder.iterdir()} == {".safetensors", ".json", ""}
    subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)


def test_clients_that_were_never_trained_cost_nothing(tmp_path: Path) -> None:
    big: Tree = {"w": {"bn": torch.randn(10_000)}}
    few = save(tmp_path / "few", State(1, {}, dict.fromkeys(range(2), big)), {})
    many = save(tmp_path / "many", State(1, {}, dict.fromkeys(range(1000), big)), {})
    assert size(many) - size(few) < 10_000
    assert len(list(many.iterdir())) == len(list(few.iterdir()))
    after = load_newest(tmp_path / "many")
    assert after is not None
    assert after.privates[0] is after.privates[999]


def size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.iterdir())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty, Path.unlink])
@pytest.mark.parametrize("name", ["server.safetensors", "private-0.safetensors", "state.json", "SHA256SUMS"])
def test_a_torn_checkpoint_is_found_and_the_one_before_is_used(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    first = state(1)
    save(tmp_path, first, {})
    damage(save(tmp_path, state(2), {}) / name)
    said: list[str] = []
    found = load_newest(tmp_path, {}, said.append, put_aside=True)
    assert found is not None
    assert same(found, first)
    assert len(said) == 1
    assert "00000002-0: this checkpoint is torn" in said[0]
    # The torn one is not taken for the one before when the run goes on.
    save(tmp_path, state(3), {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000001-0", "00000003-0"]


def test_two_torn_checkpoints_are_both_said_and_the_run_starts_anew(tmp_path: Path) -> None:
    for r in (1, 2):
        cut(save(tmp_path, state(r), {}) / "server.safetensors")
    for p in tmp_path.iterdir():
        cut(p / "server.safetensors")
    said: list[str] = []
    assert load_newest(tmp_path, {}, said.append) is None
    assert len(said) == 2


def test_a_checkpoint_of_another_run_is_refused_by_what_differs(tmp_path: Path) -> None:
    save(tmp_path, state(), {"algorithm": "FedProx(mu=0.1)", "seed": "0"})
    with pytest.raises(InputError, match=r"algorithm was FedProx\(mu=0.1\), is FedProx\(mu=0.2\)") as e:
        load_newest(tmp_path, {"algorithm": "FedProx(mu=0.2)", "seed": "0"})
    assert "seed" not in str(e.value)


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, state(), {})
    text = (folder / "state.json").read_text().replace('"schema": 1', '"schema": 2')
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    digest = hashlib.sha256(text.encode()).hexdigest()
    write(folder / "state.json", text)
    write(folder / "SHA256SUMS", "\n".join(s if "state.json" not in s else f"{digest}  state.json" for s in sums))
    with pytest.raises(InputError, match="schema 2, this fedroute reads 1"):
        load_newest(tmp_path)


LIMITED = """
import resource, sys
from pathlib import Path
import torch
from fedroute.checkpoint import load_newest, save
from fedroute.errors import RunFailed
from fedroute.rounds import State

folder, limits = Path(sys.argv[1]), range(0, int(sys.argv[2]), 97)
w = torch.arange(300.0)
save(folder, State(1, {"w": {"a": w}}, {0: {"w": {"b": w}}}), {})
failed = 0
for limit in limits:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        save(folder, State(2, {"w": {"a": w + 1}}, {0: {"w": {"b": w + 1}}}), {})
    except RunFailed as e:
        assert "not written: the file may not grow" in str(e) and "\\n" not in str(e), e
        failed += 1
    else:
        break
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert [p.name for p in folder.iterdir()] == ["00000001-0"], list(folder.iterdir())
    found = load_newest(folder, {}, lambda text: sys.exit(text))
    assert found.round == 1 and torch.equal(found.server["w"]["a"], w)
assert load_newest(folder).round == 2
print(failed)
"""


def test_a_write_that_the_system_refuses_anywhere_leaves_the_one_before(tmp_path: Path) -> None:
    """Every write of a checkpoint fails in turn, at every hundredth byte of the largest file (RLIMIT_FSIZE)."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    whole = save(tmp_path / "size", State(1, {"w": {"a": torch.arange(300.0)}}, {}), {})
    largest = max(p.stat().st_size for p in whole.iterdir()) * 3
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "c"), str(largest)]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert int(out.stdout) > 10


def test_a_state_that_cannot_be_json_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="plain JSON values"):
        save(tmp_path, State(1, {}, {}, history=[{"round": object()}]), {})
    assert load_newest(tmp_path) is None


def test_a_full_disk_is_said_with_the_file_and_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(RunFailed, match=r"not written: the disk is full \([\d.]+ MB free in "):
        save(tmp_path / "checkpoint", state(), {})
