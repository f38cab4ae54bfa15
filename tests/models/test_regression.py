"""A number to predict: outputs, loss and ledger, from the command line and from Python."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fedroute.cli
from fedroute import fit
from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.models import build
from fedroute.task import default_loss, loss_for, squared_loss


def linear_federation(outputs: int | None = None) -> Federation:
    """y = 2 a - b + the client's number, (R,) or (R, outputs)."""
    x = torch.randn(180, 2, generator=torch.Generator().manual_seed(0))
    y = 2 * x[:, 0] - x[:, 1] + torch.arange(180) % 3
    y = y if outputs is None else torch.stack([y + k for k in range(outputs)], 1)
    return Federation.from_arrays(x, y, [f"c{i % 3}" for i in range(180)])


@pytest.mark.parametrize(
    ("out", "y"), [((5, 1), (5,)), ((5,), (5,)), ((5, 3), (5, 3)), ((5, 1), (5, 1)), ((1, 1), (1,))]
)
def test_squared_loss_is_the_mean_of_squares(out: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, b = torch.randn(out), torch.randn(y)
    expected = sum((p - q) ** 2 for p, q in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)) / b.numel()
    assert float(squared_loss(a, {"y": b})) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("out", "y"), [((5, 2), (5,)), ((5, 1), (5, 3)), ((5,), (5, 1)), ((5, 5), (5,))])
def test_shapes_that_would_be_broadcast_are_refused(out: tuple[int, ...], y: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"puts out \(5.*model.outputs"):
        squared_loss(torch.zeros(out), {"y": torch.zeros(y)})


def test_the_loss_follows_the_targets() -> None:
    assert loss_for(torch.zeros(2)) is squared_loss
    assert loss_for(torch.zeros(2, 3)) is squared_loss
    assert loss_for(torch.zeros(2, dtype=torch.int64)) is default_loss


@pytest.mark.parametrize(("outputs", "found"), [(None, 1), (1, 1), (3, 3)])
def test_as_many_outputs_as_the_target_has_numbers(outputs: int | None, found: int) -> None:
    f = linear_federation(outputs)
    task = Task(*build("mlp", f, 0), loss_for(f.y))
    assert task(task.init(), f.x[:4]).shape == (4, found)
    run = fit(f, "linear", rounds=2, alone=False, local_steps=1, engine="sequential")
    assert run.ledger.yardstick.headline == "loss"


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_fit_learns_the_line_that_the_clients_share(engine: str) -> None:
    run = fit(linear_federation(), "linear", "fedavg_ft", rounds=30, lr=0.1, engine=engine)
    w: dict[str, Tensor] = run.state.server["w"]
    (slope,) = [v for v in w.values() if v.ndim == 2]
    torch.testing.assert_close(slope[0], torch.tensor([2.0, -1.0]), atol=0.15, rtol=0)


def test_a_csv_with_a_number_to_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f = linear_federation()
    lines = [f"c{i % 3},{f.x[i, 0]:.4f},{f.x[i, 1]:.4f},{f.y[i]:.4f}" for i in range(180)]
    (tmp_path / "h.csv").write_text("\n".join(["site,a,b,price", *lines]) + "\n")
    (tmp_path / "c.yaml").write_text(
        "federation: {source: csv, path: h.csv, client: site, label: price, label_as: number}\nmodel: linear\n"
        "algorithm: fedavg\ntraining: {rounds: 20, local_epochs: 2, lr: 0.1}\nengine: sequential\n"
    )
    said = ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "r")]
    monkeypatch.setattr(sys, "argv", ["fedroute", *said])
    with pytest.raises(SystemExit) as e:
        fedroute.cli.main()
    assert not e.value.code
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["headline"] == "loss"
    by_name = {c["name"]: c for c in summary["clients"]}
    # one line for all misses those at the ends by 1, whose squared error alone is 0: lower is better
    assert by_name["c0"]["personal"] == pytest.approx(1, abs=0.3)
    assert by_name["c0"]["alone"] < 0.05
    assert [by_name[c]["better_off"] for c in ("c0", "c2")] == ["no", "no"]
    assert by_name["c0"]["difference"] > 0
    worst = summary["metrics"]["loss"]["personal"]
    assert worst["worst"] == max(c["personal"] for c in summary["clients"])
    assert (tmp_path / "r" / "report.html").stat().st_size > 0


@pytest.mark.parametrize("name", ["fedpac", "fedrod", "knn_per"])
def test_algorithms_that_count_labels_refuse_numbers_at_once(name: str) -> None:
    x = torch.randn(40, 4)
    federation = Federation.from_arrays(x, x.sum(1), ["a", "b"] * 20)
    with pytest.raises(InputError, match=f"{name} needs targets that are classes"):
        fit(federation, "mlp", name, rounds=1, log=lambda _: None)
