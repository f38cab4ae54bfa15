"""Prediction: one answer whatever the chunks, and the module left as it was found."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.evaluate.predict import predict, predict_rows, row_losses, same_weights


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 40), chunk=st.integers(1, 50))
def test_chunks_do_not_change_answers(n: int, chunk: int) -> None:
    task = Task(net().double())
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    w = task.init()
    torch.testing.assert_close(predict(task, w, x, chunk), predict(task, w, x), rtol=0, atol=1e-12)


def test_eval_mode_with_the_running_statistics_given_and_modes_restored() -> None:
    module = net()
    module[2].eval()  # a frozen dropout inside a training network
    before = {n: m.training for n, m in module.named_modules()}
    task = Task(module)
    w = task.init() | {"1.running_mean": torch.full((8,), 7.0)}
    x = torch.randn(5, 4)
    got = predict(task, w, x)
    assert {n: m.training for n, m in module.named_modules()} == before
    assert float(torch.as_tensor(module[1].running_mean).abs().sum()) == 0, "the module's own buffers were touched"
    reference = net().eval()
    reference.load_state_dict(w)
    torch.testing.assert_close(got, reference(x))
    assert not got.requires_grad


def test_modes_are_restored_when_the_model_raises() -> None:
    module = net()
    with pytest.raises(RuntimeError):
        predict(Task(module), Task(module).init(), torch.randn(2, 5))
    assert all(m.training for m in module.modules())


class Viewing(nn.Module):
    """Flattens with `view`, which refuses a channels_last tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 2)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.conv(x)
        return self.fc(h.view(len(h), -1))  # type: ignore[no-any-return]


def test_uint8_images_are_read_as_zero_to_one_in_either_memory_format() -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 256, (70, 3, 8, 8)).to(torch.uint8)
    viewing = Task(Viewing())
    w = viewing.init()
    direct = viewing.module(x.float() / 255)
    torch.testing.assert_close(predict(viewing, w, x), direct, rtol=1e-4, atol=1e-5)
    flat = Task(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2)))
    same = dict(zip(flat.names, w.values(), strict=True))
    torch.testing.assert_close(predict(flat, same, x), direct, rtol=1e-4, atol=1e-5)


def test_no_rows_and_tuples() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 5)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.fc(x), x

    task = Task(Pair())
    assert predict(task, task.init(), torch.zeros(0, 2)).shape == (0, 5)
    assert predict(task, task.init(), torch.zeros(3, 2)).shape == (3, 5)


def test_rows_of_a_federation_are_those_of_the_index() -> None:
    x = torch.randn(30, 4)
    f = Federation.from_arrays(x, torch.zeros(30, dtype=torch.int64), ["a"] * 30, labels=["z"])
    task = Task(net())
    index = torch.tensor([7, 2, 29, 2])
    torch.testing.assert_close(predict_rows(task, task.init(), f, index, chunk=2), predict(task, task.init(), x)[index])


def test_row_losses_average_to_the_loss_even_of_a_loss_that_branches() -> None:
    out, batch = torch.randn(9, 2), {"x": torch.zeros(9, 1), "y": torch.randn(9, 2)}
    plain = Task(nn.Linear(1, 2), loss=lambda o, b: nn.functional.mse_loss(o, b["y"]))
    each = row_losses(plain, out, batch)
    torch.testing.assert_close(each, ((out - batch["y"]) ** 2).mean(1).double())

    def branching(o: Tensor, b: dict[str, Tensor]) -> Tensor:
        loss = nn.functional.mse_loss(o, b["y"])
        return loss if float(loss) > 0 else loss * 0

    torch.testing.assert_close(row_losses(Task(nn.Linear(1, 2), loss=branching), out, batch), each)


def test_same_weights_means_the_same_tensors() -> None:
    w = {"a": torch.ones(2), "b": torch.zeros(1)}
    assert same_weights(w, dict(w))
    assert not same_weights(w, {k: v.clone() for k, v in w.items()})
    assert not same_weights(w, {"a": w["a"]})
