"""The gradient by hand against autograd, bit for bit, and which models it takes."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import relu

from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.fedprox import FedProx
from fedroute.algorithms.fedrod import FedRoD
from fedroute.core import Algorithm, Context, run_client
from fedroute.engines.by_hand import ByHand, by_hand, layers_of
from fedroute.models.nets import Net, conv5, dense
from fedroute.task import Task
from fedroute.tree import laid_out

NOBODY = Context({}, {}, torch.tensor(0), torch.tensor(1), torch.tensor(0), 0.1)


@st.composite
def images(draw: st.DrawFn) -> nn.Module:
    """A convolutional net for (3, 9, 9) images."""
    channels, side = 3, 9
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 2))):
        out, groups = draw(st.sampled_from([4, 6])), draw(st.sampled_from([1, 2]))
        groups = groups if channels % groups == 0 else 1
        padding, stride = draw(st.integers(0, 1)), draw(st.integers(1, 2))
        layers.append(nn.Conv2d(channels, out, 3, stride, padding, bias=draw(st.booleans()), groups=groups))
        side, channels = (side + 2 * padding - 3) // stride + 1, out
        after: list[nn.Module] = [nn.ReLU(inplace=draw(st.booleans()))]
        if draw(st.booleans()):
            layers.append(nn.GroupNorm(2, out))
        if side >= 2 and draw(st.booleans()):
            after.append(nn.MaxPool2d(2))
            side //= 2
        layers += after if draw(st.booleans()) else after[::-1]
        if side < 3:
            break
    hidden = draw(st.integers(1, 5))
    norm = nn.LayerNorm if draw(st.booleans()) else None
    return nn.Sequential(*layers, nn.Flatten(), *dense([channels * side * side, hidden], norm), nn.Linear(hidden, 4))


def same(module: nn.Module, x: Tensor, y: Tensor) -> None:
    """Gradient, buffers and loss of a step have the same bits by hand and by autograd."""
    alg = Algorithm().bind(Task(module))
    twin = by_hand(alg)
    assert isinstance(twin.grad, ByHand)
    w: dict[str, Tensor] = laid_out(alg.task.init(), alg.task.format)
    kept = {k: v.clone() for k, v in w.items()}
    ours, buffers, loss = twin.grad(w, {"x": x.clone(), "y": y}, NOBODY)
    theirs, others, value = alg.grad(w, {"x": x, "y": y}, NOBODY)
    assert buffers == others == {}
    assert torch.equal(loss, value)
    assert not loss.requires_grad
    assert list(ours) == list(theirs)
    for k, g in theirs.items():
        assert torch.equal(ours[k], g), k
        assert torch.equal(w[k], kept[k]), k  # what a step starts from is left as it was


@settings(deadline=None, max_examples=60)
@given(images(), st.integers(1, 12), st.booleans(), st.integers(0, 10**6))
def test_convolutions_have_the_bits_of_autograd(module: nn.Module, rows: int, double: bool, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    dtype = torch.float64 if double else torch.float32
    same(
        module.to(dtype),
        torch.randn(rows, 3, 9, 9, generator=g, dtype=dtype),
        torch.randint(0, 4, (rows,), generator=g),
    )


@pytest.mark.parametrize("rows", [1, 10, 128])
def test_the_zoos_nets_have_the_bits_of_autograd(rows: int) -> None:
    g = torch.Generator().manual_seed(rows)
    x, y = torch.randn(rows, 3, 32, 32, generator=g), torch.randint(0, 10, (rows,), generator=g)
    norms = [lambda c: nn.GroupNorm(8, c), lambda c: nn.GroupNorm(16, c)]
    body = nn.Sequential(*conv5([3, 32, 64], 0, norms), nn.Flatten(), *dense([1600, 64, 32], nn.LayerNorm))
    same(Net(body, 32, 10, 16), x, y)
    same(nn.Sequential(nn.Flatten(), *dense([3072, 16]), nn.Linear(16, 10)), x, y)
    same(nn.Sequential(*dense([48, 16]), nn.Linear(16, 10)), x[:, 0, 0].repeat(1, 2)[:, :48], y)


def test_where_pixels_tie_the_first_one_wins_on_both_ways() -> None:
    """Pooling before the ReLU sends the gradient to the same pixel."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3))
    x = torch.tensor([0.0, 1.0, -1.0])[torch.randint(0, 3, (7, 1, 4, 4))]
    same(module, x, torch.randint(0, 3, (7,)))


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(torch.flatten(nn.functional.max_pool2d(relu(self.conv(x)), 2), 1))


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(6, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        h = self.body(x)
        return self.head(h + h)


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    module[1].weight.requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    module[1].register_full_backward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    "module",
    [
        Written(),  # a pooling that is a function and not a module
        Skipping(),
        frozen(),
        hooked(),
        nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(6, 4), nn.Dropout(), nn.Linear(4, 3)),
        nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.Flatten(), nn.Linear(16, 3)),
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(16, 3)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(2, 3)),
        nn.Sequential(nn.ReLU(), nn.Linear(6, 3)),
        nn.Sequential(nn.Flatten(), nn.ReLU()),
    ],
    ids=str,
)
def test_what_autograd_is_left_to_do(module: nn.Module) -> None:
    assert layers_of(Task(module)) is None


