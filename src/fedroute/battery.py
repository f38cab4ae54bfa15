"""The checks of the battery; `fedroute.testing` is how to use them."""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.utils import _pytree as pytree

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.rig import classes, network
from fedroute.config import Training
from fedroute.core import Algorithm, Context, Task, run_client
from fedroute.data.federation import Federation
from fedroute.engines.base import Answer, Engine, Work, context
from fedroute.engines.sequential import Sequential
from fedroute.engines.stacked import Stacked
from fedroute.errors import InputError
from fedroute.rounds import State, client_batches, prepare, run_round, start, work_of_round
from fedroute.tree import Tree, flatten, sha256, unflatten
from fedroute.weighting import Weighting

EngineMaker = Callable[[Algorithm, Federation], Engine]
_ROWS = (0, 1, 2, 9, 13, 17, 21)  # of the clients; c04 has one class only
_TRAINING = Training(rounds=3, lr=0.1, batch_size=8, clients_per_round=0.7, local_epochs=1, momentum=0.5,
                     schedule={"name": "exponential", "gamma": 0.8})  # fmt: skip


def _federation(dtype: torch.dtype = torch.float64) -> Federation:
    f = classes(_ROWS)
    y = f.y.clone()
    y[f.train[4]] = 1
    return replace(f, x=f.x.to(dtype), y=y, labels=("a", "b", "c"))


@dataclass(frozen=True)
class Reversed:
    """The clients computed from the last to the first."""

    algorithm: Algorithm
    federation: Federation
    name = "reversed"

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        inner = Sequential(self.algorithm, self.federation)
        yield from list(inner.run(server, privates, work._replace(clients=work.clients[::-1])))[::-1]

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class ThroughBytes:
    """All that crosses between server and client crosses as safetensors."""

    algorithm: Algorithm
    federation: Federation
    name = "through bytes"

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        seen = _through_bytes({k: server[k] for k in (*self.algorithm.broadcast, *self.algorithm.own)})
        kept = {i: _through_bytes(privates[i]) for i in work.clients}
        for a in Sequential(self.algorithm, self.federation).run(seen, kept, work):
            yield a._replace(update=_through_bytes(a.update), private=_through_bytes(a.private))

    def close(self) -> None:
        pass


def _through_bytes(tree: Tree) -> Tree:
    """In its own order again, which a safetensors file does not keep, and cloned, since a tensor may lie askew in a
    buffer of bytes: either could let a sum come in another order."""
    flat = {k: v.contiguous() for k, v in flatten(tree, whole=True).items()}
    loaded = load(save(flat))
    return unflatten({k: loaded[k].clone() for k in flat})


