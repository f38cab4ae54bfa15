"""Fits by name: their open number chosen on validation rows, the rows of each kind read once."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.router import inputs
from fedroute.router.cells import fit_cells, gather_cells
from fedroute.router.fits import FITS, fit, owner_loss
from fedroute.router.inputs import RouterInput
from fedroute.router.lda import fit_lda
from fedroute.router.reading import Reading
from fedroute.router.ridge import fit_ridge
from fedroute.router.style import style
from fedroute.router.sums import gather, rows_of
from tests.router.laws import MEANS, federation, gaussian, hit

SIZES = [200, 120, 300, 80]


def reading(f: Federation) -> Reading:
    return Reading(f, None, {})


@pytest.mark.parametrize("kind", FITS)
def test_every_kind_tells_clients_apart(kind: str) -> None:
    f = federation(gaussian(SIZES, means=4 * MEANS))
    r = reading(f)
    read = r.of("columns")
    made = fit(kind, r, read)
    z = torch.cat([rows_of(read, f, i, "test") for i in range(4)])
    owner = torch.cat([torch.full((len(t),), i) for i, t in enumerate(f.test)])
    assert hit(made.posterior.logits(z), owner) > 0.85  # least squares mask one client by two others
    assert torch.allclose(made.posterior.prior, f.sizes().double() / f.sizes().sum())
    assert made.upload >= 8 * (1 + 3 + 6)  # counts, sums and second moments at least
    assert made.rounds >= 1


def test_it_is_the_fit_of_its_file() -> None:
    f = federation(gaussian(SIZES))
    r = reading(f)
    read, z = r.of("columns"), torch.randn(9, 3, dtype=torch.float64)
    sums = gather(RouterInput.of("columns", None, {}, f), f)
    made = {k: fit(k, r, read) for k in ("lda", "ridge", "cells")}
    want: dict[str, Any] = {
        "lda": fit_lda(sums, made["lda"].option),
        "ridge": fit_ridge(sums, made["ridge"].option),
        "cells": fit_cells(gather_cells(read, f), 2, made["cells"].option),
    }
    for kind, posterior in want.items():
        assert torch.allclose(made[kind].posterior.logits(z), posterior.logits(z), atol=1e-9)
    d = read.width
    assert made["lda"].upload == 8 * (1 + d + d * (d + 1) // 2)
    assert made["cells"].upload == made["lda"].upload + 8 * (1 + d)


def test_validation_rows_choose_the_open_number() -> None:
    """Few rows of many numbers, most of them noise: more decay than the least is chosen, for its loss on rows that the
    fit has not seen, and nothing beside those rows moves the choice."""
    rows = [
        torch.cat([z, torch.randn(len(z), 60, generator=torch.Generator().manual_seed(i), dtype=torch.float64)], 1)
        for i, z in enumerate(gaussian([60, 60, 60, 60], means=2 * MEANS))
    ]
    f = federation(rows)
    r = reading(f)
    read = r.of("columns")
    made = fit("softmax", r, read)
    held = r.rows(read, "validation")
    assert made.option > 3e-5
    least = fit("softmax", reading(replace(f, validation=tuple(v[:0] for v in f.validation))), read)
    assert least.option == 3e-5
    assert owner_loss(made.posterior, held) < owner_loss(least.posterior, held)
    spoilt = replace(f, test=tuple(t[:1] for t in f.test))
    assert fit("softmax", reading(spoilt), read).option == made.option


def test_newcomers_have_no_say_and_a_prior_of_nothing() -> None:
    f = federation(gaussian(SIZES)).with_newcomers(["c1"])
    r = reading(f)
    made = fit("lda", r, r.of("columns"))
    assert made.posterior.prior[1] == 0
    assert math.isfinite(owner_loss(made.posterior, r.rows(r.of("columns"), "validation")))


def test_each_kind_of_number_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (60, 3, 8, 8), generator=g).to(torch.uint8)
    f = Federation.from_arrays(x, torch.arange(60) % 3, [f"c{i % 4}" for i in range(60)])
    seen: list[int] = []

    def counted(part: torch.Tensor) -> torch.Tensor:
        seen.append(len(part))
        return style(part)

    monkeypatch.setitem(inputs.IMAGES, "style", counted)
    r = reading(f)
    plain, lifted = r.of("style"), r.of("style", random_features=20)
    once = sum(seen)
    for read in (plain, lifted):
        for kind in ("lda", "softmax"):
            fit(kind, r, read)
    assert once < sum(f.sizes()) + 2
    assert sum(seen) - once <= sum(f.sizes("validation")) + 1
    monkeypatch.undo()
    want = RouterInput.of("style", None, {}, f, random_features=20)
    assert all(torch.equal(a, rows_of(want, f, i)) for i, a in enumerate(r.rows(lifted)))


def test_what_does_not_fit_is_said() -> None:
    f = federation(gaussian(SIZES))
    r = reading(f)
    with pytest.raises(InputError, match=r"no fit 'ldaa'.*lda"):
        fit("ldaa", r, r.of("columns"))
    numbers: Any = replace(f, y=f.x[:, 0], labels=())
    with pytest.raises(InputError, match="cells are of labels"):
        fit("cells", reading(numbers), r.of("columns"))