def test_an_algorithm_with_a_loss_of_its_own_is_left_as_it_is() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    rod = FedRoD().bind(Task(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Linear(4, 3)), {"2.": "head"}))
    assert by_hand(rod) is rod
    other = FedAvg().bind(Task(module, loss=lambda out, batch: out.square().mean()))
    assert by_hand(other) is other


def test_targets_that_are_no_codes_go_the_old_way() -> None:
    torch.manual_seed(0)
    alg = FedAvg().bind(Task(nn.Sequential(nn.Flatten(), nn.Linear(6, 3))))
    w, batch = alg.task.init(), {"x": torch.randn(4, 6), "y": torch.rand(4, 3)}
    ours, theirs = by_hand(alg).grad(w, batch, NOBODY), alg.grad(w, batch, NOBODY)
    assert torch.equal(ours[2], theirs[2])
    assert all(torch.equal(ours[0][k], theirs[0][k]) for k in w)


def test_under_a_map_it_is_autograds() -> None:
    torch.manual_seed(0)
    alg = FedAvg().bind(Task(nn.Sequential(nn.Flatten(), nn.Linear(6, 3))))
    w = {k: torch.stack([v, 2 * v]) for k, v in alg.task.init().items()}
    x, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 1])
    g = torch.vmap(lambda w: by_hand(alg).grad(w, {"x": x, "y": y}, NOBODY)[0])(w)
    for i in range(2):
        theirs = alg.grad({k: v[i] for k, v in w.items()}, {"x": x, "y": y}, NOBODY)[0]
        torch.testing.assert_close({k: v[i] for k, v in g.items()}, theirs)


@pytest.mark.parametrize("alg", [FedAvg(), FedProx(mu=0.1)], ids=lambda a: type(a).__name__)
def test_a_whole_round_has_the_same_bits(alg: Algorithm) -> None:
    torch.manual_seed(0)
    alg = alg.bind(Task(nn.Sequential(*conv5([1, 4, 6], 2, [None, None]), nn.Flatten(), nn.Linear(24, 3))))
    w = alg.task.init()
    ctx = NOBODY._replace(server=alg.init(w, torch.tensor([30])), private=alg.init_client(w))
    batches = [{"x": torch.randn(5, 1, 8, 8), "y": torch.randint(0, 3, (5,))} for _ in range(6)]
    (ours, _, loss), (theirs, _, value) = (run_client(a, ctx, batches) for a in (by_hand(alg), alg))
    assert torch.equal(loss, value)
    assert all(torch.equal(ours["dw"][k], v) for k, v in theirs["dw"].items())
