"""The modules that the zoo is made of.

Memory format: the convolutional nets take their input in torch.channels_last as well as contiguous, and every
convolution, norm and pooling keeps the format it is given. The one copy is `nn.Flatten` after the last pooling of the
CNN and the LeNets: the order of features is that of (C, H, W) in both formats, so that weights mean the same in both.
The ResNets pool to 1x1, where flattening copies nothing."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]  # channels -> a layer that keeps the shape


class Net(nn.Module):
    """head(neck(features(x))).

    features: x (B, ...) -> (B, F), the body; a branch that shares the body (a router's) hangs here.
    neck: (B, F) -> (B, D), the shared layers before the head; the identity in most nets.
    head: one nn.Linear, (B, D) -> (B, outputs); its weights have the role "head"."""

    def __init__(
        self, features: nn.Sequential, width: int, outputs: int, neck: int | None = None, norm: Norm = nn.LayerNorm
    ):
        """width: F. neck: D, of a linear layer with a norm and a ReLU; None for the identity, where D = F."""
        super().__init__()
        self.features = features
        self.neck = nn.Identity() if neck is None else nn.Sequential(*dense([width, neck], norm))
        self.head = nn.Linear(width if neck is None else neck, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.neck(self.features(x)))
        return out


def dense(sizes: Sequence[int], norm: Norm | None = None) -> list[nn.Module]:
    """Linear, norm where there is one, and ReLU, from each size to the next."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        after = [norm(b)] if norm else []
        layers += [nn.Linear(a, b, bias=_has_use(after)), *after, nn.ReLU(inplace=True)]
    return layers


def conv5(channels: Sequence[int], padding: int, norms: Sequence[Norm | None]) -> list[nn.Module]:
    """For each pair of channels a 5x5 convolution, its norm, 2x2 max pooling and ReLU, which commutes with the pooling
    and is cheaper after it. An image side s becomes (s - 4 + 2 padding) // 2."""
    layers: list[nn.Module] = []
    for (a, b), norm in zip(pairwise(channels), norms, strict=True):
        after = [norm(b)] if norm else []
        layers += [nn.Conv2d(a, b, 5, padding=padding, bias=_has_use(after)), *after]
        layers += [nn.MaxPool2d(2), nn.ReLU(inplace=True)]
    return layers


def _has_use(after: list[nn.Module]) -> bool:
    """Whether a bias before these layers changes anything: batch norm takes it away."""
    return not any(isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d) for m in after)


class Block(nn.Module):
    """The basic residual block (He et al. 2016, figure 5 left), projection where the shape changes (option B)."""

    def __init__(self, inside: int, out: int, stride: int, norm: Norm):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.norm1 = norm(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = norm(out)
        self.relu = nn.ReLU(inplace=True)
        same = stride == 1 and inside == out
        project = nn.Identity() if same else nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), norm(out))
        self.downsample = project

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu(y + self.downsample(x))
        return out


def resnet(channels: int, widths: Sequence[int], blocks: int, norm: Norm) -> nn.Sequential:
    """(B, channels, H, W) -> (B, widths[-1]): a 3x3 convolution without pooling (the stem for 32x32 images), `blocks`
    basic blocks at each of the widths, each width after the first at half the side, and the mean over the image.

    Convolutions start normal with variance 2 / (fan out) (He et al. 2015). With group norm the last norm of every
    block starts with scale zero, so that a block starts as its shortcut (Goyal et al. 2017, section 5.1)."""
    inside = widths[0]
    layers = [nn.Conv2d(channels, inside, 3, 1, 1, bias=False), norm(inside), nn.ReLU(inplace=True)]
    for k, width in enumerate(widths):
        for b in range(blocks):
            layers.append(Block(inside, width, 2 if k and not b else 1, norm))
            inside = width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, Block) and isinstance(m.norm2, nn.GroupNorm):
            nn.init.zeros_(m.norm2.weight)
    return net


class OneHot(nn.Module):
    """(B, columns) -> (B, numeric columns + sum of categories): each categorical column becomes one column for each
    of its codes. A code beyond those that were announced becomes zeros.

    categories: column -> its number of codes."""

    numeric: Tensor
    owner: Tensor
    level: Tensor

    def __init__(self, columns: int, categories: Mapping[int, int]):
        super().__init__()
        numeric = [c for c in range(columns) if c not in categories]
        levels = [(c, k) for c, n in sorted(categories.items()) for k in range(n)]
        self.width = len(numeric) + len(levels)
        owner, level = torch.tensor(levels, dtype=torch.int64).reshape(-1, 2).T
        self.register_buffer("numeric", torch.tensor(numeric, dtype=torch.int64), persistent=False)
        self.register_buffer("owner", owner.contiguous(), persistent=False)
        self.register_buffer("level", level.contiguous(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hot = x.index_select(1, self.owner) == self.level
        return torch.cat([x.index_select(1, self.numeric), hot.to(x.dtype)], 1)


class Embedded(nn.Module):
    """(B, columns) -> (B, numeric columns + categorical columns * dim): a learnt vector for each code of each
    categorical column; all are rows of one table, (sum of categories, dim), standard normal at first.

    A code beyond those that were announced has no vector and becomes zeros."""

    numeric: Tensor
    column: Tensor
    count: Tensor
    offset: Tensor

    def __init__(self, columns: int, categories: Mapping[int, int], dim: int):
        super().__init__()
        names = sorted(c for c, n in categories.items() if n)
        counts = torch.tensor([categories[c] for c in names], dtype=torch.int64)
        numeric = [c for c in range(columns) if c not in categories]
        self.width = len(numeric) + len(names) * dim
        self.weight = nn.Parameter(torch.randn(int(counts.sum()), dim))
        self.register_buffer("numeric", torch.tensor(numeric, dtype=torch.int64), persistent=False)
        self.register_buffer("column", torch.tensor(names, dtype=torch.int64), persistent=False)
        self.register_buffer("count", counts, persistent=False)
        self.register_buffer("offset", counts.cumsum(0) - counts, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        code = x.index_select(1, self.column).long()
        known = (code >= 0) & (code < self.count)
        rows = nn.functional.embedding(torch.where(known, code, 0) + self.offset, self.weight)
        return torch.cat([x.index_select(1, self.numeric), (rows * known.unsqueeze(-1)).flatten(1)], 1)
