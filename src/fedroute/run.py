"""What a training leaves behind: the state, the ledger, and how to use them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

import fedroute
from fedroute.config import Training
from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.evaluate.describe import describe
from fedroute.evaluate.ledger import Ledger
from fedroute.evaluate.predict import predict
from fedroute.manifest import manifest
from fedroute.rounds import State, judged
from fedroute.router.router import Router
from fedroute.say import Say
from fedroute.tree import Weights, sha256


@dataclass
class Run:
    """A finished training and how to use it."""

    federation: Federation
    algorithm: Algorithm
    training: Training
    seed: int
    engine: str  # which one, and why where "auto" chose
    state: State
    ledger: Ledger
    seconds: dict[str, float]  # train_s, evaluate_s, alone_s, of this process
    samples: int  # training rows that this process went through, without those of the alone baseline
    validation: dict[str, Any]  # how the final models do on validation rows, as curve_point says it
    out: Path | None = None
    say: list[Say] = field(default_factory=list)  # of each client, as it was told before training
    router: Router | None = None
    routing: dict[str, Any] | None = None  # what the router is worth on test rows, as summary.json says it

    @property
    def failed(self) -> bool:
        """Whether a round was void: fewer clients than the quorum answered well."""
        return bool(self.state.void_rounds)

    @property
    def judged(self) -> bool:
        """Whether clients sent how well they do on their validation rows."""
        return judged(self.algorithm, self.federation, self.training)

    def personal(self, client: str | int) -> Weights:
        """The weights that this client, given by name or number, predicts with."""
        i = self.federation.clients.index(client) if isinstance(client, str) else client
        return self.algorithm.personal(self.state.server, self.state.privates[i])

    def predict(self, client: str | int, x: Tensor) -> Tensor:
        """(B, K) logits of this client's model for x (B, ...), encoded as the federation's."""
        return predict(self.algorithm.predictor(), self.personal(client), x)

    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        options = self.algorithm.describe()
        state, names, rounds = self.state, self.federation.clients, max(1, self.state.round)
        return {
            "schema": 1,
            "version": fedroute.__version__,
            "algorithm": options.pop("name"),
            "algorithm_options": options,
            "rounds": state.round,
            "seed": self.seed,
            "engine": self.engine,
            **self.ledger.summary(),
            **({"routing": self.routing} if self.routing else {}),
            "validation": self.validation,
            "federation": describe(self.federation),
            "notes": list(self.federation.notes),
            "traffic": {"up_bytes": state.up_bytes // rounds, "down_bytes": state.down_bytes // rounds},
            "manifest": [entry.row() for entry in manifest(self.algorithm, self.federation, self.judged)],
            "say": {s.client: s.say for s in self.say},
            **({"quality": state.quality} if self.judged else {}),
            "weights_sha256": {
                "server": sha256(state.server["w"]),
                "clients": {names[i]: sha256(p) for i, p in sorted(state.privates.items())},
            },
            "quarantined": [q._asdict() for q in state.quarantined],
            "void_rounds": state.void_rounds,
            "evaluate_every": state.evaluate_every,
            "time": self.seconds | {"samples_per_s": round(self.samples / max(self.seconds["train_s"], 1e-9), 1)},
        }
