"""Methods that give each client a model of its own: what they refuse, how they combine, what a newcomer gets."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedroute.algorithms import make
from fedroute.algorithms.apfl import APFL
from fedroute.algorithms.ditto import Ditto
from fedroute.algorithms.fedbn import FedBN
from fedroute.algorithms.fedrep import FedRep
from fedroute.algorithms.interpolation import Interpolation, mixture
from fedroute.algorithms.perfedavg import PerFedAvg
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Algorithm, Context, Task
from fedroute.engines.base import Work, context
from fedroute.errors import InputError
from fedroute.tree import Tree

NAMES = [
    "apfl", "ditto", "fedbabu", "fedbn", "fedper", "fedprox_ft", "fedrep", "interpolation", "lg_fedavg", "perfedavg",
]  # fmt: skip
REFUSED = {("fedper", "body"), ("fedrep", "body"), ("fedbabu", "body"), ("lg_fedavg", "head")}
TRAINING = Training(rounds=2, lr=0.1, batch_size=8)


def around(alg: Algorithm, server: Tree, private: Tree, batches: int) -> Context:
    """The context of client 0 with so many batches."""
    return context(alg, server, private, 0, Work(0, 0, 0.1, (0,), {0: [torch.zeros(0)] * batches}))


@pytest.mark.parametrize("role", ["norm", "head", "body"])
@pytest.mark.parametrize("name", NAMES)
def test_private_parts_combine_or_are_refused_in_words(name: str, role: str) -> None:
    """Without norms where the body is private, so that nothing else is left to share."""
    f, task = classes([9, 20, 17]), network(norm=role == "norm" or name == "fedbn")
    spec = {"name": name, "private": [role]}
    if (name, role) in REFUSED:
        with pytest.raises(InputError, match=rf"algorithm.private: with \['{role}'\] besides what {name} keeps"):
            make(spec).bind(task)
        return
    alg, state = train(make(spec), f, task, TRAINING)
    mine = task.named(role)
    assert mine <= alg.kept
    assert not mine & state.server["w"].keys()
    a, b = (state.privates[i]["w"] for i in range(2))
    moved = [k for k in mine if k in task.trainable and not torch.equal(a[k], b[k])]
    assert moved or (name == "fedbabu" and role == "head"), "clients' own parts do not differ"


@pytest.mark.parametrize("name", ["fedper", "lg_fedavg", "fedrep", "fedbabu"])
def test_a_model_without_a_head(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} treats the head by itself.*roles=\{{'fc.': 'head'\}}"):
        make(name).bind(Task(nn.Linear(3, 2)))


def test_a_model_without_norms() -> None:
    with pytest.raises(InputError, match="this model has none, so that nothing would stay; take a model with norms"):
        FedBN().bind(network(norm=False))


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(InputError, match="no weight has the role or name 'haed'"):
        make({"name": "fedper", "private": ["haed"]}).bind(network())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "apfl", "alpha": 1.5}, "algorithm.alpha: Input should be less than or equal to 1"),
        ({"name": "ditto", "lam": -1}, "algorithm.lam: Input should be greater than or equal to 0"),
        ({"name": "ditto", "lamda": 1}, "algorithm.lamda: unknown key; did you mean lam?"),
        ({"name": "fedrep", "head_share": 0}, "algorithm.head_share: Input should be greater than 0"),
        ({"name": "perfedavg", "variant": "fo"}, "algorithm.variant: Input should be 'FO', 'HF' or 'exact'"),
        ({"name": "fedbabu", "tune": "neck"}, "algorithm.tune: Input should be 'all', 'head' or 'body'"),
        ({"name": "interpolation", "held_out": 1}, "algorithm.held_out: Input should be less than 1"),
    ],
)
def test_options_out_of_range(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        make(options)


class Separable(nn.Module):
    """As in a MobileNet: norms in a Sequential, known by number alone, and one that gathers over processes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.ReLU6(), nn.Conv2d(4, 4, 3, groups=4), nn.SyncBatchNorm(4)
        )
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.features(x).mean((2, 3)))
        return out


