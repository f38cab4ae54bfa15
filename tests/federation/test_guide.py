"""A guide made of sums of sites is the guide of a router that a simulation makes of the rows."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute.data.load import load_federation
from fedroute.errors import InputError
from fedroute.federation.agreement import Agreement
from fedroute.federation.guide_fit import fit_guide, joined, width_of
from fedroute.federation.guide_sums import answer
from fedroute.federation.transport import Payload, check
from fedroute.rounds import weighting_of
from fedroute.router.drm import Drm
from fedroute.router.guide import Guide
from fedroute.router.router import Router
from fedroute.router.spec import RouterSpec
from fedroute.run import Run
from fedroute.training import fit
from tests.federation.agreeing import Sites

SPEC: dict[str, Any] = {"source": "bundled", "name": "digits"}
OFFICES = ("archive", "bank", "clinic", "library", "post_office", "school")


@cache
def agreed(newcomers: tuple[str, ...] = ()) -> tuple[Sites, Agreement, dict[str, Any]]:
    spec = SPEC | ({"newcomers": list(newcomers)} if newcomers else {})
    sites = Sites(Path(), {c: {} for c in OFFICES})
    return sites, sites.agree(spec, seed=2), spec


def run(spec: Mapping[str, Any], algorithm: Any, router: Mapping[str, Any]) -> Run:
    return fit(
        load_federation(spec, seed=2), "mlp", algorithm, seed=2, rounds=3, batch_size=32, lr=0.1, alone=False,
        engine="sequential", router=dict(router), log=lambda text: None,
    )  # fmt: skip


def asking(sites: Sites, agreement: Agreement, done: Run, sent: list[int]) -> Any:
    def ask(payloads: Mapping[str, Payload]) -> dict[str, Payload]:
        found = {}
        for c, payload in payloads.items():
            task, shared = done.algorithm.task, done.state.server["w"]
            told = answer(sites.own(c), agreement.for_site(c), agreement.place(c), task, shared, check(payload))
            found[c] = check(told)
            sent.append(sum(len(v) for v in told.values() if isinstance(v, bytes)))
        return found

    return ask


def guided(
    done: Run, sites: Sites, agreement: Agreement, router: Mapping[str, Any], gone: tuple[str, ...] = ()
) -> tuple[Guide, list[int]]:
    weighting = weighting_of(done.algorithm, done.federation, done.training)
    shares, sent = weighting.say(weighting.counted(done.federation)), list[int]()
    made = fit_guide(
        agreement, RouterSpec(**router), done.algorithm.task, done.state.server["w"], shares,
        asking(sites, agreement, done, sent), made_of={"model": {"name": "mlp"}, "algorithm": {}, "seed": 2}, seed=2,
        gone=gone, log=lambda text: None,
    )  # fmt: skip
    return made, sent


@pytest.mark.parametrize(
    ("algorithm", "router", "newcomers"),
    [
        ("fedavg", {"kind": "lda", "input": ["style"]}, ()),
        ("fedavg", {"kind": "ridge", "input": ["style", "deep"], "random_features": 0, "rule": "density"}, ("bank",)),
        ("fedavg", {"kind": "lda", "input": ["style"], "random_features": 20, "abstain": 0.2}, ()),
        ("feddrm", {"kind": "drm", "arrival": "uniform"}, ("school",)),
    ],
)
def test_as_of_a_simulation(algorithm: str, router: dict[str, Any], newcomers: tuple[str, ...]) -> None:
    sites, agreement, spec = agreed(newcomers)
    rule = {"rule": "arrival" if "arrival" in router else "posterior"}
    done = run(spec, algorithm, {"random_features": 0} | rule | router)
    assert isinstance(done.router, Router)
    want = Guide.of(done.router)
    got, _ = guided(done, sites, agreement, router)
    assert (got.clients, got.labels, got.rule, got.kind) == (want.clients, want.labels, want.rule, want.kind)
    assert got.form == want.form
    x = done.federation.x[torch.cat(done.federation.test)]
    z, other = got.posterior.logits(got.read.read(x)), want.posterior.logits(want.read.read(x))
    torch.testing.assert_close(z, other, rtol=1e-6, atol=1e-6)
    assert got.temperature is not None
    assert want.temperature is not None
    assert float(got.temperature) == float(want.temperature)
    assert got.abstain is not None
    assert want.abstain is not None
    torch.testing.assert_close(got.abstain.threshold, want.abstain.threshold)
    mine, theirs = got.choose(x).rows(), want.choose(x).rows()
    assert [r["client"] for r in mine] == [r["client"] for r in theirs]
    assert [r["abstained"] for r in mine] == [r["abstained"] for r in theirs]
    assert 0 < sum(r["abstained"] for r in mine) < len(mine)
    torch.testing.assert_close(
        Guide.unpacked(got.packed(), algorithm=done.algorithm).choose(x).order, got.choose(x).order
    )


def test_what_is_open_is_chosen_by_validation_rows() -> None:
    sites, agreement, _ = agreed()
    done = run(SPEC, "feddrm", {"kind": "lda"})
    guide, sent = guided(done, sites, agreement, {})
    tried = guide.chosen["tried"]
    assert {t["input"] for t in tried} == {"style", "deep", "style, deep", "branch"}
    assert guide.chosen["owner_loss"] == min(t["owner_loss"] for t in tried)
    assert len(sent) == 7 * len(OFFICES)  # totals, squares, sums, losses, grid, own, nearest
    width = width_of(("style", "deep"), done.algorithm.task, done.state.server["w"], done.federation)
    assert guide.chosen["upload_bytes"] > 8 * width * width / 2
    rows = guide.choose(done.federation.x[done.federation.test[0]]).rows()
    assert sum(r["client"] == OFFICES[0] for r in rows) > len(rows) / 2


def test_who_comes_later() -> None:
    sites, agreement, _ = agreed(("school",))
    done = run(SPEC | {"newcomers": ["school"]}, "fedavg", {"kind": "lda"})
    guide, sent = guided(done, sites, agreement, {"kind": "lda", "input": ["style"]})
    assert guide.clients == (*OFFICES[:5], "school")
    again = joined(guide.leave("school"), "school", asking(sites, agreement, done, sent))
    x = done.federation.x[done.federation.test[5]]
    torch.testing.assert_close(again.choose(x).order, guide.choose(x).order)
    assert sum(r["client"] == "school" for r in guide.choose(x).rows()) > len(x) / 2


@pytest.mark.parametrize("algorithm", ["fedavg", "feddrm"])
def test_who_has_left(algorithm: str) -> None:
    sites, agreement, _ = agreed(("school",))
    done = run(SPEC | {"newcomers": ["school"]}, algorithm, {"kind": "lda"})
    kind = {"kind": "drm"} if algorithm == "feddrm" else {"kind": "lda", "input": ["style"]}
    guide, _ = guided(done, sites, agreement, kind, gone=("bank", "school"))
    assert guide.clients == ("archive", "clinic", "library", "post_office")
    if isinstance(guide.posterior, Drm):
        assert guide.posterior.place.tolist() == [0, 2, 3, 4]  # columns of the branch
    for i in (2, 4) if algorithm == "fedavg" else ():
        rows = guide.choose(done.federation.x[done.federation.test[i]]).rows()
        assert sum(r["client"] == OFFICES[i] for r in rows) > len(rows) / 2
    with pytest.raises(InputError, match="no site that trained is left"):
        guided(done, sites, agreement, kind, gone=OFFICES)


@pytest.mark.parametrize(
    ("router", "says"),
    [({"kind": "softmax"}, "fitted to rows"), ({"kind": "drm"}, "algorithm feddrm"), ({"input": ["columns"]}, "tables"),
     ({"input": ["style"], "random_features": 700}, "1400 numbers a row")],
)  # fmt: skip
def test_refused(router: dict[str, Any], says: str) -> None:
    sites, agreement, _ = agreed()
    done = run(SPEC, "fedavg", {"kind": "lda", "input": ["style"]})
    with pytest.raises(InputError, match=says):
        guided(done, sites, agreement, router)


def test_a_site_answers_nothing_else() -> None:
    sites, agreement, _ = agreed()
    done = run(SPEC, "fedavg", {"kind": "lda", "input": ["style"]})
    task, shared = done.algorithm.task, done.state.server["w"]
    good: Payload = {"what": "rows", "spec": "{}", "tensors": b""}
    for payload, says in (
        ({}, "without tensors"),
        (good, "that is none"),
        (good | {"tensors": guide_bytes()}, "no question 'rows'"),
        (good | {"tensors": guide_bytes(), "what": "totals"}, "does not fit"),
    ):
        with pytest.raises(InputError, match=says):
            answer(sites.own("bank"), agreement, 1, task, shared, payload)


def guide_bytes() -> bytes:
    from fedroute.federation import wire

    return wire.encode({"none": torch.zeros(0)})
