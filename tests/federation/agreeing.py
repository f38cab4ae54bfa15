"""Sites in one process: their data, and an `ask` that goes to them as messages would, as text and back."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedroute.data.federation import Federation
from fedroute.federation.agreement import Agreement, Told, counts_of, hub_federation, own_federation, reach
from fedroute.federation.form import Form
from fedroute.federation.own_rows import SiteData
from fedroute.federation.statistics import answer, settle
from fedroute.federation.survey import survey


@dataclass
class Sites:
    """source: client -> what its DATA.yaml says. calls: how often was asked what; sent: bytes that left, by it."""

    base: Path
    source: Mapping[str, Mapping[str, Any]]
    data: dict[str, SiteData] = field(default_factory=dict)
    agreed: dict[str, Agreement] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)

    def ask(self, what: str, asked: Mapping[str, Told]) -> dict[str, Told]:
        found: dict[str, Told] = {}
        for client, question in asked.items():
            text = json.dumps(self._told(client, what, json.loads(json.dumps(question))))
            found[client] = json.loads(text)
            self.calls[what] += 1
            self.sent[what] += len(text)
        return found

    def _told(self, client: str, what: str, asked: Told) -> Told:
        if what == "survey":
            self.data[client] = SiteData.read(self.source[client], self.base, asked["federation"], client)
            return survey(self.data[client], asked["as_types"])
        if what == "form":
            return counts_of(self.data[client], Form.model_validate(asked))
        assert what == "statistics"
        return answer(self.data[client], self.agreed[client], asked)

    def reach(self, spec: Mapping[str, Any], seed: int = 0) -> Agreement:
        made = reach(spec, sorted(self.source), seed, self.ask)
        for client in self.source:
            self.agreed[client] = Agreement.model_validate_json(made.for_site(client).model_dump_json())
        return Agreement.model_validate_json(made.model_dump_json())

    def settle(self, agreement: Agreement) -> Agreement:
        made = settle(agreement, self.ask)
        for client in self.source:
            self.agreed[client] = Agreement.model_validate_json(made.for_site(client).model_dump_json())
        return made

    def agree(self, spec: Mapping[str, Any], seed: int = 0) -> Agreement:
        return self.settle(self.reach(spec, seed))

    def own(self, client: str) -> Federation:
        return own_federation(self.data[client], self.agreed[client])


def same_as_simulated(sites: Sites, agreement: Agreement, simulated: Federation) -> None:
    """Every client's x, y, time and parts at its site are those of the simulation bit for bit, the schema too; and the
    hub, which has no rows, knows the same sizes and counts."""
    assert agreement.clients == simulated.clients
    assert agreement.labels == simulated.labels
    hub = hub_federation(agreement)
    for i, client in enumerate(simulated.clients):
        own = sites.own(client)
        assert own.clients == simulated.clients
        assert own.newcomers == simulated.newcomers == hub.newcomers
        assert own.columns == simulated.columns == hub.columns
        rows = torch.cat([p[i] for p in (simulated.train, simulated.validation, simulated.test)]).sort().values
        place = {r: k for k, r in enumerate(rows.tolist())}
        exact(own.x, simulated.x[rows])
        exact(own.y, simulated.y[rows])
        for part in ("train", "validation", "test"):
            assert getattr(own, part)[i].tolist() == [place[r] for r in getattr(simulated, part)[i].tolist()]
            assert sum(len(p) for p in getattr(own, part)) == len(getattr(simulated, part)[i]) == hub.sizes(part)[i]
        if simulated.time is not None:
            assert own.time is not None
            exact(own.time, simulated.time[rows])
        if simulated.pooled is not None:
            assert own.pooled is not None
            exact(own.pooled, simulated.pooled[rows])
        if simulated.table is not None:
            assert own.table is not None
            assert own.table.model_copy(update={"clients": {}}) == simulated.table.model_copy(update={"clients": {}})
            assert own.table.clients == {c: s for c, s in simulated.table.clients.items() if c == client}
    assert {*hub.notes} >= {n for n in simulated.notes if n.startswith(("table", "missing", "newcomers", "column"))}
    exact(hub.label_counts, simulated.label_counts)
    exact(hub.effective_sizes, simulated.effective_sizes)
    assert hub.x.shape == (0, *simulated.x.shape[1:])
    assert hub.x.dtype == simulated.x.dtype
    assert hub.y.dtype == simulated.y.dtype


def exact(a: torch.Tensor, b: torch.Tensor) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert torch.equal(a, b)


def lines(error: BaseException) -> Sequence[str]:
    return str(error).splitlines()
