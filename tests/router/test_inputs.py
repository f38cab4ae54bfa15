"""What a router reads: known in closed form, standardised by all clients together, and never by whose a row is."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.errors import InputError
from fedroute.models.nets import Net
from fedroute.models.zoo import build
from fedroute.router.inputs import REACH, RouterInput, part_of
from fedroute.router.random_features import RandomFeatures
from fedroute.router.style import style
from fedroute.task import Task
from fedroute.tree import flatten, unflatten
from tests.router.laws import federation, gaussian


def pictures(n: int = 60, size: int = 8) -> Federation:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n, 3, size, size), generator=g).to(torch.uint8)
    y = torch.randint(0, 3, (n,), generator=g)
    return Federation.from_arrays(x, y, [f"c{i % 3}" for i in range(n)])


def lenet(f: Federation) -> tuple[Task, Net]:
    net, roles = build({"name": "lenet_gn", "hidden": [12, 8], "neck": 6}, f, 0)
    return Task(net, roles), net


class Branched(nn.Module):
    """Label logits and client logits."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.branch = nn.Linear(3, 5), nn.Linear(5, 2), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.body(x).relu()
        return self.head(z), self.branch(z)


def training_rows(read: RouterInput, f: Federation) -> Tensor:
    return torch.cat([read.read(x) for i in range(len(f.clients)) for x in part_of(f, i)])


