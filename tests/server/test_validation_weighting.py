"""Weighting by validation: a client counts its rows times how well its training did on rows it holds out."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedroute import fit
from fedroute.algorithms import ALGORITHMS, make
from fedroute.certificates.rig import network
from fedroute.config import Training
from fedroute.core import Algorithm, Task, run_client
from fedroute.data.federation import Federation
from fedroute.data.spec import Split
from fedroute.engines import sequential, stacked
from fedroute.engines.base import Answer, Work, context
from fedroute.engines.quality import LEAST, quality
from fedroute.engines.sequential import Sequential
from fedroute.engines.stacked import Stacked
from fedroute.engines.workers import Workers
from fedroute.errors import InputError
from fedroute.manifest import manifest
from fedroute.quarantine import fault
from fedroute.rounds import State, prepare, run_round, start, work_of_round
from fedroute.tree import Tree, flatten, sha256
from fedroute.weighting import Weighting

BY = Weighting(by="validation")
MISTAKEN = "c"  # whose labels are drawn anew


def clients(sizes: tuple[int, ...] = (60, 90, 150, 40), split: bool = True) -> Federation:
    """Three classes that six features tell; client c, the largest, has random labels."""
    g = torch.Generator().manual_seed(3)
    x = torch.randn(sum(sizes), 6, generator=g, dtype=torch.float64)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.3).long()
    owner = [name for name, n in zip("abcd", sizes, strict=True) for _ in range(n)]
    wrong = torch.tensor([name == MISTAKEN for name in owner])
    y[wrong] = torch.randint(0, 3, (int(wrong.sum()),), generator=g)
    parts = Split(validation=0.25 if split else 0.0, test=0.25)
    return Federation.from_arrays(x, y, owner, labels=("p", "q", "r"), split=parts)


def trained(
    algorithm: Algorithm, f: Federation, t: Training, maker: Callable[..., Any] = Sequential, norm: bool = False
) -> State:
    alg = prepare(algorithm, network(norm), t)
    engine, state = maker(alg, f), start(alg, f)
    try:
        for r in range(t.rounds):
            state = run_round(alg, engine, f, t, state, work_of_round(alg, f, t, 0, r), _unheard)
    finally:
        engine.close()
    return state


def _unheard(text: str) -> None:
    raise AssertionError(text)


def by_hand(f: Federation, t: Training) -> dict[str, Tensor]:
    """One round of FedAvg: sum n_i q_i w_i / sum n_i q_i, with q_i the geometric mean of the probabilities that w_i
    gives to the labels of client i's validation rows."""
    alg = prepare(make("fedavg"), network(norm=False), t)
    state, work = start(alg, f), work_of_round(alg, f, t, 0, 0)
    total, weight = dict[str, Tensor](), 0.0
    for i in work.clients:
        ctx = context(alg, state.server, state.privates[i], i, work, f)
        dw = run_client(alg, ctx, [f.take(rows) for rows in work.batches[i]])[0]["dw"]
        w = {k: v + dw[k] for k, v in state.server["w"].items()}
        out = torch.func.functional_call(alg.task.module, w, (f.x[f.validation[i]],))
        q = out.softmax(1).gather(1, f.y[f.validation[i]].unsqueeze(1)).log().mean().exp()
        say = len(f.train[i]) * float(q)
        total = {k: total.get(k, 0.0) + say * v for k, v in w.items()}
        weight += say
    return {k: v / weight for k, v in total.items()}


ROUND = Training(rounds=1, lr=0.2, batch_size=10, local_epochs=3, weighting=BY)


def test_the_mean_is_that_of_rows_times_quality() -> None:
    f = clients()
    got, want = trained(make("fedavg"), f, ROUND).server["w"], by_hand(f, ROUND)
    for k, v in want.items():
        assert torch.allclose(got[k], v, atol=1e-12), k


def _on_training_rows(task: Task, w: Any, f: Federation, client: int) -> float:
    return float(torch.exp(-cross_entropy(task(w, f.x[f.train[client]]), f.y[f.train[client]])))


def _of_the_first_weights(task: Task, w: Any, f: Federation, client: int) -> float:
    return quality(task, task.init(), f, client)