def test_norms_are_known_by_type() -> None:
    kept = FedBN().bind(Task(Separable(), roles={"fc.": "head"})).kept
    assert {k.rpartition(".")[0] for k in kept} == {"features.1", "features.4"}
    assert len(kept) == 10


def test_the_labels_of_a_newcomer_are_read_or_not() -> None:
    f, task = classes([9, 20, 17]), network()
    batches = [f.take(rows) for rows in f.train[1].split(10)]
    relabelled = [b | {"y": (b["y"] + 1) % 3} for b in batches]
    for unlabeled in (True, False):
        alg, state = train(FedBN(unlabeled=unlabeled), f, task, TRAINING)
        first = alg.init_client(task.init())
        ctx = around(alg, state.server, first, 2)
        a, b = (alg.adapt(ctx, found)["w"] for found in (batches, relabelled))
        assert (gap(a, b) == 0) == unlabeled
        assert torch.equal(a["1.weight"], first["w"]["1.weight"]) == unlabeled
        assert not torch.equal(a["1.running_mean"], first["w"]["1.running_mean"])
        assert gap(alg.adapt(ctx, [])["w"], first["w"]) == 0, "without rows it is the initial layer"


@pytest.mark.parametrize(("share", "steps", "heads"), [(0.01, 3, 1), (0.99, 3, 2), (0.5, 6, 3), (0.5, 1, None)])
def test_each_part_has_a_step(share: float, steps: int, heads: int | None) -> None:
    """None: a single step, which moves both."""
    f, task = classes([8]), network()
    alg = FedRep(head_share=share).bind(task)
    w = task.init()
    ctx = around(alg, alg.init(w, f.sizes()), alg.init_client(w), steps)
    carry = alg.begin(ctx)
    for t in range(steps):
        old, batch = carry["w"], f.take(f.train[0])
        carry, _ = alg.step(carry, batch, ctx._replace(step=torch.tensor(t)))
        moved = {task.roles[k] for k in task.names if not torch.equal(carry["w"][k], old[k])}
        assert moved == ({"head", "body", "norm"} if heads is None else {"head"} if t < heads else {"body", "norm"})


@pytest.mark.parametrize("alg", [Ditto(), APFL()], ids=["ditto", "apfl"])
def test_who_never_took_part_predicts_with_the_shared_model(alg: Algorithm) -> None:
    f = classes([9, 20, 17])
    f = replace(f, train=(f.train[0][:0], *f.train[1:]))  # c00 has no rows to train on
    alg, state = train(alg, f, network(), TRAINING)
    assert gap(alg.personal(state.server, state.privates[0]), state.server["w"]) == 0
    assert gap(alg.personal(state.server, state.privates[1]), state.server["w"]) > 0.01


@pytest.mark.parametrize("alg", [Ditto(), APFL()], ids=["ditto", "apfl"])
def test_who_comes_late_starts_from_the_shared_model(alg: Algorithm) -> None:
    """Only the second client trains at first. The first one's own model then starts where the server is, and does not
    drag the initial weights along."""
    f, task = classes([16, 16]), network()
    alg, state = train(alg, replace(f, train=(f.train[0][:0], f.train[1])), task, TRAINING)
    ctx = around(alg, state.server, state.privates[0], 1)
    assert gap(alg.begin(ctx)["v"], state.server["w"]) == 0


def test_one_row_is_not_enough_to_hold_one_out() -> None:
    f, task = classes([1, 20]), network(norm=False)
    alg, state = train(Interpolation(), f, task, TRAINING)
    private = alg.adapt(around(alg, state.server, state.privates[0], 1), [f.take(f.train[0])])
    assert float(private["lambda"]) == 0
    assert gap(alg.personal(state.server, private), state.server["w"]) == 0
    assert float(alg.adapt(around(alg, state.server, state.privates[0], 0), [])["lambda"]) == 0


