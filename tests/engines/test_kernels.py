"""The hand-written kernels against autograd, and which models they take."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy, relu

from fedroute.core import Context
from fedroute.data.federation import Federation
from fedroute.engines.kernels import ByChain, Plan, chain_for, chain_of, descend
from fedroute.optim import Sgd
from fedroute.task import Task

NOBODY = Context({}, {}, torch.tensor(0), torch.tensor(1), torch.tensor(0), 0.1)


@st.composite
def chains(draw: st.DrawFn) -> tuple[nn.Module, int, int]:
    """(a chain in float64, its inputs, its classes)."""
    widths = draw(st.lists(st.integers(1, 6), min_size=2, max_size=4))
    layers: list[nn.Module] = [nn.Flatten()] if draw(st.booleans()) else []
    for a, b in pairwise(widths):
        layers.append(nn.Linear(a, b, bias=draw(st.booleans())))
        layers += [nn.ReLU(inplace=draw(st.booleans()))] if draw(st.booleans()) else []
    return nn.Sequential(*layers).double(), widths[0], widths[-1]


def weights(module: nn.Module, n: int, g: torch.Generator) -> dict[str, Tensor]:
    """For n clients, at random."""
    return {k: torch.randn(n, *v.shape, generator=g, dtype=v.dtype) for k, v in module.state_dict().items()}


@settings(deadline=None, max_examples=60)
@given(chains(), st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6))
def test_gradients_are_those_of_autograd(chain: tuple[nn.Module, int, int], n: int, rows: int, seed: int) -> None:
    module, inputs, classes = chain
    g = torch.Generator().manual_seed(seed)
    w = weights(module, n, g)
    x = torch.randn(n, rows, inputs, generator=g, dtype=torch.float64)
    y = torch.randint(0, classes, (n, rows), generator=g)
    found = chain_of(Task(module))
    assert found is not None
    ours, buffers, loss = ByChain(found)(w, {"x": x, "y": y}, NOBODY, ())

    def f(w: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(module, w, (x,)), y)

    theirs, value = vmap(grad_and_value(f))(w, x, y)
    assert buffers == {}
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(loss, value, atol=1e-12, rtol=1e-10)


@settings(deadline=None, max_examples=40)
@given(
    chains(),
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from([Sgd(), Sgd(weight_decay=0.1), Sgd(momentum=0.5), Sgd(momentum=0.5, weight_decay=0.1)]),
    st.integers(0, 10**6),
)
def test_descent_is_that_of_torch(
    chain: tuple[nn.Module, int, int], sizes: list[list[int]], sgd: Sgd, seed: int
) -> None:
    """sizes: of each client's batches."""
    module, inputs, classes = chain
    g = torch.Generator().manual_seed(seed)
    sizes = sorted(sizes, key=len, reverse=True)
    fed = federation(
        torch.randn(9, inputs, generator=g, dtype=torch.float64), torch.randint(0, classes, (9,), generator=g)
    )
    batches = [[torch.randint(0, 9, (s,), generator=g) for s in steps] for steps in sizes]
    first, lr = weights(module, len(sizes), g), 0.05
    w = {k: v.clone() for k, v in first.items()}
    found = chain_of(Task(module))
    assert found is not None
    opt = sgd.init(w)
    losses = descend(found, w, opt, fed, Plan.of(batches, torch.float64), lr, sgd)
    for a, steps in enumerate(batches):
        module.load_state_dict({k: v[a] for k, v in first.items()})
        theirs = torch.optim.SGD(module.parameters(), lr, sgd.momentum, weight_decay=sgd.weight_decay)
        total = 0.0
        for rows in steps:
            theirs.zero_grad()
            loss = cross_entropy(module(fed.x[rows]), fed.y[rows])
            loss.backward()
            theirs.step()
            total += float(loss.detach())
        torch.testing.assert_close({k: v[a] for k, v in w.items()}, dict(module.state_dict()), atol=1e-10, rtol=1e-9)
        assert abs(float(losses[a]) - total) < 1e-9 * (1 + abs(total))


def federation(x: Tensor, y: Tensor) -> Federation:
    rows = (torch.arange(len(x)),)
    none = (rows[0][:0],)
    return Federation(name="test", x=x, y=y, clients=("a",), train=rows, validation=none, test=none)


class Written(nn.Module):
    """A chain that is not an nn.Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Identity())
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(relu(self.body(torch.flatten(x, 1))))


class Skipping(Written):
    def forward(self, x: Tensor) -> Any:
        h = self.body(x)
        return self.head(h + h)


class Deciding(Written):
    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x)) if x.sum() > 0 else self.head(-self.body(x))


class Twice(Written):
    def forward(self, x: Tensor) -> Any:
        return self.head(self.body[0](self.body(x)))


def test_a_chain_is_found_in_any_module() -> None:
    chain = chain_of(Task(Written()))
    assert chain is not None
    assert [(a.weight, a.bias, a.relu) for a in chain.layers] == [
        ("body.0.weight", "body.0.bias", True),
        ("head.weight", "head.bias", False),
    ]
    assert chain.flattens


def frozen() -> nn.Module:
    module = Written()
    module.head.weight.requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = Written()
    module.head.register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    "module",
    [
        Skipping(),
        Deciding(),
        Twice(),
        frozen(),
        hooked(),
        nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
        nn.Sequential(nn.ReLU(), nn.Linear(6, 3)),
        nn.Sequential(nn.Flatten(), nn.ReLU()),
        nn.Sequential(nn.Linear(6, 4), nn.Dropout(), nn.Linear(4, 3)),
    ],
    ids=lambda m: type(m).__name__,
)
def test_what_is_no_chain(module: nn.Module) -> None:
    assert chain_of(Task(module)) is None


def test_another_loss_is_not_for_the_kernels() -> None:
    assert chain_of(Task(Written(), loss=lambda out, batch: out.sum())) is None


def test_rows_and_labels_must_fit() -> None:
    task = Task(Written())
    x, y = torch.randn(5, 2, 3), torch.tensor([0, 1, 2, 1, 0])
    assert chain_for(task, federation(x, y)) is not None
    assert chain_for(task, federation((x * 9).to(torch.uint8), y)) is not None
    assert chain_for(task, federation(x.double(), y)) is None
    assert chain_for(task, federation(torch.randn(5, 3, 3), y)) is None
    assert chain_for(task, federation(x.transpose(1, 2), y)) is None
    assert chain_for(task, federation(x, y - 1)) is None
    assert chain_for(task, federation(x, y + 1)) is None
    assert chain_for(task, federation(x, y.double())) is None
    assert chain_for(task, federation(x[:0], y[:0])) is None
    unflattened = Task(nn.Sequential(nn.Linear(6, 3)))
    assert chain_for(unflattened, federation(torch.randn(5, 6), y)) is not None
    assert chain_for(unflattened, federation(torch.randn(5, 1, 6), y)) is None