class Battery:
    """The checks, each a method that raises AssertionError."""

    def __init__(self, algorithm: Algorithm):
        self.algorithm = algorithm
        roles = {"as configured": algorithm.private} if algorithm.private else {
            "all shared": (), "norm private": ("norm",), "head private": ("head",)
        }  # fmt: skip
        self.variants: dict[str, tuple[str, ...]] = roles
        self.norms: tuple[bool, ...] = (
            True,
            False,
        )  # models with norms and without, as far as the algorithm takes them
        self.norms = (True,) if self.refused(algorithm.private, norm=False) else self.norms

    def refused(self, private: tuple[str, ...], norm: bool = True) -> str:
        """Why the algorithm refuses these private weights, or a model without norms; "" where it does not."""
        try:
            self.bind(network(norm), private=private)
        except InputError as e:
            return str(e)
        return ""

    def bind(self, task: Task, training: Training = _TRAINING, private: tuple[str, ...] | None = None) -> Algorithm:
        made = self.algorithm if private is None else replace(self.algorithm, private=private)
        return prepare(made, task, training)

    def train(
        self,
        alg: Algorithm,
        federation: Federation,
        training: Training = _TRAINING,
        *,
        maker: EngineMaker = Sequential,
        rounds: range | None = None,
        state: State | None = None,
        without: Sequence[int] = (),
        heard: list[str] | None = None,
    ) -> State:
        """The state after `rounds`; `without`: clients that are not asked; `heard`: takes what the rounds report, which
        is an error otherwise."""
        engine, state = maker(alg, federation), state or start(alg, federation)
        try:
            for r in rounds or range(training.rounds):
                work = work_of_round(alg, federation, training, 0, r)
                work = work._replace(clients=tuple(i for i in work.clients if i not in without))
                log = heard.append if heard is not None else _unexpected
                state = run_round(alg, engine, federation, training, state, work, log)
        finally:
            engine.close()
        return state

    def engines_agree(self, variant: str, maker: EngineMaker, tolerance: float) -> None:
        for norm in (True,) if "norm" in self.variants[variant] else self.norms:
            task = network(
                norm, dropout=0.0 if tolerance else 0.2
            )  # clients draw in turn, and stacking would mix that up
            alg, federation = self.bind(task, private=self.variants[variant]), _federation()
            want = self.train(alg, federation)
            made = maker(alg, federation)
            got = self.train(alg, federation, maker=lambda *_, made=made: made)
            declined = getattr(made, "declined", "")
            assert not declined, f"this engine fell back to one client after the other: {declined}"
            _same(got.server, want.server, tolerance, "the server's state")
            for i in want.privates:
                _same(got.privates[i], want.privates[i], tolerance, f"the private state of client {i}")

    def private_stays(self, variant: str) -> None:
        alg, federation = self.bind(network(), private=self.variants[variant]), _federation()
        assert alg.kept >= alg.task.named(*self.variants[variant]), "private weights are not kept"
        state = start(alg, federation)
        for rounds in range(2):
            update, private, _ = _round_of(alg, federation, state, 5)
            for where, tree in {"server's state": state.server, "update": update}.items():
                for path in flatten(tree):
                    assert path.rpartition("/")[2] not in alg.kept, f"a private weight is in the {where}: {path}"
            assert private["w"].keys() == alg.kept, "the private state does not hold the private weights"
            state = self.train(alg, federation, rounds=range(rounds, rounds + 1), state=state)
        if mine := [k for k in alg.task.trainable if k in alg.kept]:
            moved = {k: v + 0.5 if k in mine else v for k, v in state.privates[5]["w"].items()}
            other = replace(state, privates=state.privates | {5: state.privates[5] | {"w": moved}})
            again = [_round_of(alg, federation, s, 5)[1] for s in (state, other)]
            assert any(_gap(again[0]["w"][k], again[1]["w"][k]) > 0.01 for k in mine), "private weights are forgotten"

    def stable(self, variant: str) -> None:
        alg, federation = self.bind(network(), private=self.variants[variant]), _federation()
        state, w = start(alg, federation), alg.predictor().init()
        forms = (_form(state.server), _form(state.privates[5]), _form(_round_of(alg, federation, state, 5)[0]))
        for r in range(3):
            update, private, _ = _round_of(alg, federation, state, 5)
            state = self.train(alg, federation, rounds=range(r, r + 1), state=state)
            now = _form(state.server), _form(private), _form(update)
            for what, a, b in zip(("server", "private", "update"), forms, now, strict=True):
                assert a == b, f"the {what} tree changed its form in round {r}: {a} to {b}"
            forms = now
        whole = alg.personal(state.server, state.privates[5])
        assert _form(whole) == _form(w), "`personal` does not give all weights of the model"
        assert all(torch.isfinite(v).all() for v in whole.values()), "weights are not finite"

    def resumes(self, variant: str) -> None:
        federation = _federation()
        want = self.train(self.bind(network(), private=self.variants[variant]), federation)
        state = self.train(self.bind(network(), private=self.variants[variant]), federation, rounds=range(2))
        state = replace(
            state,
            server=_through_bytes(state.server),
            privates={i: _through_bytes(p) for i, p in state.privates.items()},
        )
        alg = self.bind(network(), private=self.variants[variant])
        got = self.train(alg, federation, rounds=range(2, _TRAINING.rounds), state=state)
        _same(got.server, want.server, 0.0, "the server's state")
        for i in want.privates:
            _same(got.privates[i], want.privates[i], 0.0, f"the private state of client {i}")

    def maps(self) -> None:
        alg, federation = self.bind(network()), _federation()
        state = self.train(alg, federation, rounds=range(1))
        rows = {i: federation.train[i][:8] for i in (3, 5, 6)}
        work = Work(1, 0, 0.1, tuple(rows), {i: [r] for i, r in rows.items()})
        ctxs = [context(alg, state.server, state.privates[i], i, work, federation) for i in rows]
        carries, batches = [alg.begin(c) for c in ctxs], [federation.take(r) for r in rows.values()]
        want = [alg.step(*each) for each in zip(carries, batches, ctxs, strict=True)]
        plain = [{k: v for k, v in ctx._asdict().items() if k != "lr"} for ctx in ctxs]
        given = [pytree.tree_map(lambda *leaves: torch.stack(leaves), *each) for each in (carries, batches, plain)]
        got = torch.vmap(lambda carry, batch, ctx: alg.step(carry, batch, Context(**ctx, lr=work.lr)))(*given)
        for n, (carry, loss) in enumerate(want):
            mine = pytree.tree_map(lambda t, n=n: t[n], got)
            _same(mine[0], carry, 1e-10, "the carry of a mapped step")
            assert abs(float(mine[1] - loss)) < 1e-10, "the loss of a mapped step differs"

    def integers(self) -> None:
        alg, federation = self.bind(network(), private=self.algorithm.private), _federation()
        state = self.train(alg, federation)
        counts = [v for k, v in alg.personal(state.server, state.privates[6]).items() if "num_batches" in k]
        assert all(v.dtype == torch.int64 for v in counts), "num_batches_tracked is no longer int64"
        most = _TRAINING.rounds * max(map(len, _everybody(alg, federation).batches.values()))
        assert all(0 < int(v) <= most for v in counts), f"num_batches_tracked is {[int(v) for v in counts]}"
        for path, v in flatten(state.server).items():
            if not v.is_floating_point() and path.startswith("w/"):
                assert "num_batches" in path, f"{path} became {v.dtype}"

    def keeps_dtype(self, dtype: torch.dtype) -> None:
        alg, federation = self.bind(network(dtype=dtype)), _federation(dtype)
        state = self.train(alg, federation)
        update, _, _ = _round_of(alg, federation, state, 5)
        for what, tree in {"server": state.server, "private": state.privates[5], "update": update}.items():
            for path, v in flatten(tree).items():
                counts = "num_batches" in path
                assert counts or not v.is_floating_point() or v.dtype == dtype, f"{what}: {path} is {v.dtype}"

    def frozen(self) -> None:
        alg, federation = self.bind(network(frozen=True)), _federation()
        state = self.train(alg, federation)
        now, first = alg.personal(state.server, state.privates[5])["0.bias"], alg.task.init()["0.bias"]
        assert torch.equal(now, first), "a weight with requires_grad=False moved"
        update, _, _ = _round_of(alg, federation, state, 5)
        assert not any(path.endswith("/0.bias") for path in flatten(update)), "a frozen weight is sent"

    def empty_client(self) -> None:
        federation = _federation()
        without = replace(
            federation,
            **{k: getattr(federation, k)[1:] for k in ("clients", "train", "validation", "test")},
        )
        alg = self.bind(network())
        training = _TRAINING.model_copy(update={"clients_per_round": 1.0})
        a, b = self.train(alg, federation, training), self.train(alg, without, training)
        whole = pytree.tree_map(_without_first, a.server, b.server)
        _same(whole, b.server, 0.0, "the server's state with and without a client that has no rows")
        _same(a.privates[0], start(alg, federation).privates[0], 0.0, "the private state of a client without rows")

    def newcomer(self, variant: str) -> None:
        alg, federation = self.bind(network(), private=self.variants[variant]), _federation()
        late = replace(federation, newcomers=(5,))
        none = tuple(rows[:0] if i == 5 else rows for i, rows in enumerate(federation.train))
        absent = replace(federation, train=none)
        training = _TRAINING.model_copy(update={"clients_per_round": 1.0})
        state, without = self.train(alg, late, training), self.train(alg, absent, training)
        _same(state.server, without.server, 0.0, "the server's state with a newcomer and without its rows")
        first = start(alg, late).privates[5]
        _same(state.privates[5], first, 0.0, "the private state of a newcomer before it adapts")
        work = Work(3, 0, 0.1, (5,), {5: client_batches(alg, federation, training, 0, 3, 5)})
        batches = [federation.take(rows) for rows in work.batches[5]]
        ctx, before = context(alg, state.server, first, 5, work, late), sha256(state.server)
        private = alg.adapt(ctx, batches)
        assert sha256(state.server) == before, "adapt changed the server's state"
        _same(first, start(alg, late).privates[5], 0.0, "the private state that adapt was given")
        _same(private, alg.adapt(ctx, batches), 0.0, "what adapt gives when it is called again")
        w, want = alg.personal(state.server, private), alg.predictor().init()
        assert w.keys() == want.keys(), f"a newcomer's model lacks or adds {sorted(w.keys() ^ want.keys())}"
        assert all(torch.isfinite(v).all() for v in w.values()), "a newcomer's weights are not finite"
        form, declared = _form(private), _form(first)
        if not hasattr(alg, "adapt_epochs"):
            assert form == declared, f"a newcomer's private state has the form {form} and not {declared}"
        mine = [k for k in alg.task.trainable if k in alg.kept]
        assert sha256(private) != sha256(first) or not mine, "a newcomer learned nothing from its rows"

    def no_steps(self) -> None:
        alg, federation = self.bind(network()), _federation()
        state = self.train(alg, federation)
        idle = Work(3, 0, 0.1, (5,), {5: []})
        update, private, loss = run_client(alg, context(alg, state.server, state.privates[5], 5, idle), [])
        for path, v in flatten(update).items():
            assert not v.any(), f"without a step the update has {path} = {v.flatten()[:3].tolist()}"
        _same(private, state.privates[5], 0.0, "the private state")
        assert float(loss) == 0

    def broken_client(self) -> None:
        federation = _federation()
        x = federation.x.clone()
        x[federation.train[5]] = torch.nan
        alg, broken, heard = self.bind(network(), private=()), replace(federation, x=x), list[str]()
        got = self.train(alg, broken, heard=heard)
        want = self.train(alg, federation, without=[5])
        assert heard, "a client full of NaN was not left out"
        assert {q.client for q in got.quarantined} == {"c05"}, f"left out: {got.quarantined}"
        _same(got.server, want.server, 0.0, "the server's state with a broken client and without it")
        _same(got.privates[5], start(alg, federation).privates[5], 0.0, "the private state of a broken client")

    def others(self) -> None:
        federation = _federation()
        x = federation.x.clone()
        x[federation.train[6]] += 1
        alg = self.bind(network(dropout=0.2))
        state = start(alg, federation)
        work = _everybody(alg, federation)
        mine = [
            {a.client: a for a in Sequential(alg, f).run(state.server, state.privates, work)}
            for f in (federation, replace(federation, x=x))
        ]
        for i in work.clients[:-1]:
            for what in ("update", "private"):
                _same(getattr(mine[0][i], what), getattr(mine[1][i], what), 0.0, f"the {what} of client {i}")

    def pure(self) -> None:
        alg, federation = self.bind(network()), _federation()
        state = self.train(alg, federation, rounds=range(2))
        work = work_of_round(alg, federation, _TRAINING, 0, 2)
        given = {
            "server": state.server, "privates": {str(i): p for i, p in state.privates.items()},
            "rows": {"x": federation.x, "y": federation.y}, "model": dict(alg.task.module.state_dict()),
            "batches": {f"{i}.{n}": b for i, steps in work.batches.items() for n, b in enumerate(steps)},
        }  # fmt: skip
        before, drawn = {k: sha256(v) for k, v in given.items()}, torch.get_rng_state()
        after = run_round(alg, Sequential(alg, federation), federation, _TRAINING, state, work, _unexpected)
        kept = sha256(after.server)
        self.train(alg, federation, rounds=range(3, 4), state=after)
        for k, v in given.items():
            assert sha256(v) == before[k], f"a round changed the {k} it was given"
        assert sha256(after.server) == kept, "a round changed the server's state it was given"
        assert torch.equal(drawn, torch.get_rng_state()), "a round drew from the global random state"
        assert all(p.grad is None for p in alg.task.module.parameters()), "a round left gradients in the model"

    def random(self) -> None:
        alg, federation = self.bind(network(dropout=0.3)), _federation()
        with torch.random.fork_rng(devices=[]):
            hashes = set()
            for seed in (1, 2):
                torch.manual_seed(seed)
                state = self.train(alg, federation)
                hashes.add(sha256(state.server) + "".join(sha256(p) for p in state.privates.values()))
        assert len(hashes) == 1, "the result depends on the global random state"

    def pickles(self) -> None:
        alg, federation = self.bind(network()), _federation()
        again: Algorithm = pickle.loads(pickle.dumps(alg))
        _same(self.train(again, federation).server, self.train(alg, federation).server, 0.0, "the server's state")

    def declared(self) -> None:
        alg, federation = self.bind(network(), private=()), _federation()
        state = start(alg, federation)
        update, _, _ = _round_of(alg, federation, state, 5)
        assert update.keys() == alg.sends.keys(), f"says it sends {[*alg.sends]}, sends {[*update]}"
        assert set(alg.broadcast) <= state.server.keys(), "broadcasts what the server does not have"

    def combines(self, **options: Any) -> None:
        training = Training(**(_TRAINING.model_dump() | {"momentum": 0.0} | options))
        federation, alg = _federation(), self.bind(network(norm=self.norms[-1]), training)
        state = self.train(alg, federation, training)
        for path, v in flatten({"server": state.server, "private": state.privates[6]}).items():
            assert torch.isfinite(v).all(), f"{path} is not finite"
        stacked = self.train(alg, federation, training, maker=Stacked)
        # an adaptive step is nearly the sign of a gradient at first, which magnifies the rounding of a small one
        _same(stacked.server, state.server, 1e-7, "the server's state of engine stacked")

    def neutral(self, neutral: Algorithm, tolerance: float) -> None:
        training = _TRAINING.model_copy(update={"weight_decay": 0.01})
        federation = _federation()
        got = self.train(prepare(neutral, network(), training), federation, training)
        fedavg = replace(FedAvg(), private=neutral.private)
        training = training.model_copy(update={"weighting": Weighting(by=neutral.weighting or "uniform")})
        want = self.train(prepare(fedavg, network(), training), federation, training)
        _same(got.server["w"], want.server["w"], tolerance, "the shared weights")