@pytest.mark.parametrize("norm", [True, False])
def test_a_mixture_is_never_worse_than_its_ends_on_the_rows_held_out(norm: bool) -> None:
    f, task = classes([9, 60]), network(norm=norm)
    alg, state = train(Interpolation(adapt_epochs=3), f, task, TRAINING)
    assert isinstance(alg, Interpolation)
    rows = [part for _ in range(3) for part in f.train[1].split(10)]
    ctx = around(alg, state.server, state.privates[1], len(rows))
    private = alg.adapt(ctx, map(f.take, rows))
    held = [f.take(f.train[1][:12])]
    got = float(alg.judged(alg.personal(state.server, private), held, ctx))
    assert got <= float(alg.judged(state.server["w"], held, ctx))
    assert 0 <= float(private["lambda"]) <= 1


@given(st.floats(0, 1), st.integers(0, 100))
def test_a_mixture_lies_between_its_ends(share: float, count: int) -> None:
    v, w = {"a": torch.tensor([1.0, -2.0]), "n": torch.tensor(count)}, {"a": torch.zeros(2), "n": torch.tensor(7)}
    mixed = mixture(share, v, w)
    assert torch.allclose(mixed["a"], share * v["a"])
    assert mixed["n"].dtype == torch.int64
    assert mixture(1.0, v, w) is v
    assert mixture(0.0, v, w) is w


def test_two_adaptation_steps_are_two_passes() -> None:
    f, task = classes([9, 20]), network(norm=False)
    alg = PerFedAvg(alpha=0.3, adapt_epochs=2).bind(task)
    w = task.init()
    ctx = around(alg, alg.init(w, f.sizes()), alg.init_client(w), 6)
    batches = [f.take(rows) for rows in f.train[1].split(8)]  # 8, 8 and 4 rows
    got = alg.adapt(ctx, batches * 2)["tuned"]
    for _ in range(2):
        g, _, _ = alg.grad(w, f.take(f.train[1]), ctx)
        w = {k: v - 0.3 * g[k] for k, v in w.items()}
    assert gap(got, w) < 1e-12


@pytest.mark.parametrize(("variant", "norm", "rows", "split"), [
    ("FO", False, 1, False), ("FO", False, 2, True), ("FO", True, 3, False), ("FO", True, 4, True),
    ("HF", False, 2, False), ("exact", False, 3, True), ("exact", True, 5, False), ("exact", True, 6, True),
])  # fmt: skip
def test_small_batches_stand_for_all_parts(variant: str, norm: bool, rows: int, split: bool) -> None:
    f = classes([rows])
    alg = PerFedAvg(variant=variant).bind(network(norm=norm))  # type: ignore[arg-type]
    parts = alg.parts(f.take(f.train[0]))[: 2 if variant == "FO" else 3]
    found = torch.cat([p["x"] for p in parts])
    assert found.equal(f.x) if split else all(p["x"].equal(f.x) for p in parts)
    assert not norm or min(len(p["x"]) for p in parts) >= 2


def test_a_strong_spring_at_a_large_rate_runs_away_and_is_left_out() -> None:
    """lr lam = 20, where 2 is the most."""
    f, task = classes([40]), network(norm=False)
    with pytest.raises(RuntimeError, match="left out: would keep NaN or Inf in its private v/"):
        train(Ditto(lam=200.0), f, task, Training(rounds=1, lr=0.1, batch_size=1, local_epochs=10))


def test_alpha_is_learned_and_stays_in_its_range() -> None:
    f, training = classes([9, 20, 17]), Training(rounds=5, lr=1.0, batch_size=8)
    for alpha in (0.02, 0.5, 0.98):
        _, state = train(APFL(alpha=alpha), f, network(), training)
        found = [float(p["alpha"]) for p in state.privates.values()]
        assert all(0 <= a <= 1 for a in found)
        assert all(abs(a - alpha) > 1e-3 for a in found)
        _, state = train(APFL(alpha=alpha, adaptive=False), f, network(), training)
        assert [float(p["alpha"]) for p in state.privates.values()] == [alpha] * 3
