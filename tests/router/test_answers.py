"""All clients' answers at once are those of each client's model by itself."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedroute.core import Task
from fedroute.errors import InputError
from fedroute.evaluate.predict import predict
from fedroute.models.nets import Net, dense
from fedroute.randomness import seed_of
from fedroute.router.answers import Answering, answers, log_probabilities
from fedroute.tree import Weights

CLIENTS = 5


def net(outputs: int = 3) -> Net:
    torch.manual_seed(seed_of("answers"))
    return Net(nn.Sequential(nn.Flatten(), *dense([12, 8], nn.BatchNorm1d)), 8, outputs, neck=6)


def varied(w: Weights, *parts: str) -> list[Weights]:
    """The weights of five clients, which differ in the names that begin so and share the rest."""
    torch.manual_seed(seed_of("varied", *parts))
    moved = {k for k, v in w.items() if v.is_floating_point() and any(map(k.startswith, parts))}
    return [{k: v + torch.randn_like(v).abs() if k in moved else v for k, v in w.items()} for _ in range(CLIENTS)]


def one_by_one(task: Task, personal: list[Weights], x: Tensor) -> Tensor:
    return torch.stack([predict(task, w, x).double().log_softmax(1) for w in personal], 1)


def rows(n: int = 40) -> Tensor:
    return torch.randn(n, 3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("private", "bodies"),
    [
        (("head.",), 1),
        (("head.bias",), 1),
        (("head.weight",), 1),
        ((), 1),
        (("neck.", "head."), CLIENTS),
        (("features.2.",), CLIENTS),
        (("features.", "neck.", "head."), CLIENTS),
    ],
)
def test_what_is_stacked_is_what_each_says(private: tuple[str, ...], bodies: int) -> None:
    task = Task(net(), {"head.": "head"})
    personal, x = varied(task.init(), *private), rows()
    found = answers(task, personal, x)
    assert found.shape == (40, CLIENTS, 3)
    assert found.dtype == torch.float64
    assert torch.allclose(found, one_by_one(task, personal, x), atol=1e-6)
    assert Answering.of(task, personal, x).bodies == bodies
    assert not private or not torch.allclose(found[:, 0], found[:, 1])


def test_in_float64_to_the_last_digits() -> None:
    task = Task(net().double(), {"head.": "head"})
    personal, x = varied(task.init(), "head."), rows().double()
    assert torch.allclose(answers(task, personal, x), one_by_one(task, personal, x), atol=1e-13, rtol=0)


def test_equal_weights_that_are_copies_are_seen_to_be_equal() -> None:
    task = Task(net(), {"head.": "head"})
    w = task.init()
    assert Answering.of(task, [{k: v.clone() for k, v in w.items()} for _ in range(4)], rows()).bodies == 1


class Afterwards(nn.Module):
    """Something comes after the head."""

    def __init__(self, inner: nn.Module, after: Any):
        super().__init__()
        self.inner, self.after = inner, after

    def forward(self, x: Tensor) -> Any:
        return self.after(self.inner(x))


def test_a_model_that_goes_on_after_its_head_is_not_cut_short() -> None:
    task = Task(Afterwards(net(), lambda z: 3 * z.tanh()), {"inner.head.": "head"})
    personal, x = varied(task.init(), "inner.head."), rows()
    made = Answering.of(task, personal, x)
    assert made.bodies == CLIENTS
    assert torch.allclose(made(x), one_by_one(task, personal, x), atol=1e-6)


def test_a_model_with_a_second_output_answers_with_its_first() -> None:
    task = Task(Afterwards(net(), lambda z: (z, z * 0)), {"inner.head.": "head"})
    plain = Task(net(), {"head.": "head"})
    personal, x = varied(plain.init(), "head."), rows()
    found = answers(task, [{f"inner.{k}": v for k, v in w.items()} for w in personal], x)
    assert torch.equal(found, answers(plain, personal, x))


def test_heads_that_are_no_single_layer_run_in_turn() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))
    task = Task(module, {"1.": "head", "3.": "head"})
    personal, x = varied(task.init(), "1.", "3."), rows()
    made = Answering.of(task, personal, x)
    assert made.bodies == CLIENTS
    assert torch.allclose(made(x), one_by_one(task, personal, x), atol=1e-6)


def test_one_output_is_the_log_odds_of_the_second_label() -> None:
    task = Task(net(1), {"head.": "head"})
    personal, x = varied(task.init(), "head."), rows()
    found = answers(task, personal, x)
    assert found.shape == (40, CLIENTS, 2)
    odds = predict(task, personal[2], x)[:, 0].double()
    assert torch.allclose(found[:, 2, 1] - found[:, 2, 0], odds, atol=1e-5)
    assert torch.allclose(log_probabilities(torch.zeros(2, 1)).exp(), torch.full((2, 2), 0.5).double())


def test_the_mode_of_a_model_and_its_statistics_stay() -> None:
    module = net()
    task = Task(module, {"head.": "head"})
    before = {k: v.clone() for k, v in module.state_dict().items()}
    module.train()
    answers(task, varied(task.init(), "head."), rows())
    assert all(m.training for m in module.modules())
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


def test_rows_do_not_see_each_other_and_two_evaluations_agree() -> None:
    task = Task(net(), {"head.": "head"})
    personal, x = varied(task.init(), "head."), rows()
    made = Answering.of(task, personal, x)
    assert torch.equal(made(x), made(x))
    assert torch.allclose(made(x)[7:8], made(x[7:8]), atol=1e-6)
    assert made(x[:0]).shape == (0, CLIENTS, 3)


def test_a_model_that_diverged_answers_nan_and_spoils_nobody_else() -> None:
    task = Task(net(), {"head.": "head"})
    personal, x = varied(task.init(), "head."), rows()
    personal[1] = {k: v * torch.nan if k.startswith("head.") else v for k, v in personal[1].items()}
    found = answers(task, personal, x)
    assert bool(found[:, 1].isnan().all())
    assert not bool(found[:, [0, 2, 3, 4]].isnan().any())
    assert Answering.of(task, personal, x).bodies == 1


def test_nobody_has_a_model() -> None:
    with pytest.raises(InputError, match="no client has a model"):
        answers(Task(net(), {"head.": "head"}), [], rows())
