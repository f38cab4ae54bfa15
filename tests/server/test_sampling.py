"""Which clients take part: by label mix and by loss."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from fedroute import fit
from fedroute.algorithms import make
from fedroute.certificates.rig import classes, network
from fedroute.config import Training
from fedroute.data.federation import Federation
from fedroute.engines.sequential import Sequential
from fedroute.errors import InputError
from fedroute.rounds import prepare, run_round, start, work_of_round
from fedroute.sampling import choose, variation


def skewed(clients: int = 40, labels: int = 5, seed: int = 0) -> Tensor:
    """(N, K) rows: each client has nearly all of its rows in one label."""
    g = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 4, (clients, labels), generator=g)
    counts[torch.arange(clients), torch.arange(clients) % labels] += 60
    return counts


def test_stratified_rounds_are_nearer_to_the_federations_mix() -> None:
    counts = skewed()
    sizes = counts.sum(1)
    mean = {}
    for sampling in ("uniform", "stratified"):
        rounds = [choose(sizes, 0.25, sampling, 0, r, counts) for r in range(100)]
        assert all(len(set(c)) == 10 and c == tuple(sorted(c)) for c in rounds)
        mean[sampling] = sum(variation(c, counts) for c in rounds) / len(rounds)
    assert mean["stratified"] < mean["uniform"] / 5
    assert mean["uniform"] > 0.1


def test_every_client_gets_its_turns_in_stratified_rounds() -> None:
    counts = skewed()
    turns = Counter(i for r in range(100) for i in choose(counts.sum(1), 0.2, "stratified", 0, r, counts))
    assert set(turns.values()) == {20}
    turns = Counter(i for r in range(300) for i in choose(counts.sum(1), 12, "stratified", 0, r, counts))
    assert min(turns.values()) > 0.8 * 300 * 12 / 40  # 36 of 40 have a turn in three rounds, and others in the next


def test_a_client_without_rows_and_a_newcomer_take_no_part_and_do_not_count() -> None:
    counts = skewed(10)
    sizes = counts.sum(1)
    sizes[3] = 0  # a newcomer has rows in the counts all the same
    changed = counts.clone()
    changed[3] = torch.tensor([10_000, 0, 0, 0, 0])
    for r in range(20):
        chosen = choose(sizes, 0.4, "stratified", 0, r, changed)
        assert 3 not in chosen
        assert chosen == choose(sizes, 0.4, "stratified", 0, r, counts)


def test_stratified_needs_labels() -> None:
    with pytest.raises(InputError, match="stratified needs labels that are classes"):
        choose(torch.tensor([3, 4, 5]), 2, "stratified", 0, 0, torch.zeros(3, 0))


def test_by_loss_the_highest_of_the_candidates_go() -> None:
    sizes = torch.full((6,), 10)
    losses = {0: 0.1, 1: 5.0, 2: 0.2, 3: 4.0, 4: 0.3, 5: 0.4}
    assert choose(sizes, 2, "loss", 0, 0, losses=losses) == (1, 3)  # three times two: all are candidates
    unseen = {k: v for k, v in losses.items() if k != 2}
    assert choose(sizes, 2, "loss", 0, 0, losses=unseen) == (1, 2)  # one that never took part goes first


def test_candidates_by_loss_are_drawn_by_rows() -> None:
    sizes = torch.tensor([1000] * 3 + [1] * 30)
    turns = Counter(i for r in range(100) for i in choose(sizes, 1, "loss", 0, r, losses=dict.fromkeys(range(33), 1.0)))
    assert sum(turns[i] for i in range(3)) > 90


def test_rounds_by_loss_are_the_same_after_a_stop() -> None:
    """The losses are in the state; what they choose is a function of it."""
    f, t = classes([30, 10, 20, 25, 12, 8]), Training(rounds=8, sampling="loss", clients_per_round=2, lr=0.1)
    alg = prepare(make("fedavg"), network(norm=False), t)
    engine, state, chosen = Sequential(alg, f), start(alg, f), []
    for r in range(t.rounds):
        work = work_of_round(alg, f, t, 0, r, state.losses)
        chosen.append(work.clients)
        state = run_round(alg, engine, f, t, state, work)
    assert len(state.losses) == t.rounds
    assert [set(past) for past in state.losses] == [{f.clients[i] for i in c} for c in chosen]
    assert [work_of_round(alg, f, t, 0, r, state.losses).clients for r in range(t.rounds)] == chosen
    assert len(set(chosen)) > 2


def digits(parts: int = 8) -> Federation:
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (400,), generator=g)
    x = torch.randn(400, 4, generator=g) + y.unsqueeze(1)
    owner = [f"c{(int(v) * 3 + i) % parts}" for i, v in enumerate(y)]
    return Federation.from_arrays(x, y, owner, labels=("a", "b", "c"))


@pytest.mark.parametrize("sampling", ["stratified", "loss"])
def test_a_whole_run_and_its_resumed_twin(sampling: str, tmp_path: object) -> None:
    options: dict[str, Any] = {
        "rounds": 6,
        "clients_per_round": 0.3,
        "sampling": sampling,
        "lr": 0.1,
        "checkpoint_every": 1,
    }
    whole = fit(digits(), "mlp", **options, out=f"{tmp_path}/a", log=lambda text: None)
    stopped, rounds = f"{tmp_path}/b", list[int]()

    def stop(phase: str, done: int, *_: object) -> None:
        rounds.append(done)
        if phase == "train" and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(digits(), "mlp", **options, out=stopped, progress=stop, log=lambda text: None)
    again = fit(digits(), "mlp", **options, out=stopped, resume=True, log=lambda text: None)
    assert again.summary()["weights_sha256"] == whole.summary()["weights_sha256"]
    assert again.ledger.summary() == whole.ledger.summary()  # alone too: the same clients in the same rounds
