"""All clients of a round together, stacked along a new first dimension: fast where the model is small.

Whole steps are left out, never examples inside a batch: at each step the clients that still have one are taken, those
with batches of the same size together, so that batch norm sees the same batches as one client at a time.
"""

import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedroute.core import Algorithm, Batch, Context
from fedroute.data.federation import Federation
from fedroute.engines.base import Answer, Work, context
from fedroute.engines.by_hand import by_hand
from fedroute.engines.gradient import as_tree, by_autograd, leaves, mapped, with_gradients
from fedroute.engines.kernels import ByChain, Plan, chain_for, descend, is_plain
from fedroute.engines.quality import quality
from fedroute.engines.sequential import answer
from fedroute.optim import Sgd
from fedroute.randomness import seed_of
from fedroute.tree import Tree, Weights, nbytes, tree_map

CACHE = 2 << 20  # bytes: a chunk of clients in the kernels' hands is fastest where it stays in a core's own cache
MEMORY = 256 << 20  # bytes of weights and batches of a chunk elsewhere
Done = tuple[int, Tree, Tensor]
RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d)


class Stacked:
    """Equals `sequential` up to rounding. Where a round cannot be stacked, because the model draws random numbers, a
    client fails or a hook does what vmap cannot, its clients go one after the other, and `declined` says why."""

    name: ClassVar[str] = "stacked"

    def __init__(self, algorithm: Algorithm, federation: Federation):
        self.algorithm, self.federation = algorithm, federation
        self.chain = chain_for(algorithm.task, federation) if type(algorithm).loss is Algorithm.loss else None
        self.plain = self.chain is not None and is_plain(algorithm)
        self.gradients = ByChain(self.chain) if self.chain else by_autograd(algorithm)
        self.twin = with_gradients(algorithm, self.gradients)
        self.quick = by_hand(algorithm)  # for clients that go one after the other
        self.declined = draws(algorithm.task.module)
        if algorithm.own:
            self.declined = "each client is sent something of its own"
        self.never = bool(self.declined)

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        done: dict[int, Answer] = {}
        for clients in [] if self.never else self._chunks(server, privates, work):
            try:
                done |= {a.client: a for a in self._together(server, privates, clients, work)}
            except Exception:  # of one client or of the stacking: one after the other it is seen which
                self.declined = traceback.format_exc()
        for client in work.clients:
            known = done.pop(client, None)
            yield known or answer(self.quick, self.federation, server, privates[client], client, work)

    def close(self) -> None:
        pass

    def _chunks(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> list[list[int]]:
        """The clients, those with more steps first, so that those who still have one are always the first ones; in
        chunks of equal length that fit the memory meant for them."""
        if not work.clients:
            return []
        sizes = {i: [rows.numel() for rows in work.batches[i]] for i in work.clients}
        order = sorted(work.clients, key=lambda i: (len(sizes[i]), sizes[i][::-1]), reverse=True)
        seen = nbytes({k: server[k] for k in self.algorithm.broadcast}) + nbytes(privates[order[0]])
        each = seen + max(max(s, default=0) for s in sizes.values()) * self.federation.x[:1].nbytes
        most = max(4, CACHE // each) if self.plain else max(2, MEMORY // (8 * each))
        count = -(-len(order) // most)
        return [order[len(order) * c // count : len(order) * (c + 1) // count] for c in range(count)]

    def _together(self, server: Tree, privates: Mapping[int, Tree], clients: list[int], work: Work) -> list[Answer]:
        """The answers of a chunk of clients, in any order. Around the steps, which draw no random numbers, each client
        has its own random state, as one after the other."""
        answers: list[Answer] = []
        with one_thread(), torch.random.fork_rng(devices=[]):
            ctxs = [context(self.algorithm, server, privates[i], i, work, self.federation) for i in clients]
            carries, states = list[Tree](), list[Tensor]()
            for i, ctx in zip(clients, ctxs, strict=True):
                seed = seed_of(work.seed, "client", work.round, self.federation.clients[i])
                torch.default_generator.manual_seed(seed)
                carries.append(self.algorithm.begin(ctx))
                states.append(torch.get_rng_state())
            batches = [work.batches[i] for i in clients]
            steps = self._plain_steps if self.plain else self._steps
            for j, carry, loss in steps(ctxs, _stack(carries), batches):
                torch.set_rng_state(states[j])
                i = clients[j]
                judged = quality(self.algorithm.task, carry["w"], self.federation, i) if work.judged else None
                update, private = self.algorithm.end(carry, ctxs[j])
                answers.append(Answer(i, len(batches[j]), _own(update), _own(private), float(loss), quality=judged))
        return answers

    def _plain_steps(self, ctxs: list[Context], carry: Tree, batches: list[list[Tensor]]) -> Iterator[Done]:
        """All steps by the kernels: (place in the chunk, last carry, mean loss) of each client."""
        assert self.chain is not None
        steps = torch.tensor([len(b) for b in batches])
        active = int((steps > 0).sum())
        losses = torch.zeros(len(ctxs), dtype=torch.float64)
        if active:
            sgd, w = self.algorithm.optimizer, _rows(carry["w"], slice(active))
            assert isinstance(sgd, Sgd)
            plan = Plan.of(batches[:active], next(iter(w.values())).dtype)
            losses[:active] = descend(self.chain, w, carry["opt"], self.federation, plan, ctxs[0].lr, sgd)
        for j in range(len(ctxs)):
            yield j, _rows(carry, j), losses[j] / steps[j].clamp(min=1)

    def _steps(self, ctxs: list[Context], carry: Tree, batches: list[list[Tensor]]) -> Iterator[Done]:
        """Step by step, as long as a client has one; a client is yielded after its last one."""
        sizes = [[rows.numel() for rows in b] for b in batches]
        private, n = _stack([c.private for c in ctxs]), len(ctxs)
        client, steps = torch.stack([c.client for c in ctxs]), torch.tensor([len(b) for b in batches])
        counts = torch.stack([c.counts for c in ctxs])
        losses = torch.zeros(n, dtype=torch.float64)
        for t in count():
            active = sum(len(b) > t for b in batches[:n])
            for j in range(active, n):
                yield j, _rows(carry, j), losses[j] / max(1, len(batches[j]))
            if not active:
                return
            if active < n:
                first, n = slice(active), active
                carry, private, client, steps = _rows(carry, first), _rows(private, first), client[first], steps[first]
                counts = counts[first]
            ctx = ctxs[0]._replace(private=private, client=client, steps=steps, counts=counts, step=torch.tensor(t))
            by_size = defaultdict[int, list[int]](list)
            for j in range(n):
                by_size[sizes[j][t]].append(j)
            parts = list[Tree]()
            for places in by_size.values():
                part, own, here = carry, ctx, _places(places)
                if len(by_size) > 1:
                    own = ctx._replace(
                        private=_rows(private, here), client=client[here], steps=steps[here], counts=counts[here]
                    )
                    part = _rows(carry, here)
                batch = self.federation.take(torch.cat([batches[j][t] for j in places]))
                batch = {k: v.unflatten(0, (len(places), -1)) for k, v in batch.items()}
                after, loss = self._step(part, batch, own)
                losses[here] += loss
                parts.append(after)
            carry = _merge(parts, [j for places in by_size.values() for j in places])

    def _step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        """One step of n clients: the leaves of `carry` and `batch` and what `ctx` has of each client are (n, ...)."""
        alg, kind = self.algorithm, type(self.algorithm)
        own = {"private": ctx.private, "client": ctx.client, "steps": ctx.steps, "counts": ctx.counts}
        if kind.step is not Algorithm.step or kind.grad is not Algorithm.grad:

            def step(carry: Tree, batch: Batch, own: Tree) -> Tree:
                after, loss = self.twin.step(carry, batch, ctx._replace(**own))
                return {"carry": after, "loss": loss}

            out = mapped(step, [carry, batch, own])
            return out["carry"], out["loss"]
        w, opt = carry["w"], carry["opt"]
        dims = [0 if k in own else None for k, v in as_tree(ctx).items() for _ in leaves({k: v})]
        g, buffers, loss = self.gradients(w, batch, ctx, dims)
        if kind.direction is Algorithm.direction and type(alg.optimizer) is Sgd:  # leaf by leaf, number by number
            w, opt = alg.optimizer.update(g, opt, w, ctx.lr)
        else:

            def descend(g: Weights, w: Weights, opt: Tree, own: Tree) -> Tree:
                w, opt = alg.optimizer.update(alg.direction(g, w, ctx._replace(**own)), opt, w, ctx.lr)
                return {"w": w, "opt": opt}

            out = mapped(descend, [g, w, opt, own])
            w, opt = out["w"], out["opt"]
        return carry | {"w": w | buffers, "opt": opt}, loss


def draws(module: nn.Module) -> str:
    """Why a module's forward pass draws random numbers, which cannot be stacked; "" where it does not."""
    for m in module.modules():
        if m.training and isinstance(m, RANDOM) and getattr(m, "p", True):
            return f"the model has {type(m).__name__}, which draws random numbers client by client"
    return ""


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, so that results do not depend on the cores at hand."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _stack(trees: Sequence[Tree]) -> Tree:
    return tree_map(lambda *leaves: torch.stack(leaves), *trees)


def _rows(tree: Tree, here: int | slice | Tensor) -> Tree:
    return tree_map(lambda v: v[here], tree)


def _places(places: list[int]) -> slice | Tensor:
    """An index of these places: a slice, which copies nothing, where they follow one another."""
    first, last = places[0], places[-1]
    return slice(first, last + 1) if last - first + 1 == len(places) else torch.tensor(places)


def _merge(parts: Sequence[Tree], places: Sequence[int]) -> Tree:
    """One tree of the parts, each client again at its place."""
    if len(parts) == 1:
        return parts[0]
    back = torch.tensor(places).argsort()
    ordered = bool((back[1:] > back[:-1]).all())
    return tree_map(lambda *leaves: torch.cat(leaves) if ordered else torch.cat(leaves)[back], *parts)


def _own(tree: Tree) -> Tree:
    """The tree with leaves that do not keep the memory of a whole chunk."""
    return tree_map(lambda v: v.clone() if v.untyped_storage().nbytes() > v.nbytes else v, tree)
