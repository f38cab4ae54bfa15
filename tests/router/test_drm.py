"""FedDRM's branch as a router: its own logits, the paper's rule, and nobody without rows."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedroute import Router
from fedroute.evaluate.predict import predict
from fedroute.router.drm import Drm
from fedroute.run import Run
from tests.router.runs import opposed, ran


@pytest.fixture(scope="module")
def run() -> Run:
    options = {"model": {"name": "mlp", "hidden": [8]}, "rounds": 6, "lr": 0.3}
    return ran(opposed(rows=80), "feddrm", router={"kind": "drm", "rule": "density"}, **options)


def test_the_logits_are_those_of_the_branch(run: Run) -> None:
    router, f = run.router, run.federation
    assert router
    assert isinstance(router.posterior, Drm)
    x = f.x[torch.cat(f.test)]
    plain = predict(run.algorithm.router(), run.state.server["w"], x).double()  # type: ignore[attr-defined]
    found = router.posterior.logits(router.read.read(x))
    assert torch.allclose(found, plain, atol=1e-5)
    assert torch.allclose(router.posterior.prior, torch.full((3,), 1 / 3).double())


def test_equal_clients_make_density_and_posterior_one_rule_to_the_last_bit(run: Run) -> None:
    router, f = run.router, run.federation
    assert router
    x = f.x[torch.cat(f.test)]
    a, b = (replace(router, rule=rule).route(x).decision for rule in ("density", "posterior"))
    assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def test_it_survives_the_disk_and_who_leaves_is_gone(run: Run, tmp_path: Path) -> None:
    router, f = run.router, run.federation
    assert router
    x = f.x[torch.cat(f.test)]
    router.save(tmp_path)
    assert torch.equal(Router.load(tmp_path).route(x).decision.answer, router.route(x).decision.answer)
    left = router.leave("ash")
    before, after = router.scores(x).router[:, 1:], left.scores(x).router
    assert torch.allclose(before - before[:, :1], after - after[:, :1], atol=1e-9)


def test_a_client_without_training_rows_attracts_nothing() -> None:
    f = opposed(rows=60)
    none = torch.zeros(0, dtype=torch.int64)
    empty = replace(f, train=(f.train[0], none, f.train[2]), validation=(f.validation[0], none, f.validation[2]))
    for kind in ("drm", "lda"):
        run = ran(
            empty, "feddrm", model={"name": "mlp", "hidden": [8]}, rounds=2, router={"kind": kind, "random_features": 0}
        )
        assert run.router
        routed = run.router.route(f.x[f.test[1]])
        assert (routed.posterior[:, 1] == 0).all()
        assert not (routed.decision.client == 1).any()
