"""Who should answer a query, decided without any client's model: small enough to be sent to whoever asks."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from fedroute.core import Algorithm
from fedroute.data.queries import QueryForm
from fedroute.durable import write
from fedroute.errors import InputError
from fedroute.options import nearest
from fedroute.router.abstain import Abstain
from fedroute.router.aggregator import Aggregator
from fedroute.router.base import Posterior
from fedroute.router.because import because, unseen
from fedroute.router.calibrate import cooled_router
from fedroute.router.inputs import RouterInput
from fedroute.router.packing import packed, unpacked
from fedroute.router.routed import Routed
from fedroute.router.rules import log_posterior, picked, ranked, without
from fedroute.router.scores import Decision, Scores
from fedroute.router.upload import Upload, upload_of
from fedroute.words import one_or_more

if TYPE_CHECKING:
    from fedroute.router.router import Router

NUMBERS = 1 << 24  # of clients times labels that are held at once, as in a router
RULES = ("density", "posterior", "arrival")


@dataclass(frozen=True, eq=False)
class Choices:
    """Of B queries. routed: client, score, runner-up, posterior, reason, and no answer; order: (B, N) int64, whom
    to ask first, second, ...; -1 where there is nobody left."""

    routed: Routed
    order: Tensor

    def __len__(self) -> int:
        return len(self.order)

    def rows(self) -> list[dict[str, Any]]:
        """A line for each query: {client, score, runner_up, abstained, reason, posterior, order: names}. client, score
        are None, and order is empty, where nobody should be relied on; runner_up is then the nearest."""
        names = self.routed.clients
        kept = ("client", "score", "runner_up", "abstained", "reason", "posterior")
        return [
            {k: row[k] for k in kept} | {"order": [] if row["abstained"] else [names[i] for i in order if i >= 0]}
            for row, order in zip(self.routed.rows(), self.order.tolist(), strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Guide:
    """What of a router decides who is asked, for rules that need nobody's answer: it routes as that router does, bit
    for bit, wherever all clients' models answer with numbers. Fields as of `Router`.

    rule: density, posterior or arrival. made_of: by which the model that is read can be built again, where one is.
    temperature: () of the posterior alone. aggregator: its part that is of the posterior.

    It holds statistics of the federation (what encodes a query; of each client what posterior and abstention are
    made of, such as means), no rows, no client's model, nor the shared head."""

    clients: tuple[str, ...]
    labels: tuple[str, ...]
    form: QueryForm
    read: RouterInput
    kind: str
    posterior: Posterior
    rule: str
    made_of: Mapping[str, Any] = field(default_factory=dict)
    law: Tensor | None = None
    temperature: Tensor | None = None
    aggregator: Aggregator | None = None
    mean: Tensor | None = None
    seen: RouterInput | None = None
    abstain: Abstain | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises InputError for a rule that needs the clients' answers."""
        if self.rule not in RULES:
            raise InputError(f"router.rule: {self.rule} needs the clients' answers, and a guide has none; take one of "
                             f"{', '.join(RULES)}")  # fmt: skip

    @classmethod
    def of(cls, router: "Router") -> Self:
        """A router's guide. A rule that needs the answers becomes `arrival` where a law of arrival is stated, else
        `posterior`; limits on what clients take, and an abstention by how unsure answers are, are left out. `chosen`
        says so."""
        rule, said = router.rule, list[str]()
        if rule not in RULES:
            rule = "posterior" if router.law is None else "arrival"
            said.append(f"rule {rule}: {router.rule} needs the clients' answers")
        abstain = router.abstain
        if abstain and "entropy" in abstain.using:
            abstain = None
            said.append("nobody is turned away: how unsure answers are is not known before they are given")
        if router.capacity:
            said.append("no limits on what a client takes: those are of a batch, and queries come one by one")
        mix, form = router.aggregator, router.form
        if form.table and form.table.clients:  # a query is encoded by what is known of all together
            form = form.model_copy(update={"table": form.table.model_copy(update={"clients": {}})})
        return cls(
            router.clients, router.labels, form, router.read, router.kind, router.posterior, rule,
            router.models.made_of, router.law,
            router.temperatures.router if router.temperatures else None,
            mix and Aggregator(mix.sharp, mix.lean, mix.heat, mix.bias[:, :1]),
            router.mean, router.seen if abstain else None, abstain,
            {k: v for k, v in router.chosen.items() if k != "tried"} | {"rule": rule, "guide": said},
        )  # fmt: skip

    def apart(self) -> Self:
        """The same, reading through a copy of the model: weights are put into a model while it runs, so that two
        threads must not share one."""
        own = {id(r): replace(r, task=copy.deepcopy(r.task)) for r in (self.read, self.seen) if r is not None}
        for read in own.values():
            if read.task is not None:
                read.task.module.eval()
        return replace(self, read=own[id(self.read)], seen=self.seen and own[id(self.seen)])

    def encode(self, queries: Any) -> Tensor:
        """x (B, ...), as `Router.encode`. Raises InputError for what the models cannot take."""
        return self.form.encode(queries)

    def choose(self, queries: Any, away: Iterable[str] = (), *, why: bool = True) -> Choices:
        """Whom to ask. queries: (B, ...) or a table; away: clients that cannot be asked now; why: whether it is looked
        for what speaks for it, which `because` does too.

        Raises InputError for queries that cannot be encoded, and for clients that are not there."""
        x, gone = self.encode(queries), [self.place(c) for c in one_or_more(away)]
        chunk = max(1, NUMBERS // max(1, len(self.clients) * len(self.labels)))
        parts = [self._chosen(part, gone, why) for part in (x.split(chunk) if len(x) else [x])]
        if len(parts) == 1:
            return parts[0]
        return Choices(Routed.together([p.routed for p in parts]), torch.cat([p.order for p in parts]))

    def place(self, client: str) -> int:
        """The number of a client. Raises InputError where there is none of that name."""
        if client not in self.clients:
            raise InputError(f"router: no client {client!r}; {nearest(client, self.clients)}")
        return self.clients.index(client)

    def _chosen(self, x: Tensor, away: Sequence[int], why: bool) -> Choices:
        z = self.read.read(x)
        scores = self._scores(z)
        scores = without(scores, away) if away else scores
        law = scores.prior if self.rule == "arrival" and self.law is None else self.law
        worth, log_p = picked(self.rule, scores, arrival=law)
        order = ranked(worth, log_p, max(2, len(self.clients)))
        client, second = order[:, 0], order[:, 1]
        score = worth.gather(1, client[:, None])[:, 0].clamp(0, 1)
        nothing = torch.zeros(len(x), len(self.labels), dtype=torch.float64)
        decision = Decision(client, nothing, score, second)
        if self.rule == "posterior" and law is not None:
            log_p = log_posterior(scores, law)
        words = self._because(x, away) if why else ()
        refused = self._refused(x, z, scores)
        return Choices(
            Routed(
                self.clients, self.labels, self.rule, decision, log_p.exp(), refused, words, unseen(self.form.table, x)
            ),
            order[:, : len(self.clients)],
        )

    def because(self, x: Tensor, away: Iterable[str] = ()) -> list[str]:
        """Of each encoded query what speaks for its likeliest client, as `Routed.because`. Others as for `choose`."""
        return self._because(x, [self.place(c) for c in one_or_more(away)])

    def _because(self, x: Tensor, away: Sequence[int]) -> list[str]:
        return because(self.form.table, self.mean, x, lambda x: self._logits(x, away))

    def _scores(self, z: Tensor) -> Scores:
        """Without answers: a single label, which everybody finds certain."""
        heads = torch.zeros(len(z), len(self.clients), 1, dtype=torch.float64)
        scores = Scores(self.posterior.logits(z), self.posterior.prior, heads)
        if self.temperature is not None:
            scores = scores._replace(router=cooled_router(scores, float(self.temperature)))
        return self.aggregator(scores) if self.aggregator else scores

    def _logits(self, x: Tensor, away: Sequence[int]) -> Tensor:
        found = self.posterior.logits(self.read.read(x))
        found[:, list(away)] = -torch.inf
        return found

    def _refused(self, x: Tensor, z: Tensor, scores: Scores) -> Tensor:
        if self.abstain is None or self.seen is None:
            return torch.zeros(len(x), dtype=torch.bool)
        return self.abstain.refuses(z if self.seen is self.read else self.seen.read(x), scores)

    # who is there

    def upload(self, rows: Any, y: Tensor | None = None) -> Upload:
        """What a client sends of its rows to be reachable, as `Router.upload`."""
        return upload_of(self.encode(rows), y, len(self.labels), self.posterior, self.read, self.seen)

    def join(self, client: str, upload: Upload) -> Self:
        """With one more client, by the sums of its rows. The routes of the others among themselves stay as they are.

        Raises InputError for a name that is there, and a posterior that nobody can join."""
        if client in self.clients:
            raise InputError(f"router: client {client!r} is there already; let it leave first")
        if not hasattr(self.posterior, "join"):
            raise InputError(
                f"router: nobody can join a router of kind {self.kind} without a new fit; take lda or ridge"
            )
        law = self.law
        return replace(
            self,
            clients=(*self.clients, client),
            posterior=self.posterior.join(upload.sums),
            law=None if law is None else torch.cat([law, law.mean().reshape(1)]),
            aggregator=self.aggregator and self.aggregator.join(),
            abstain=self.abstain and self.abstain.join(upload.seen),
        )

    def leave(self, client: str) -> Self:
        """Without that client, which is then never chosen. Raises InputError where nobody would be left."""
        i = self.place(client)
        if len(self.clients) == 1:
            raise InputError(f"router: {client} is the only client: nobody would be left to answer")
        kept = [k for k in range(len(self.clients)) if k != i]
        return replace(
            self,
            clients=tuple(self.clients[k] for k in kept),
            posterior=self.posterior.leave(i),  # type: ignore[attr-defined]
            law=None if self.law is None else self.law[kept],
            aggregator=self.aggregator and self.aggregator.leave(i),
            abstain=self.abstain and self.abstain.leave(i),
        )

    # as bytes

    def packed(self) -> bytes:
        """One safetensors file, whose metadata hold the rest as JSON: for a download, or a disk. No pickles."""
        return packed({name: getattr(self, name) for name in self.__dataclass_fields__})

    @classmethod
    def unpacked(
        cls,
        data: bytes,
        *,
        model: nn.Module | None = None,
        roles: dict[str, str] | None = None,
        algorithm: Algorithm | None = None,
    ) -> Self:
        """What `packed` was taken of. model (with its roles), algorithm: those of the training, where they are not of
        fedroute's own and are read. Nothing in the bytes is run as code.

        Raises InputError where they are no guide, or a model is needed."""
        return cls(**unpacked(data, model, roles, algorithm))

    def save(self, path: Path | str) -> None:
        """Writes `packed` to a file: whole, or as it was before."""
        write(Path(path), self.packed())

    @classmethod
    def load(cls, path: Path | str, **options: Any) -> Self:
        """The guide in a file; options as of `unpacked`. Raises InputError where there is none."""
        try:
            data = Path(path).read_bytes()
        except OSError as e:
            raise InputError(
                f"{path}: cannot be read ({e.strerror}); name the file that a guide was saved to"
            ) from None
        try:
            return cls.unpacked(data, **options)
        except InputError as e:
            raise InputError(f"{path}: {e}") from None