WRONG: dict[str, Callable[..., float]] = {
    "the same for all": lambda task, w, f, client: 0.5,
    "of training rows": _on_training_rows,
    "of the weights before training": _of_the_first_weights,
    "of another client's rows": lambda task, w, f, client: quality(task, w, f, (client + 1) % 4),
    "a loss and no quality": lambda task, w, f, client: 1 - quality(task, w, f, client),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_qualities_give_another_mean(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequential, "quality", WRONG[what])
    f = clients()
    got, want = trained(make("fedavg"), f, ROUND).server["w"], by_hand(f, ROUND)
    assert max(float((got[k] - v).abs().max()) for k, v in want.items()) > 1e-5


def test_quality_is_the_geometric_mean_of_the_right_labels_probabilities() -> None:
    f, task = clients(), network()
    w = task.init()
    for i in range(4):
        rows = f.validation[i]
        task.module.eval()
        p = torch.func.functional_call(task.module, w, (f.x[rows],)).softmax(1).gather(1, f.y[rows].unsqueeze(1))
        task.module.train()
        assert quality(task, w, f, i) == pytest.approx(float(p.log().mean().exp()), rel=1e-12)
    assert task.module.training  # it is left as it was
    assert all(torch.equal(v, task.init()[k]) for k, v in w.items())  # and nothing was changed


def test_quality_at_its_ends() -> None:
    f = clients()
    task = network(norm=False)
    w = {k: torch.full_like(v, torch.nan) for k, v in task.init().items()}
    assert quality(task, w, f, 0) == LEAST
    far = {k: v * 1e6 for k, v in task.init().items()}
    assert LEAST <= quality(task, far, f, 0) <= 1
    assert quality(task, w, clients(split=False), 0) == pytest.approx(1 / 3)


def test_a_client_with_random_labels_loses_its_say_and_the_others_gain() -> None:
    f = clients((60, 60, 240, 60))
    right = torch.cat([f.test[i] for i, name in enumerate(f.clients) if name != MISTAKEN])
    found = {}
    for by in ("examples", "validation"):
        t = Training(rounds=25, lr=0.3, batch_size=10, weighting=Weighting(by=by))
        state = trained(make("fedavg"), f, t)
        out = torch.func.functional_call(network(norm=False).module, state.server["w"], (f.x[right],))
        found[by] = float((out.argmax(1) == f.y[right]).double().mean())
    assert state.quality.keys() == set(f.clients)
    assert min(v for c, v in state.quality.items() if c != MISTAKEN) > 1.5 * state.quality[MISTAKEN]
    assert found["validation"] > found["examples"], found


REFUSED = {name for name, cls in ALGORITHMS.items() if cls.uncapped or not cls.weighting}


def _training(**options: Any) -> Training:
    return Training(rounds=3, lr=0.05, batch_size=8, weighting=BY, clients_per_round=0.8, **options)


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - REFUSED - {"alone"}))
def test_engines_agree(name: str) -> None:
    f, t = clients(), _training()
    want = trained(make(name), f, t, norm=True)
    assert len(set(want.quality.values())) == 4
    got = trained(make(name), f, t, Stacked, norm=True)
    assert got.quality == pytest.approx(want.quality, abs=1e-10)
    for k, v in flatten(want.server).items():
        assert torch.allclose(flatten(got.server)[k].double(), v.double(), atol=1e-9), k


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_algorithm_that_it_would_break_refuses(name: str) -> None:
    with pytest.raises(InputError, match=r"training\.weighting"):
        prepare(make(name), network(), _training())


def test_workers_equal_sequential_bit_for_bit() -> None:
    f = clients()
    for name in ("fedavg", "ditto"):
        want = trained(make(name), f, _training(), norm=True)
        got = trained(make(name), f, _training(), lambda alg, f: Workers(alg, f, 2), norm=True)
        assert got.quality == want.quality
        assert sha256(got.server["w"]) == sha256(want.server["w"])