def _unexpected(message: str) -> None:
    raise AssertionError(message)


def _everybody(alg: Algorithm, federation: Federation, r: int = 0) -> Work:
    return work_of_round(alg, federation, _TRAINING.model_copy(update={"clients_per_round": 1.0}), 0, r)


def _round_of(alg: Algorithm, federation: Federation, state: State, client: int) -> tuple[Tree, Tree, Tensor]:
    """(update, next private state, loss) of one client."""
    work = _everybody(alg, federation)
    ctx = context(alg, state.server, state.privates[client], client, work, federation)
    return run_client(alg, ctx, map(federation.take, work.batches[client]))


def _form(tree: Tree) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    return {k: (tuple(v.shape), v.dtype) for k, v in flatten(tree, whole=True).items()}


def _same(got: Tree, want: Tree, tolerance: float, what: str) -> None:
    a, b = flatten(got, whole=True), flatten(want, whole=True)
    assert a.keys() == b.keys(), f"{what} differs in {sorted(a.keys() ^ b.keys())}"
    for k, v in a.items():
        assert v.dtype == b[k].dtype, f"{what}: {k} is {v.dtype} and not {b[k].dtype}"
        if tolerance == 0:
            assert torch.equal(v, b[k]), f"{what}: {k} differs by up to {_gap(v, b[k]):.3g}, not bit for bit"
        else:
            assert _gap(v, b[k]) <= tolerance, f"{what}: {k} differs by up to {_gap(v, b[k]):.3g}"


def _without_first(v: Tensor, like: Tensor) -> Tensor:
    """v without the first client wherever it has one more of them than `like`: of a server that keeps something for
    every client."""
    for d in range(min(v.dim(), like.dim())):
        if v.shape[d] == like.shape[d] + 1:
            v = v.narrow(d, 1, like.shape[d])
    return v


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0
