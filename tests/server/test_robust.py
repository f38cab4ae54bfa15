"""Robust rules: f of n answers that are garbage cannot move a round beyond what the honest ones say."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedroute.algorithms import make
from fedroute.certificates.rig import classes, federation, network, train
from fedroute.config import Training, from_dict
from fedroute.engines.base import Answer, Work
from fedroute.engines.sequential import Sequential
from fedroute.errors import InputError
from fedroute.robust import Robust, RobustMean, krum
from fedroute.rounds import prepare, run_round, start, work_of_round
from fedroute.tree import Tree
from fedroute.weighting import Weighting

numbers = st.floats(-100, 100, allow_nan=False, width=32)


def combined(rows: Tensor, **rule: Any) -> Tensor:
    """The rule's answer to the updates in the rows (n, d)."""
    mean = RobustMean(Robust(**rule), Weighting(by="uniform"), {"w"})
    for i, row in enumerate(rows):
        mean.add({"dw": {"w": row}}, i, 1)
    out: Tensor = mean.value()["dw"]["w"]
    return out


@st.composite
def attacked(draw: st.DrawFn) -> tuple[Tensor, Tensor, int, int]:
    """(honest updates (n - f, d), all of them with garbage mixed in (n, d), f, n), n > 2 f + 2."""
    f = draw(st.integers(1, 2))
    n = draw(st.integers(2 * f + 3, 2 * f + 6))
    d = draw(st.integers(1, 3))
    honest = torch.tensor(draw(st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=n - f, max_size=n - f)))
    garbage = draw(st.sampled_from([-1e5, 1e5, 1e9])) * torch.ones(f, d)
    order = torch.tensor(draw(st.permutations(range(n))))
    return honest, torch.cat([honest, garbage])[order], f, n


@given(attacked())
@settings(max_examples=60, deadline=None)
def test_median_and_trimmed_mean_stay_among_the_honest(case: tuple[Tensor, Tensor, int, int]) -> None:
    honest, rows, f, _ = case
    low, high = honest.min(0).values, honest.max(0).values
    for got in (combined(rows, rule="median"), combined(rows, rule="trimmed", f=f)):
        assert ((got >= low - 1e-3) & (got <= high + 1e-3)).all()
    assert not ((rows.mean(0) >= low) & (rows.mean(0) <= high)).all()  # the mean does not stay there


@given(attacked())
@settings(max_examples=60, deadline=None)
def test_krum_takes_an_honest_one_and_multikrum_only_such(case: tuple[Tensor, Tensor, int, int]) -> None:
    honest, rows, f, n = case
    assert any(torch.equal(combined(rows, rule="krum", f=f), h) for h in honest)
    chosen = krum({"w": rows}, f, one=False)
    assert len(chosen) == n - f - 2
    assert (rows[chosen].abs() <= 100).all()
    assert torch.allclose(combined(rows, rule="multikrum", f=f), rows[chosen].mean(0))


@given(attacked())
@settings(max_examples=60, deadline=None)
def test_clipping_bounds_the_length(case: tuple[Tensor, Tensor, int, int]) -> None:
    honest, rows, _, _ = case
    assert combined(rows, rule="clip").norm() <= honest.norm(dim=1).max() * 1.001 + 1e-3
    assert combined(rows, rule="clip", bound=0.5).norm() <= 0.5001


def test_krum_by_hand() -> None:
    """n = 5, f = 1: the score of each is the sum of its 2 smallest squared distances."""
    rows = torch.tensor([[0.0], [1.0], [2.0], [4.0], [50.0]])
    scores = []
    for i in range(5):
        apart = sorted(float((rows[i] - rows[j]).square().sum()) for j in range(5) if j != i)
        scores.append(sum(apart[:2]))
    assert scores == [5.0, 2.0, 5.0, 13.0, 46.0**2 + 48.0**2]
    assert krum({"w": rows}, 1, one=True).tolist() == [1]
    assert krum({"w": rows}, 1, one=False).tolist() == [0, 1]  # of the two with 5 the first


def test_trimmed_and_median_by_hand() -> None:
    rows = torch.tensor([[1.0, 9.0], [2.0, -7.0], [3.0, 1.0], [1e4, 2.0], [4.0, 3.0], [-1e4, 4.0]])
    assert combined(rows, rule="trimmed", f=1).tolist() == [2.5, 2.5]
    assert combined(rows, rule="trimmed", f=2).tolist() == combined(rows, rule="median").tolist() == [2.5, 2.5]
    assert combined(rows, rule="trimmed", f=0).tolist() == rows.mean(0).tolist()


def test_clipping_is_the_weighted_mean_where_nothing_is_longer() -> None:
    mean = RobustMean(Robust(rule="clip", bound=10.0), Weighting(), {"w"})
    for i, (value, size) in enumerate([(1.0, 3), (5.0, 1)]):
        mean.add({"dw": {"w": torch.tensor([value]), "count": torch.tensor(value)}}, i, size)
    assert mean.value()["dw"]["w"].tolist() == [2.0]
    assert float(mean.value()["dw"]["count"]) == 2.0