def test_training_rows_have_mean_zero_and_deviation_one() -> None:
    f = federation([z + 1e6 for z in gaussian([50, 30, 9])])
    z = training_rows(RouterInput.of("columns", None, {}, f), f)
    assert torch.allclose(z.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(z.std(0, correction=0), torch.ones(3, dtype=torch.float64), atol=1e-9)


def test_order_and_grouping_of_clients_do_not_matter() -> None:
    """T22: the same rows under other owners are standardised alike."""
    f = federation(gaussian([50, 30, 9]))
    one = replace(f, train=(torch.cat(f.train), f.train[0][:0], f.train[0][:0]))
    a, b = (RouterInput.of("columns", None, {}, g).scales["columns"] for g in (f, one))
    assert torch.allclose(torch.stack(a), torch.stack(b), atol=1e-12)


def test_newcomers_have_no_say() -> None:
    f = federation(gaussian([50, 30, 9]))
    late = f.with_newcomers(["c2"])
    without = replace(f, train=(*f.train[:2], f.train[0][:0]))
    a, b = (RouterInput.of("columns", None, {}, g).scales["columns"] for g in (late, without))
    assert torch.equal(torch.stack(a), torch.stack(b))


def test_rows_are_read_as_queries_are() -> None:
    """T25: where clients scale their tables by statistics of their own, the router reads what a query from nowhere
    would be given, for a row's encoding would tell whose it is."""
    f = federation(gaussian([50, 30, 9]))
    own = replace(f, x=f.x + 5 * f.owner()[:, None], pooled=f.x)
    a, b = (RouterInput.of("columns", None, {}, g) for g in (f, own))
    assert torch.equal(torch.stack(a.scales["columns"]), torch.stack(b.scales["columns"]))
    assert torch.equal(training_rows(a, f), training_rows(b, own))


def test_a_row_far_away_is_cut_off_and_a_constant_column_is_zero() -> None:
    f = federation([torch.cat([z, torch.full((len(z), 1), 7.0)], 1) for z in gaussian([50, 30, 9])])
    read = RouterInput.of("columns", None, {}, f)
    z = read.read(torch.tensor([[1e9, -1e9, 0.0, 7.0], [0.0, 0.0, 0.0, 8.0]]))
    assert z[0, [0, 1, 3]].tolist() == [REACH, -REACH, 0]
    assert z[1, 3] == 1


def test_a_query_is_read_by_itself() -> None:
    """T25: neither the rows beside it, nor their order, nor owners change what is read of it."""
    f = pictures()
    read = RouterInput.of(["style"], None, {}, f)
    z, order = read.read(f.x), torch.randperm(len(f.x), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(read.read(f.x[order]), z[order], atol=1e-4)
    assert torch.equal(read.read(f.x), z)
    assert read.read(f.x[:0]).shape == (0, read.width)
    assert z.shape == (60, 401)
    mean, deviation = read.scales["style"]
    assert torch.equal(z, ((style(f.x) - mean) / deviation).clamp(-REACH, REACH))


def test_deep_is_what_the_head_is_given() -> None:
    f = pictures(size=16)
    task, net = lenet(f)
    w = task.init()
    body = {k: v for k, v in w.items() if task.roles[k] != "head"}
    read = RouterInput.of("deep", task, body, f)
    task.module.eval()
    with torch.no_grad():
        want = net.neck(net.features(f.x.float() / 255)).double()
    mean, deviation = read.scales["deep"]
    assert torch.allclose(read.read(f.x) * deviation + mean, want, atol=1e-5)


def test_a_layer_is_pooled_to_mean_and_deviation() -> None:
    f = pictures(size=16)
    task, net = lenet(f)
    read = RouterInput.of(["layer:features.0", "layer:features"], task, task.init(), f)
    with torch.no_grad():
        maps = net.features[0](f.x.float() / 255).double().flatten(2)
        flat = net.features(f.x.float() / 255).double()
    want = torch.cat([maps.mean(2), maps.std(2, correction=0), flat], 1)
    mean, deviation = (torch.cat([read.scales[k][j] for k in read.kinds]) for j in (0, 1))
    assert torch.allclose(read.read(f.x) * deviation + mean, want, atol=1e-5)
    assert not net.features[0]._forward_hooks  # nothing is left behind


def test_branch_is_the_client_logits() -> None:
    f, task = federation(gaussian([50, 30, 9])), Task(Branched(), {"head.": "head", "branch.": "router"})
    read = RouterInput.of("branch", task, task.init(), f)
    mean, deviation = read.scales["branch"]
    with torch.no_grad():
        want = task.module(f.x)[1].double()
    assert torch.allclose(read.read(f.x) * deviation + mean, want, atol=1e-6)


def test_what_depends_on_private_weights_is_refused() -> None:
    f = pictures(size=16)
    task = lenet(f)[0]
    shared = {k: v for k, v in task.init().items() if task.roles[k] == "body"}
    with pytest.raises(InputError, match=r"deep depends on features\.1"):
        RouterInput.of("deep", task, shared, f)
    RouterInput.of("layer:features.0", task, shared, f)  # lies before the first norm


def test_columns_of_a_table_are_names_and_flags(tmp_path: Path) -> None:
    csv = tmp_path / "t.csv"
    rows = [f"c{i % 2},{'red' if i % 3 else 'blue'},{'' if i % 4 == 0 else i},{i % 2}" for i in range(40)]
    csv.write_text("client,colour,size,label\n" + "\n".join(rows) + "\n")
    f = load_federation({"source": "csv", "path": str(csv), "client": "client", "label": "label"})
    read = RouterInput.of("columns", None, {}, f)
    assert f.columns == ("size", "size missing", "colour")
    assert read.width == 4
    mean, deviation = read.scales["columns"]
    raw = read.read(f.x) * deviation + mean
    assert torch.allclose(raw[:, :2], f.x[:, :2].double(), atol=1e-9)
    assert torch.allclose(raw[:, 2:], torch.stack([f.x[:, 2] == 0, f.x[:, 2] == 1], 1).double(), atol=1e-9)
    unseen = torch.tensor([[0.0, 0.0, 2.0]])
    assert torch.allclose((read.read(unseen) * deviation + mean)[0, 2:], torch.zeros(2).double(), atol=1e-12)


def test_random_features_of_some_kinds() -> None:
    f = pictures(size=16)
    task = lenet(f)[0]
    read = RouterInput.of(["style", "deep"], task, task.init(), f, random_features={"style": 30}, width=0.8, seed=3)
    plain = RouterInput.of(["style", "deep"], task, task.init(), f)
    z = plain.read(f.x)
    lift = RandomFeatures.draw(401, 30, 0.8, 3, "style")
    assert torch.allclose(read.read(f.x), torch.cat([lift(z[:, :401]), z[:, 401:]], 1))
    assert read.width == 36


def test_spec_and_state_make_an_equal_one() -> None:
    f = pictures(size=16)
    task = lenet(f)[0]
    w = task.init()
    read = RouterInput.of(["style", "layer:features.0"], task, w, f, random_features={"style": 20})
    state = unflatten(flatten(read.state(), whole=True))
    again = RouterInput.load(read.spec(), state, task, w)
    assert torch.equal(again.read(f.x), read.read(f.x))
    table = RouterInput.of("columns", None, {}, federation(gaussian([9, 9])))
    assert RouterInput.load(table.spec(), unflatten(flatten(table.state(), whole=True)), None, {}).width == 3


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ("styl", r"no input 'styl'; did you mean style\?"),
        ([], "names none"),
        (["style", "style"], "one twice"),
        ("columns", "columns is of tables, and rows of arrays have the shape .*; take style"),
        ("deep", "deep is read off a model, and there is none"),
        ("layer:conv", "layer:conv is read off a model"),
    ],
)
def test_what_does_not_fit_is_said(kinds: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RouterInput.of(kinds, None, {}, pictures())


def test_more_that_does_not_fit() -> None:
    f = federation(gaussian([50, 30, 9]))
    task = Task(*build("mlp", f, 0))
    with pytest.raises(InputError, match=r"style is of images, and rows of arrays have the shape .*; take columns"):
        RouterInput.of("style", None, {}, f)
    with pytest.raises(InputError, match=r"no layer 'feature'; did you mean features\?"):
        RouterInput.of("layer:feature", task, task.init(), f)
    with pytest.raises(InputError, match=r"branch needs a model that puts out \(label logits, client logits\)"):
        RouterInput.of("branch", task, task.init(), f)
    with pytest.raises(InputError, match="'deep' is no input of this router"):
        RouterInput.of("columns", None, {}, f, random_features={"deep": 5})
    with pytest.raises(InputError, match="no client has training rows"):
        RouterInput.of("columns", None, {}, replace(f, train=tuple(t[:0] for t in f.train)))
    with pytest.raises(InputError, match=r"a query has the shape \(4,\), and rows here have \(3,\)"):
        RouterInput.of("columns", None, {}, f).read(torch.zeros(2, 4))
    pair = Task(nn.Sequential(nn.LSTM(3, 4), nn.Linear(4, 2)), {"1.": "head"})
    with pytest.raises(InputError, match="layer:0 puts out no rows of numbers"):
        RouterInput.of("layer:0", pair, pair.init(), f)


def test_hospitals_have_the_columns_of_their_table() -> None:
    if "FEDROUTE_DATA" not in os.environ:
        pytest.skip("FEDROUTE_DATA names no folder of real data")
    f = load_federation("registry:heart4")
    read = RouterInput.of("columns", None, {}, f)
    z = training_rows(read, f)
    assert z.shape == (int(f.sizes().sum()), read.width)
    assert bool(z.isfinite().all())
    assert float(z.mean(0).abs().max()) < 0.05  # cut off at REACH, so not exactly 0