def test_stacked_is_not_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own qualities, and not those of the fall-back."""
    seen = list[int]()

    def counted(task: Task, w: Any, f: Federation, client: int) -> float:
        seen.append(client)
        return quality(task, w, f, client)

    monkeypatch.setattr(stacked, "quality", counted)
    trained(make("fedavg"), clients(), ROUND, Stacked)
    assert sorted(seen) == [0, 1, 2, 3]


def test_with_a_cap_nobody_has_more() -> None:
    """The cap acts on rows times quality: two clients at the cap of a half are averaged plainly."""
    f = clients((60, 90, 150, 40))
    t = ROUND.model_copy(update={"clients_per_round": 2.0, "weighting": Weighting(by="validation", cap=0.5)})
    plain = t.model_copy(update={"weighting": Weighting(by="uniform")})
    got, want = trained(make("fedavg"), f, t).server["w"], trained(make("fedavg"), f, plain).server["w"]
    assert all(torch.allclose(got[k], v, atol=1e-12) for k, v in want.items())


class Lying(Sequential):
    """Client a claims a quality it has not."""

    claim: float | None = 1e9

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        for a in super().run(server, privates, work):
            yield a._replace(quality=self.claim) if a.client == 0 else a


@pytest.mark.parametrize("claim", [1e9, 1.0001, 0.0, -1.0, float("nan"), None])
def test_a_claim_that_cannot_be_is_left_out(claim: float | None) -> None:
    f, heard = clients(), list[str]()
    alg = prepare(make("fedavg"), network(norm=False), ROUND)
    engine, state = type("It", (Lying,), {"claim": claim})(alg, f), start(alg, f)
    state = run_round(alg, engine, f, ROUND, state, work_of_round(alg, f, ROUND, 0, 0), heard.append)
    assert [q.client for q in state.quarantined] == ["a"]
    assert "claims a quality of" in state.quarantined[0].reason
    assert "a" not in state.quality


def test_without_it_no_answer_has_a_quality() -> None:
    f, t = clients(), Training(rounds=1, lr=0.2, batch_size=10)
    alg = prepare(make("fedavg"), network(), t)
    state, work = start(alg, f), work_of_round(alg, f, t, 0, 0)
    answers = list(Sequential(alg, f).run(state.server, state.privates, work))
    assert [a.quality for a in answers] == [None] * 4
    assert not fault(answers[0], answers[1].update)


def test_the_number_is_counted_in_what_leaves() -> None:
    f = clients()
    up = {}
    for by in ("examples", "validation"):
        t = ROUND.model_copy(update={"weighting": Weighting(by=by)})
        up[by] = trained(make("fedavg"), f, t).up_bytes
    assert up["validation"] == up["examples"] + 4 * 8
    rows = manifest(prepare(make("fedavg"), network(), ROUND), f, judged=True)
    assert rows[-1].row() == {
        "tensor": "quality", "role": "state", "leaves": True, "bytes": 8, "direction": "up", "down_bytes": 0,
    }  # fmt: skip
    assert rows[:-1] == manifest(prepare(make("fedavg"), network(), ROUND), f)


def test_a_run_and_its_resumed_twin_and_each_client_alone(tmp_path: Any) -> None:
    options: dict[str, Any] = {"rounds": 6, "lr": 0.1, "batch_size": 8, "checkpoint_every": 1, "engine": "sequential"}

    def go(folder: str, weighting: Weighting | None = BY, **more: Any) -> Any:
        f = clients()
        f = Federation.from_arrays(f.x.float(), f.y, [f.clients[i] for i in f.owner()], labels=f.labels)
        return fit(f, "mlp", weighting=weighting, out=tmp_path / folder, log=lambda text: None, **options, **more)

    def stop(phase: str, done: int, *_: object) -> None:
        if phase == "train" and done == 3:
            raise KeyboardInterrupt

    whole = go("a")
    with pytest.raises(KeyboardInterrupt):
        go("b", progress=stop)
    again = go("b", resume=True)
    assert again.summary()["weights_sha256"] == whole.summary()["weights_sha256"]
    assert again.summary()["quality"] == whole.summary()["quality"]
    assert again.ledger.summary() == whole.ledger.summary()
    plain = go("c", weighting=None)
    assert plain.summary()["weights_sha256"]["server"] != whole.summary()["weights_sha256"]["server"]
    assert "quality" not in plain.summary()
    assert plain.summary()["accuracy"]["alone"] == whole.summary()["accuracy"]["alone"]


def test_what_it_cannot_do_without_is_said() -> None:
    f = clients(split=False)
    with pytest.raises(InputError, match=r"no client has any; give for example federation\.split"):
        fit(f, "mlp", weighting=BY, rounds=1, log=lambda text: None)
    numbers = Federation.from_arrays(f.x, f.x[:, 0].double(), [f.clients[i] for i in f.owner()])
    with pytest.raises(InputError, match="needs targets that are classes, and these are numbers; take examples"):
        fit(numbers, "linear", weighting=BY, rounds=1, log=lambda text: None)
    heard = list[str]()
    few = clients((60, 90, 150, 2))
    assert len(few.validation[3]) == 0
    few = Federation.from_arrays(few.x.float(), few.y, [few.clients[i] for i in few.owner()], labels=few.labels)
    fit(few, "mlp", weighting=BY, rounds=1, alone=False, log=heard.append)
    assert any("1 client has no validation rows (d): taken for the quality of a guess, 0.33" in line for line in heard)
