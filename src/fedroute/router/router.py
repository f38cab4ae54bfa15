"""A router in use: queries in; client, answer, reason and runner-up, or an abstention, out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from fedroute.core import Algorithm
from fedroute.data.queries import QueryForm
from fedroute.data.spec import nearest
from fedroute.errors import InputError
from fedroute.evaluate.predict import predict
from fedroute.router.abstain import Abstain
from fedroute.router.aggregator import Aggregator
from fedroute.router.answers import Answering, log_probabilities
from fedroute.router.base import Posterior
from fedroute.router.because import because, unseen
from fedroute.router.calibrate import Temperatures
from fedroute.router.capacity import Capacity
from fedroute.router.cells import Cells
from fedroute.router.inputs import RouterInput
from fedroute.router.models import Models
from fedroute.router.routed import Routed
from fedroute.router.rules import RULES, decide, log_posterior, utility, without
from fedroute.router.scores import Decision, Scores
from fedroute.router.stored import read_router, write_router
from fedroute.router.upload import Upload, upload_of
from fedroute.task import Loss
from fedroute.tree import Weights
from fedroute.words import one_or_more

NUMBERS = 1 << 24  # of the clients' answers that are held at once


@dataclass(frozen=True, eq=False)
class Router:
    """N clients with a model each, and what decides between them. Nothing in it depends on whose a query is.

    clients, labels: names, in the order of all numbers here. kind: of the posterior. rule: see `rules`. best: the
    client that is best alone on validation rows. law: (N,) by which clients send queries; None: as in training. common:
    whether the global model, where there is one, is a voice.
    temperatures, aggregator: what is made of the posterior and the answers before the rule. capacity: the largest share
    of a batch of queries that each client takes. mean: (F,) of the training rows of a table, by which it is told what a
    query has of its own. abstain: who is turned away, by what `seen` reads, a router's input
    without random features; None: nobody. chosen: what was chosen and tried, on validation rows, as plain values."""

    clients: tuple[str, ...]
    labels: tuple[str, ...]
    form: QueryForm
    models: Models
    read: RouterInput
    kind: str
    posterior: Posterior
    rule: str
    best: int | None = None
    law: Tensor | None = None
    common: bool = True
    temperatures: Temperatures | None = None
    aggregator: Aggregator | None = None
    capacity: Capacity | None = None
    mean: Tensor | None = None
    seen: RouterInput | None = None
    abstain: Abstain | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    answering: Answering = field(init=False, repr=False)

    def __post_init__(self) -> None:
        probe = torch.zeros(2, *self.form.shape, dtype=torch.uint8 if self.form.whole else torch.float32)
        object.__setattr__(self, "answering", Answering.of(self.models.task, self.models.personal, probe))

    # in use

    def encode(self, queries: Any) -> Tensor:
        """x (B, ...) as the models take it, of a tensor of such rows or of a table: see `QueryForm.encode`.

        Raises InputError for what the models cannot take."""
        return self.form.encode(queries)

    def scores(self, queries: Any) -> Scores:
        """What is known of the queries before a rule decides."""
        x = self.encode(queries)
        return self._scores(x, self.answering(x))

    def _scores(self, x: Tensor, heads: Tensor, common: bool = True) -> Scores:
        """common: whether the global model is asked as well."""
        z, w = self.read.read(x), self.models.common if self.common and common else None
        scores = Scores(
            self.posterior.logits(z),
            self.posterior.prior,
            heads,
            None if w is None else log_probabilities(predict(self.models.task, w, x)),
            self.posterior.of_labels(z) if isinstance(self.posterior, Cells) else None,
        )
        scores = self.temperatures.apply(scores) if self.temperatures else scores
        return self.aggregator(scores) if self.aggregator else scores

    def route(self, queries: Any, away: Iterable[str] = ()) -> Routed:
        """Who answers, and what. queries: (B, ...) or a table, as for `encode`. away: clients that cannot be asked now.

        Raises InputError for queries that the models cannot take, and for clients that are not there."""
        x = self.encode(queries)
        gone = [self.place(c) for c in one_or_more(away)]
        chunk = max(1, NUMBERS // max(1, len(self.clients) * len(self.labels)))
        parts = [self._routed(part, gone) for part in x.split(chunk)] if len(x) else [self._routed(x, gone)]
        return parts[0] if len(parts) == 1 else Routed.together(parts)

    def place(self, client: str) -> int:
        """The number of a client. Raises InputError where there is none of that name."""
        if client not in self.clients:
            raise InputError(f"router: no client {client!r}{nearest(client, self.clients)}")
        return self.clients.index(client)

    def _routed(self, x: Tensor, away: Sequence[int]) -> Routed:
        scores, decision = self._decided(x, away)
        if self.capacity and len(x):
            decision = self._within(self.capacity, scores, decision)
        law = torch.ones_like(scores.prior) if self.rule == "density" else self.law
        p = log_posterior(scores, law).exp()
        abstained = self.refuses(x, scores)
        return Routed(self.clients, self.labels, self.rule, decision, p, abstained, self._because(x, away),
                      unseen(self.form.table, x))  # fmt: skip

    def _decided(self, x: Tensor, away: Sequence[int]) -> tuple[Scores, Decision]:
        """Where who answers does not depend on the answers nobody else is asked, unless what comes is NaN; nor is the
        global model, where it has no voice in the rule."""
        common = "common" in RULES[self.rule].needs
        if RULES[self.rule].asks == "one" and not self.capacity and not self.aggregator:
            scores = self._scores(x, torch.zeros(len(x), len(self.clients), 1, dtype=torch.float64), common)
            scores = without(scores, away) if away else scores
            decision = self.decide(scores)
            answer = self._answers(x, decision.client)
            if not bool(answer.isnan().any()):
                return scores, decision._replace(answer=answer)
        scores = self._scores(x, self.answering(x), common)
        scores = without(scores, away) if away else scores
        return scores, self.decide(scores)

    def _answers(self, x: Tensor, client: Tensor) -> Tensor:
        """(B, K), the probabilities of the labels by the model of each query's client (B,)."""
        found = torch.zeros(len(x), len(self.labels), dtype=torch.float64)
        for i in client.unique().tolist():
            mine = client == i
            log_p = log_probabilities(predict(self.models.task, self.models.personal[i], x[mine]))
            found[mine] = log_p.exp() if self.temperatures is None else (log_p / self.temperatures.heads[i]).softmax(1)
        return found

    def decide(self, scores: Scores) -> Decision:
        """What the rule in use makes of the scores, without limits on what a client takes."""
        law = scores.prior if self.rule == "arrival" and self.law is None else self.law
        return decide(self.rule, scores, arrival=law, best=self.best)

    def refuses(self, x: Tensor, scores: Scores) -> Tensor:
        """(B,) bool, which of the encoded queries are unlike the rows of any client that may be asked."""
        if self.abstain is None or self.seen is None:
            return torch.zeros(len(x), dtype=torch.bool)
        return self.abstain.refuses(self.seen.read(x), scores)

    def _within(self, capacity: Capacity, scores: Scores, free: Decision) -> Decision:
        """The decision where no client takes more of these queries than its share: whoever has no place with the client
        that the rule would ask is sent where the loss is least."""
        worth = utility(self.rule, scores, arrival=self.law, best=self.best)
        client = capacity.assign(worth).client
        moved, rows = (client != free.client) & (client >= 0), torch.arange(len(client))
        answer = torch.where(moved[:, None], scores.heads[rows, client].exp(), free.answer)
        score = torch.where(moved, worth[rows, client].clamp(0, 1), free.score)
        return Decision(client, answer, score, torch.where(moved, free.client, free.second))

    def _because(self, x: Tensor, away: Sequence[int]) -> list[str]:
        def logits(x: Tensor) -> Tensor:
            found = self.posterior.logits(self.read.read(x))
            found[:, list(away)] = -torch.inf
            return found

        return because(self.form.table, self.mean, x, logits)

    # who is there

    def upload(self, rows: Any, y: Tensor | None = None) -> Upload:
        """What a client sends of its rows, (n, ...) or a table, to be reachable: sums of what the router reads; by
        label, y (n,), where the router is of kind cells."""
        return upload_of(self.encode(rows), y, len(self.labels), self.posterior, self.read, self.seen)

    def join(self, client: str, weights: Weights, upload: Upload) -> Self:
        """With one more client: its name, the weights it predicts with, and the sums of its rows (`upload`). The routes
        of the others among themselves stay as they are.

        Raises InputError for a name that is there, weights of another model, or a posterior that nobody can join."""
        if client in self.clients:
            raise InputError(f"router: client {client!r} is there already; let it leave first")
        if not hasattr(self.posterior, "join"):
            raise InputError(
                f"router: nobody can join a router of kind {self.kind} without a new fit; take lda or ridge"
            )
        if not isinstance(weights, Mapping) or not isinstance(upload, Upload):
            raise InputError(f"router: {client} joins with the weights it predicts with and what `upload` makes of its "
                             "rows")  # fmt: skip
        expected = self.models.task.init()
        if differ := sorted(k for k in {*expected, *weights} if k not in weights or k not in expected):
            raise InputError(
                f"router: the weights of {client} are of another model: {differ[0]} is in one of them only"
            )

        def more(v: Tensor | None, new: float) -> Tensor | None:
            return None if v is None else torch.cat([v, v.new_tensor([new])])

        warm, capacity = self.temperatures, self.capacity
        return replace(
            self,
            clients=(*self.clients, client),
            models=replace(self.models, personal=(*self.models.personal, weights)),
            posterior=self.posterior.join(upload.sums),
            law=more(self.law, 0.0 if self.law is None else float(self.law.mean())),
            temperatures=warm and warm._replace(heads=torch.cat([warm.heads, warm.heads.median().reshape(1)])),
            aggregator=self.aggregator and self.aggregator.join(),
            abstain=self.abstain and self.abstain.join(upload.seen),
            capacity=capacity and Capacity(torch.cat([capacity.share, torch.ones(1, dtype=torch.float64)])),
        )

    def leave(self, client: str) -> Self:
        """Without that client, which is then never chosen; the routes of the others among themselves stay."""
        i = self.place(client)
        if len(self.clients) == 1:
            raise InputError(f"router: {client} is the only client: nobody would be left to answer")
        kept = [k for k in range(len(self.clients)) if k != i]
        warm, capacity = self.temperatures, self.capacity
        best = self.best - (self.best > i) if self.best not in (None, i) else None
        return replace(
            self,
            clients=tuple(self.clients[k] for k in kept),
            models=replace(self.models, personal=tuple(self.models.personal[k] for k in kept)),
            posterior=self.posterior.leave(i),  # type: ignore[attr-defined]
            best=best,
            law=None if self.law is None else self.law[kept],
            temperatures=warm and warm._replace(heads=warm.heads[kept]),
            aggregator=self.aggregator and self.aggregator.leave(i),
            abstain=self.abstain and self.abstain.leave(i),
            capacity=capacity and Capacity(capacity.share[kept]),
        )

    # on disk

    def save(self, folder: Path | str) -> None:
        """Writes the router, with the models of all clients, into `folder`/router: whole, or as it was before."""
        write_router({f.name: getattr(self, f.name) for f in fields(self) if f.init}, Path(folder))

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        model: nn.Module | None = None,
        roles: dict[str, str] | None = None,
        loss: Loss | None = None,
        algorithm: Algorithm | None = None,
    ) -> Self:
        """The router in a run directory (or in its folder `router`), without the data it was made from. model (with its
        roles and loss), algorithm: those of the training, where they are not of fedroute's own.

        Raises InputError where there is none, where a file is not what was written, or where a model is needed."""
        return cls(**read_router(Path(folder), model, roles, loss, algorithm))
