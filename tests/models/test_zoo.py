"""The zoo: shapes, sizes, roles, gradients, memory format, and what a wrong spec is told."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import cross_entropy, one_hot

from fedroute.algorithms.fedavg import FedAvg
from fedroute.core import Context, Task, run_client
from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.table import Statistics, TableSchema
from fedroute.errors import InputError
from fedroute.models import MODELS, build
from fedroute.models.nets import Embedded, Net, OneHot
from fedroute.tree import sha256

Make = Callable[..., Federation]
IMAGES: list[tuple[int, ...]] = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]
CONV = ["cnn", "lenet_gn", "lenet_bn", "resnet8_gn", "resnet8_bn", "resnet18_gn", "resnet18_bn"]
FLAT = ["linear", "mlp", "mlp_bn", "tabular"]
BATCH_NORM = [n for n in MODELS if n.endswith("_bn")]


def conv(a: int, b: int, k: int, bias: bool = True) -> int:
    return a * b * k * k + b * bias


def fc(a: int, b: int, bias: bool = True) -> int:
    return a * b + b * bias


def resnet(stem: int, widths: tuple[int, ...], blocks: int, k: int) -> int:
    """Parameters by hand: 3x3 convolutions without bias, two numbers a channel for each norm, 1x1 projections."""
    total, inside = conv(stem, widths[0], 3, False) + 2 * widths[0], widths[0]
    for stage, w in enumerate(widths):
        for b in range(blocks):
            total += conv(inside, w, 3, False) + conv(w, w, 3, False) + 4 * w
            if stage and not b:
                total += conv(inside, w, 1, False) + 2 * w
            inside = w
    return total + fc(inside, k)


def every(name: str) -> list[tuple[int, ...]]:
    return IMAGES if name in CONV else [(13,)] if name == "tabular" else [(13,), *IMAGES]


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def perturbed(module: nn.Module) -> nn.Module:
    """Every weight moved a little, so that no scale is exactly zero or one."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=generator), alpha=0.1)
    return module


@pytest.mark.parametrize("name", MODELS)
def test_output_has_a_logit_per_label_for_every_shape_of_input(name: str, federation: Make) -> None:
    for shape in every(name):
        for labels in (2, 7):
            data = federation(shape, labels)
            module, _ = build({"name": name}, data, 0)
            assert isinstance(module, Net)
            assert module(data.x[:3]).shape == (3, labels)
            assert module.neck(module.features(data.x[:3])).shape == (3, module.head.in_features)


@pytest.mark.parametrize(
    ("spec", "shape", "expected"),
    [
        ({"name": "linear"}, (13,), fc(13, 10)),
        ({"name": "linear"}, (3, 32, 32), fc(3072, 10)),
        ({"name": "mlp"}, (1, 8, 8), fc(64, 64) + fc(64, 32) + fc(32, 10)),
        ({"name": "mlp", "hidden": []}, (13,), fc(13, 10)),
        ({"name": "mlp", "hidden": [5], "outputs": 3}, (13,), fc(13, 5) + fc(5, 3)),
        ({"name": "mlp_bn", "hidden": [20]}, (13,), fc(13, 20, False) + 2 * 20 + fc(20, 10)),
        ({"name": "tabular"}, (13,), fc(13, 64) + fc(64, 32) + fc(32, 10)),
        ({"name": "cnn"}, (1, 28, 28), 1_663_370),  # the number that the FedAvg paper gives
        ({"name": "cnn", "padding": 0}, (3, 32, 32), conv(3, 32, 5) + conv(32, 64, 5) + fc(1600, 512) + fc(512, 10)),
        ({"name": "cnn"}, (1, 8, 8), conv(1, 32, 5) + conv(32, 64, 5) + fc(64 * 4, 512) + fc(512, 10)),
        (
            {"name": "lenet_gn"},
            (3, 32, 32),
            conv(3, 32, 5) + 64 + conv(32, 64, 5) + 128
            + fc(1600, 512) + 1024 + fc(512, 256) + 512 + fc(256, 128) + 256 + fc(128, 10),
        ),
        (
            {"name": "lenet_bn"},
            (3, 32, 32),
            conv(3, 32, 5, False) + 64 + conv(32, 64, 5, False) + 128
            + fc(1600, 512, False) + 1024 + fc(512, 256, False) + 512 + fc(256, 128, False) + 256 + fc(128, 10),
        ),
        ({"name": "lenet_gn", "neck": None, "hidden": [9]}, (3, 16, 20),
         conv(3, 32, 5) + 64 + conv(32, 64, 5) + 128 + fc(64 * 1 * 2, 9) + 18 + fc(9, 10)),
        ({"name": "resnet8_gn"}, (3, 32, 32), resnet(3, (16, 32, 64), 1, 10)),
        ({"name": "resnet8_bn"}, (1, 8, 8), resnet(1, (16, 32, 64), 1, 10)),
        ({"name": "resnet18_gn"}, (3, 32, 32), 11_168_832 + fc(512, 10)),
        ({"name": "resnet18_bn"}, (3, 32, 32), resnet(3, (64, 128, 256, 512), 2, 10)),
        ({"name": "resnet18_gn", "neck": 256}, (3, 32, 32), 11_168_832 + 134_410),  # body and label path of FedDRM
    ],
)  # fmt: skip
def test_parameters_are_as_many_as_counted_by_hand(
    spec: dict[str, Any], shape: tuple[int, ...], expected: int, federation: Make
) -> None:
    assert count(build(spec, federation(shape), 0)[0]) == expected