class Hostile(Sequential):
    """Clients 1 and 4 answer with ten times the opposite of what they learned."""

    def run(self, server: Tree, privates: Any, work: Work) -> Any:
        for a in super().run(server, privates, work):
            if a.client in (1, 4):
                turned = {k: -10 * v for k, v in a.update["dw"].items()}
                yield Answer(a.client, a.steps, {"dw": turned}, a.private, a.loss)
            else:
                yield a


@pytest.mark.parametrize("rule", ["median", "trimmed", "krum", "multikrum", "clip"])
def test_a_run_with_two_hostile_clients_in_nine_still_learns(rule: str) -> None:
    x = torch.randn(360, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f = federation(x, (x[:, 0] > 0).long(), [40] * 9)
    task = network(norm=False, k=2)
    robust = {"rule": rule} | ({"f": 2} if rule in ("trimmed", "krum", "multikrum") else {})

    def accuracy(options: dict[str, Any]) -> float:
        t = Training(rounds=20, lr=0.3, batch_size=20, **options)
        alg = prepare(make("fedavg"), task, t)
        engine, state = Hostile(alg, f), start(alg, f)
        for r in range(t.rounds):
            state = run_round(alg, engine, f, t, state, work_of_round(alg, f, t, 0, r))
        with torch.no_grad():
            out = torch.func.functional_call(task.module, state.server["w"], (f.x,))
        return float((out.argmax(1) == f.y).double().mean())

    assert accuracy({"robust": robust}) > 0.85
    assert accuracy({}) < 0.6  # the mean does not


def test_without_hostile_clients_it_goes_where_the_mean_goes() -> None:
    f = classes([20] * 5)
    t = Training(rounds=4, lr=0.1, batch_size=10, weighting=Weighting(by="uniform"))
    _, a = train(make("fedavg"), f, network(norm=False), t)
    first = {"weighting": None}
    for robust in (Robust(rule="trimmed", f=0), Robust(rule="clip", bound=1e6)):
        _, b = train(make("fedavg"), f, network(norm=False), t.model_copy(update=first | {"robust": robust}))
        for k, v in a.server["w"].items():
            assert torch.allclose(v, b.server["w"][k], atol=1e-12)


def test_the_order_of_coming_does_not_matter() -> None:
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(7, 4, generator=g)
    for rule in ("median", "trimmed", "krum"):
        want = combined(rows, rule=rule)
        assert torch.equal(combined(rows[[3, 1, 6, 0, 2, 5, 4]], rule=rule), want)


WRONG = {
    "f of median": ({"rule": "median", "f": 1}, {}, "f belongs to trimmed, krum and multikrum; median has none"),
    "bound of krum": ({"rule": "krum", "bound": 1.0}, {}, "bound belongs to clip"),
    "name": ("mediam", {}, "median"),
    "weighting": ({"rule": "median"}, {"weighting": {"by": "uniform"}}, "median counts each client once"),
}


@pytest.mark.parametrize("what", WRONG)
def test_options_that_do_not_fit_are_refused(what: str) -> None:
    robust, more, words = WRONG[what]
    document: dict[str, Any] = {
        "federation": {"source": "bundled", "name": "digits"}, "model": "mlp", "algorithm": "fedavg",
        "training": {"robust": robust} | more,
    }  # fmt: skip
    with pytest.raises(InputError, match=words):
        prepare(make("fedavg"), network(), from_dict(document).training)


@pytest.mark.parametrize(
    ("name", "words"),
    [("scaffold", "leave robust out"), ("ifca", "looks at every update itself"), ("fednova", "sends a too")],
)
def test_algorithms_that_a_rule_would_break_are_refused(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        prepare(make(name), network(), Training(robust=Robust(rule="clip")))


def test_too_few_clients_for_the_rule() -> None:
    with pytest.raises(InputError, match="krum with f: 2 needs 7 answers in a round, and 5 clients are asked"):
        train(make("fedavg"), classes([8] * 5), network(), Training(rounds=1, robust=Robust(rule="krum", f=2)))


def test_too_few_answers_void_the_round() -> None:
    f = classes([8] * 5)
    f.x[f.train[2]] = torch.nan
    t = Training(rounds=1, batch_size=8, robust=Robust(rule="krum", f=1))
    alg = prepare(make("fedavg"), network(norm=False), t)
    state, heard = start(alg, f), list[str]()
    after = run_round(alg, Sequential(alg, f), f, t, state, work_of_round(alg, f, t, 0, 0), heard.append)
    assert after.void_rounds == [1]
    assert after.server is state.server
    assert "void, 4 of 5" in heard[-1]


def test_a_name_is_enough_in_a_config() -> None:
    assert Training(robust="median").robust == Robust(rule="median")  # type: ignore[arg-type]
