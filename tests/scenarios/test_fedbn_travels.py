"""FedBN keeps exactly the tensors of normalisation layers at home, whatever these layers are called and wherever they
are: the counts below are by hand."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import fedroute
from fedroute.algorithms.fedbn import FedBN
from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.data.spec import Split
from fedroute.manifest import manifest
from fedroute.models import adopt


class Case(NamedTuple):
    module: nn.Module
    shape: tuple[int, ...]
    travel: int  # tensors that leave
    stay: int


class BasicBlock(nn.Module):
    def __init__(self, inside: int, out: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample: nn.Module | None = None
        if stride != 1 or inside != out:
            self.downsample = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """The usual layout and names (conv1, bn1, layer1.0.conv1, layer2.0.downsample.1, fc), at an eighth of the width."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        widths, inside = (8, 16, 32, 64), 8
        for k, width in enumerate(widths, 1):
            blocks = [BasicBlock(inside, width, 2 if k > 1 else 1), BasicBlock(width, width, 1)]
            self.add_module(f"layer{k}", nn.Sequential(*blocks))
            inside = width
        self.fc = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        for k in range(1, 5):
            x = self.get_submodule(f"layer{k}")(x)
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


class InvertedResidual(nn.Module):
    """A block as in MobileNetV2: expansion, depthwise convolution, projection; its norms are called conv.1, conv.4 and
    conv.7."""

    def __init__(self, channels: int):
        super().__init__()
        wide = 2 * channels
        self.conv = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.conv(x)
        return out


def image_net(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))


CASES = {
    # 1 stem + 16 convolutions in blocks + 3 in shortcuts + fc weight and bias travel; 20 norms of 5 tensors stay
    "resnet18": lambda: Case(ResNet18(), (3, 8, 8), 1 + 16 + 3 + 2, 20 * 5),
    # the stem's weight, three convolutions, fc; four norms
    "mobilenet block": lambda: Case(
        image_net(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU6(), InvertedResidual(6)),
        (3, 8, 8), 1 + 3 + 2, 4 * 5,
    ),
    "sequential": lambda: Case(
        image_net(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()), (3, 8, 8), 2 + 2, 5
    ),
    "batch norm 1d": lambda: Case(
        nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)), (5,), 2 + 2, 5
    ),
    "sync batch norm": lambda: Case(
        nn.SyncBatchNorm.convert_sync_batchnorm(image_net(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())),
        (3, 8, 8), 2 + 2, 5,
    ),
}  # fmt: skip


def federation(shape: tuple[int, ...]) -> Federation:
    """Two clients whose features lie apart."""
    x = torch.randn(32, *shape, generator=torch.Generator().manual_seed(0))
    x[16:] = 3 * x[16:] + 2
    y = torch.arange(32) % 4
    split = Split(validation=0.0, test=0.25)
    return Federation.from_arrays(x, y, ["left"] * 16 + ["right"] * 16, labels=list("abcd"), split=split)


@pytest.mark.parametrize("name", CASES)
def test_only_what_is_no_norm_travels(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        case = CASES[name]()
    norms = {
        f"{n}.{k}"
        for n, m in case.module.named_modules()
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d | nn.SyncBatchNorm)
        for k in m.state_dict()
    }
    entries = manifest(FedBN().bind(Task(*adopt(case.module))))
    assert {e.tensor for e in entries if e.direction == "both" and e.leaves} == set(case.module.state_dict()) - norms
    assert {e.tensor for e in entries if e.direction == "stays" and not e.leaves and not e.down_bytes} == norms
    assert (sum(e.leaves for e in entries), sum(not e.leaves for e in entries)) == (case.travel, case.stay)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", CASES)
def test_norms_differ_and_the_rest_is_one_after_two_rounds(name: str, engine: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        case = CASES[name]()
    run = fedroute.fit(
        federation(case.shape), case.module, "fedbn", rounds=2, batch_size=6, lr=0.05, alone=False,
        engine={"name": engine}, log=lambda text: None,
    )  # fmt: skip
    left, right = run.personal("left"), run.personal("right")
    task = run.algorithm.task
    counts = {k for k in task.norms if k.endswith("num_batches_tracked")}
    for k in task.names:
        if k in counts:
            assert left[k] == right[k] == 4  # two rounds of two batches
        elif k in task.norms:
            assert not torch.equal(left[k], right[k]), k
        else:
            assert torch.equal(left[k], right[k]), k
            assert torch.equal(left[k], run.state.server["w"][k]), k
    assert not set(run.state.server["w"]) & set(task.norms)
    assert all(e.scores["global"] is None for e in run.ledger.entries)
