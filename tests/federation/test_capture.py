"""What comes over the wire of a real federation, frame by frame: nothing in it is of a private weight, nor a row."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from torch import Tensor

pytest.importorskip("nvflare")

from fedroute.federation import kit, wire
from fedroute.federation.lives import wait_for_run
from fedroute.router.spec import RouterSpec
from fedroute.tree import Tree
from tests.federation.capturing import frames
from tests.federation.federations import Real, wait_for
from tests.federation.test_hub import CASES
from tests.federation.test_real_run import SITES, joined, made

PIECE = 24  # bytes of a tensor that are looked for


def tensors(tree: Tree) -> Iterator[Tensor]:
    for v in tree.values():
        if isinstance(v, dict):
            yield from tensors(v)
        elif v.is_floating_point() and v.numel() * v.element_size() >= PIECE and bool(v.count_nonzero()):
            yield v


def pieces(tree: Tree) -> set[bytes]:
    """Of each tensor, as it is, and with fewer and more bits, stretches that say something."""
    found = set[bytes]()
    for t in tensors(tree):
        for form in (t, t.half(), t.float(), t.double()):
            data = form.contiguous().numpy().tobytes()
            found |= {p for i in range(0, len(data) - PIECE + 1, PIECE) if len({*(p := data[i : i + PIECE])}) > 6}
    return found


def holds(wire_bytes: bytes, wanted: set[bytes]) -> list[bytes]:
    return [p for p in wanted if p in wire_bytes]


class Privates:
    """Every version of every private tree that lies at a site, while it trains."""

    def __init__(self, root: Path):
        self.root, self.found, self._over = root, dict[bytes, Tree](), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        for file in self.root.glob("*/runs/*/private/*.safetensors"):
            try:
                data = file.read_bytes()
                if data not in self.found:
                    self.found[data] = wire.decode(data)
            except (OSError, wire.Garbled):  # it was replaced meanwhile
                continue

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self._look()

    def close(self) -> list[Tree]:
        self._over.set()
        self._thread.join()
        self._look()
        return list(self.found.values())


@pytest.mark.parametrize("algorithm", ["pfedme, norm private", "feddrm"])
def test_nothing_private_is_in_what_the_hub_gets(algorithm: str, tmp_path: Path) -> None:
    real, asked = Real(tmp_path), dict[str, Any]()
    privates = Privates(tmp_path)
    try:
        config = made(CASES[algorithm], rounds=3, evaluate_every=3).model_copy(update={"router": RouterSpec()})
        joined(real, config, SITES, lambda: kit.equip_hub(
            real.hub.kit, "tests.federation.capturing.CapturingHub", folder=str(real.hub.root)))  # fmt: skip
        wait_for_run(real.hub, lambda text: None)
        url = f"http://127.0.0.1:{real.gateway}/v1/predict"
        body = {"query": {"age": 61, "pulse": 80.5, "sex": "f", "ward": "a"}}
        wait_for(lambda: httpx.get(url.replace("v1/predict", "readyz")).status_code == 200)
        asked = httpx.post(url, json=body, timeout=60).json()
    finally:
        trees = privates.close()
        real.stop()
    assert "client" in asked
    got = b"".join(frames(real.hub.root))
    assert len(trees) >= len(SITES)
    wanted = set[bytes]().union(*map(pieces, trees))
    assert len(wanted) > 30
    assert holds(got, wanted) == []
    rows = [line for c in SITES for line in (tmp_path / f"{c}.csv").read_text().splitlines()[1:]]
    assert [r for r in rows if r.encode() in got] == []
    # what is looked for would be found: the updates are there in plain bytes, and so would a private tree be
    assert got.count(b'"dw/') >= 3 * len(SITES)
    assert holds(got + wire.encode(trees[0]), pieces(trees[0]))