def test_private_head_of_feddrm_is_2570_numbers(federation: Make) -> None:
    task = Task(*build({"name": "resnet18_gn", "neck": 256}, federation((3, 32, 32)), 0))
    w = task.init()
    assert sum(w[k].numel() for k in task.named("head")) == 2570
    assert task.roles["neck.0.weight"] == "body"
    assert task.roles["neck.1.weight"] == "norm"


@pytest.mark.parametrize(
    ("name", "layers", "each"),
    [("linear", 0, 0), ("mlp", 0, 0), ("mlp_bn", 2, 5), ("cnn", 0, 0), ("lenet_gn", 5, 2), ("lenet_bn", 5, 5),
     ("resnet8_gn", 9, 2), ("resnet8_bn", 9, 5), ("resnet18_gn", 20, 2), ("resnet18_bn", 20, 5)],
)  # fmt: skip
def test_exactly_the_norm_tensors_have_the_role_norm(name: str, layers: int, each: int, federation: Make) -> None:
    task = Task(*build({"name": name}, federation((3, 16, 16)), 0))
    roles = list(task.roles.values())
    assert roles.count("norm") == layers * each
    assert {k for k, r in task.roles.items() if r == "head"} == {"head.weight", "head.bias"}
    convolutions_and_linears = [m for m in task.module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    weights = sum(1 + (m.bias is not None) for m in convolutions_and_linears)
    assert roles.count("body") == weights - 2


def test_fedbn_on_a_resnet_keeps_the_norms_of_the_shortcuts_too(federation: Make) -> None:
    data = federation((3, 8, 8))
    task = Task(*build({"name": "resnet18_bn"}, data, 0))
    shortcut = [k for k in task.named("norm") if ".downsample." in k]
    assert len(shortcut) == 3 * 5
    alg = FedAvg(private=("norm",)).bind(task)
    w, zero = task.init(), torch.tensor(0)
    ctx = Context({"w": alg.init(w, data.sizes())["w"]}, alg.init_client(w), zero, zero, zero, 0.1)
    update, private, _ = run_client(alg, ctx, [data.take(data.train[0][:4])])
    assert len(update["dw"]) == 20 + 2  # convolutions, and the head's two
    assert len(private["w"]) == 100
    assert not torch.equal(private["w"][shortcut[0]], w[shortcut[0]])


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter(name: str, federation: Make) -> None:
    data = federation(every(name)[0])
    module = perturbed(build({"name": name}, data, 0)[0])
    cross_entropy(module(data.x), data.y).backward()
    assert {k for k, p in module.named_parameters() if p.grad is None or not p.grad.abs().max() > 1e-12} == set()


@pytest.mark.parametrize("name", BATCH_NORM)
def test_in_eval_mode_batch_norm_uses_running_statistics(name: str, federation: Make) -> None:
    data = federation(every(name)[0])
    module, _ = build({"name": name}, data, 0)
    for _ in range(2):
        module.train()(3 * data.x + 1)
    alone = torch.cat([module.eval()(row[None]) for row in data.x[:4]])
    torch.testing.assert_close(module(data.x)[:4], alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(module.train()(data.x)[:4], alone, atol=1e-3)


def test_mlp_bn_in_eval_mode_is_the_formula(federation: Make) -> None:
    data = federation((5,), 3)
    net, _ = build({"name": "mlp_bn", "hidden": [4]}, data, 0)
    net, layer = net.double(), net.features.get_submodule("1")
    assert isinstance(layer, nn.Linear)
    x = data.x.double()
    net.train()(x)
    h = x @ layer.weight.T
    mean, var = 0.1 * h.mean(0), 0.9 + 0.1 * h.var(0)  # one step of momentum 0.1 from (0, 1)
    a = ((h - mean) / (var + 1e-5).sqrt()).relu()
    torch.testing.assert_close(net.eval()(x), a @ net.head.weight.T + net.head.bias, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_two_weight_sets_at_once_agree_with_one_by_one(name: str, training: bool, federation: Make) -> None:
    data = federation(every(name)[0], 4)
    nets = [build({"name": name}, data, seed)[0].double().train(training) for seed in (0, 1)]
    x = data.x[:4].double()
    parameters, buffers = stack_module_state(nets)
    skeleton = copy.deepcopy(nets[0])
    stacked = vmap(lambda w: functional_call(skeleton, w, (x,)))(parameters | buffers)
    one_by_one = torch.stack([net(x) for net in nets])
    torch.testing.assert_close(stacked, one_by_one, rtol=1e-10, atol=1e-10)
    for name_, b in nets[1].named_buffers():  # running statistics are written for each set
        torch.testing.assert_close(buffers[name_][1], b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CONV)
def test_channels_last_gives_the_same_and_stays_so_up_to_the_pooling(name: str, federation: Make) -> None:
    data = federation((3, 16, 16))
    module = build({"name": name}, data, 0)[0].double().eval()
    x = data.x[:4].double()
    plain = module(x)
    seen: list[tuple[str, bool]] = []

    def look(m: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        if out.dim() == 4:
            seen.append((type(m).__name__, out.is_contiguous(memory_format=torch.channels_last)))

    for m in module.modules():
        m.register_forward_hook(look)
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    last = module(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, plain, rtol=1e-10, atol=1e-10)
    assert len(seen) >= 6
    assert [kind for kind, kept in seen if not kept] == []


def test_resnet_flattens_without_a_copy(federation: Make) -> None:
    data = federation((3, 16, 16))
    module, _ = build({"name": "resnet8_gn"}, data, 0)
    pooled: list[int] = []
    module.features[-2].register_forward_hook(lambda m, args, out: pooled.append(out.data_ptr()))
    flat = module.features(data.x[:4].contiguous(memory_format=torch.channels_last))
    assert flat.data_ptr() == pooled[0]


@pytest.mark.parametrize("name", MODELS)
def test_same_seed_same_weights_and_outputs_and_the_global_state_is_left_alone(name: str, federation: Make) -> None:
    data = federation(every(name)[0])
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = (build({"name": name}, data, seed)[0].eval() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first(data.x[:5]), second(data.x[:5]))
    assert sha256(Task(first).init()) == sha256(Task(second).init()) != sha256(Task(other).init())


def test_another_process_makes_the_same_weights(federation: Make) -> None:
    code = """
import json, torch
from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.models import build
from fedroute.tree import sha256
torch.manual_seed(99)
data = Federation.from_arrays(torch.zeros(4, 3, 16, 16), torch.arange(4), ["a", "b"] * 2, labels=["0", "1", "2", "3"])
print(json.dumps({n: sha256(Task(*build(n, data, 7)).init()) for n in ("mlp_bn", "cnn", "resnet8_gn")}))
"""
    there = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    data = federation((3, 16, 16), 4)
    assert there == {n: sha256(Task(*build(n, data, 7)).init()) for n in there}


def test_a_name_alone_is_a_spec_and_other_sizes_do_not_shift_the_seed(federation: Make) -> None:
    data = federation((1, 8, 8))
    assert sha256(Task(build("mlp", data, 3)[0]).init()) == sha256(Task(build({"name": "mlp"}, data, 3)[0]).init())


def test_resnet_with_group_norm_starts_as_its_shortcuts(federation: Make) -> None:
    data = federation((3, 8, 8))
    module, _ = build({"name": "resnet18_gn"}, data, 0)
    block = module.features[3]
    h = module.features[:3](data.x[:2])
    assert torch.equal(block(h), h)  # h >= 0 after the stem's ReLU


# tables

SCHEMA = TableSchema(
    numeric=("age", "dose"),
    flags=("age",),
    categorical={"sex": ("f", "m"), "site": ("a", "b", "c")},
    federated=Statistics(fill=(0, 0), mean=(0, 0), scale=(1, 1), common=("f", "a")),
)


@pytest.fixture
def table(federation: Make) -> Federation:
    """Columns age, dose, age missing, sex (2 names), site (3 names); the codes 2 and 3 are unseen names."""
    data = federation((5,), 2)
    x = data.x.clone()
    x[:, 3] = torch.arange(24) % 2
    x[:, 4] = torch.arange(24) % 3
    return replace(data, x=x, table=SCHEMA, columns=SCHEMA.columns)


def test_linear_and_mlp_read_categories_one_hot(table: Federation) -> None:
    net, _ = build("linear", table, 0)
    assert count(net) == fc(3 + 2 + 3, 2)
    sex, site = one_hot(table.x[:, 3].long(), 2), one_hot(table.x[:, 4].long(), 3)
    by_hand = torch.cat([table.x[:, :3], sex, site], 1)
    torch.testing.assert_close(net(table.x), by_hand @ net.head.weight.T + net.head.bias)
    assert count(build({"name": "mlp", "hidden": [6]}, table, 0)[0]) == fc(8, 6) + fc(6, 2)


def test_tabular_looks_up_a_vector_for_each_category(table: Federation) -> None:
    net, _ = build({"name": "tabular", "embedding": 3, "hidden": [6]}, table, 0)
    assert count(net) == (2 + 3) * 3 + fc(3 + 2 * 3, 6) + fc(6, 2)
    first = net.features[0]
    assert isinstance(first, Embedded)
    rows = torch.tensor([[0.1, 0.2, 1.0, 1.0, 2.0]])
    by_hand = torch.cat([rows[0, :3], first.weight[1], first.weight[2 + 2]])
    assert torch.equal(first(rows)[0], by_hand)


@pytest.mark.parametrize("name", ["linear", "mlp_bn", "tabular"])
def test_a_name_never_trained_on_adds_nothing(name: str, table: Federation) -> None:
    net = build(name, table, 0)[0].eval()
    row = table.x[:1].clone()
    row[0, 3:] = torch.tensor([2.0, 3.0])
    seen = net.features[0](row)
    assert torch.equal(seen[:, :3], row[:, :3])
    assert not seen[:, 3:].any()
    assert torch.isfinite(net(row)).all()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 3), st.data())
def test_one_hot_and_vectors_agree_with_a_matrix_product(counts: list[int], numeric: int, data: st.DataObject) -> None:
    """Embedding is the one-hot code times a block-diagonal matrix of the vectors."""
    columns = numeric + len(counts)
    categories = {numeric + k: n for k, n in enumerate(counts)}
    codes = [data.draw(st.lists(st.integers(0, n), min_size=3, max_size=3)) for n in counts]
    x = torch.cat([torch.randn(3, numeric), torch.tensor(codes).T.float()], 1)
    hot, vectors = OneHot(columns, categories), Embedded(columns, categories, 2)
    matrix = torch.block_diag(*torch.split(vectors.weight, [n for n in counts if n])) if sum(counts) else None
    out = vectors(x)
    assert hot(x).shape == (3, hot.width)
    assert out.shape == (3, vectors.width)
    if matrix is not None:
        torch.testing.assert_close(out[:, numeric:], hot(x)[:, numeric:] @ matrix)


@pytest.mark.parametrize("name", ["mlp", "tabular"])
def test_models_of_tables_stack(name: str, table: Federation) -> None:
    nets = [build(name, table, seed)[0].double() for seed in (0, 1)]
    parameters = stack_module_state(nets)[0]
    x = table.x.double()
    stacked = vmap(lambda p: functional_call(copy.deepcopy(nets[0]), p, (x,)))(parameters)
    torch.testing.assert_close(stacked, torch.stack([n(x) for n in nets]), rtol=1e-12, atol=1e-12)
    state = nets[0].state_dict()
    assert set(state) == set(parameters)  # the columns' places are no weights and never travel


@pytest.mark.skipif("FEDROUTE_DATA" not in os.environ, reason="FEDROUTE_DATA names no folder of real data")
def test_four_hospitals_are_read_by_every_model_of_tables() -> None:
    config = yaml.safe_load((Path(__file__).parents[2] / "examples" / "heart.yaml").read_text())
    data = load_federation(config["federation"])
    assert data.table is not None
    names = sum(n - 1 for n in data.table.cardinalities)
    numeric = len(data.columns) - len(data.table.cardinalities)
    assert count(build("linear", data, 0)[0]) == fc(numeric + names, 2)
    for name in ("linear", "mlp", "mlp_bn", "tabular"):
        net, _ = build(name, data, 0)
        assert net(data.x).isfinite().all()
        first, second = net.features(data.x[:2])
        assert not torch.equal(first, second)


# what a wrong spec is told


@pytest.mark.parametrize(
    ("spec", "shape", "parts"),
    [
        ({"hidden": [3]}, (4,), ["model.name", "mlp_bn"]),
        ({"name": "mpl"}, (4,), ["model.name", "'mpl'", "did you mean mlp"]),
        ({"name": "mlp", "hiden": [3]}, (4,), ["model.hiden", "did you mean hidden"]),
        ({"name": "mlp", "norm": None}, (4,), ["model.norm", "unknown"]),
        ({"name": "mlp", "hidden": 64}, (4,), ["model.hidden", "64"]),
        ({"name": "mlp", "hidden": [0]}, (4,), ["model.hidden.0", "greater than or equal to 1"]),
        ({"name": "cnn", "padding": 7}, (1, 8, 8), ["model.padding", "7"]),
        ({"name": "cnn", "padding": 0}, (1, 8, 8), ["model.padding", "8x8", "take padding: 2"]),
        ({"name": "cnn"}, (1, 3, 3), ["model.padding", "3x3", "resnet8"]),
        ({"name": "cnn"}, (13,), ["model.name", "cnn reads images", "table of 13 columns", "mlp, mlp_bn, tabular"]),
        ({"name": "resnet18_bn"}, (28, 28), ["model.name", "(28, 28)", "linear"]),
        ({"name": "tabular"}, (1, 8, 8), ["model.name", "reads a table", "cnn"]),
        ({"name": "linear"}, (), ["model.name", "(rows, 1)"]),
    ],
)
def test_a_wrong_spec_is_an_input_error_with_the_mend(
    spec: dict[str, Any], shape: tuple[int, ...], parts: list[str], federation: Make
) -> None:
    with pytest.raises(InputError) as e:
        build(spec, federation(shape), 0)
    assert [p for p in parts if p not in str(e.value)] == []


def test_without_label_names_the_outputs_must_be_said(federation: Make) -> None:
    data = replace(federation((4,)), labels=())
    with pytest.raises(InputError, match=r"model\.outputs.*say how many"):
        build("mlp", data, 0)
    assert build({"name": "mlp", "outputs": 1}, data, 0)[0](data.x).shape == (24, 1)


def test_the_list_of_models_is_json_and_complete() -> None:
    rows = [m.row(name) for name, m in MODELS.items()]
    assert json.loads(json.dumps(rows))[0]["name"] == "linear"
    options = {r["name"]: {o["name"]: o["default"] for o in r["options"]} for r in rows}
    assert options["mlp"] == {"outputs": None, "hidden": (64, 32)}
    assert set(options["lenet_gn"]) == {"outputs", "hidden", "neck", "padding"}
    assert all(r["summary"] and all(o["meaning"] for o in r["options"]) for r in rows)
