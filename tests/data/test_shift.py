"""Shifts: exact values, bounds, and who is shifted."""

import colorsys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedroute.data.shift import (
    REACH,
    add_noise,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    apply,
    blur,
    colour,
    relabel,
    rotate,
    shift_of,
)
from fedroute.data.spec import Concept, Level, Shift
from fedroute.errors import InputError
from fedroute.randomness import generator

CLIENTS = tuple("abcdefgh")


def images(channels: int = 3, size: int = 8, count: int = 16) -> Tensor:
    return torch.rand(count, channels, size, size, generator=generator("images"))


def by_pixel(x: Tensor, turn: float) -> Tensor:
    """The hue turned by Python's colorsys, pixel by pixel."""

    def one(rgb: list[float]) -> tuple[float, float, float]:
        h, s, v = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb((h + turn) % 1, s, v)

    flat = x.permute(0, 2, 3, 1).reshape(-1, 3).tolist()
    done = torch.tensor([one(p) for p in flat])
    return done.reshape(len(x), *x.shape[2:], 3).permute(0, 3, 1, 2)


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.0, 0.1, 0.37])
def test_hue_is_that_of_colorsys(turn: float) -> None:
    x = images(count=4)
    x[0, :, 0, 0] = 0.5  # a grey pixel has no hue
    x[0, :, 0, 1] = torch.tensor([1.0, 0.0, 0.0])
    assert torch.allclose(adjust_hue(x, turn), by_pixel(x, turn), atol=1e-5)


def test_saturation_mixes_with_the_grey_image() -> None:
    x = images()
    grey = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    assert torch.allclose(adjust_saturation(x, 0.0), grey[:, None].expand_as(x), atol=1e-6)
    assert torch.allclose(adjust_saturation(x, 1.0), x, atol=1e-6)
    assert torch.allclose(adjust_saturation(x, 0.5), (x + grey[:, None]) / 2, atol=1e-6)


LEVELS: list[tuple[Level, tuple[float, float], float, tuple[float, float]]] = [
    ("low", (0.9, 1.1), 0.01, (0.9, 1.1)),
    ("mid", (0.75, 1.25), 0.05, (0.7, 1.3)),
    ("high", (0.6, 1.4), 0.1, (0.5, 1.5)),
]


@pytest.mark.parametrize(("level", "gammas", "turn", "saturations"), LEVELS)
def test_colour_takes_gamma_hue_and_saturation_from_the_bits_of_the_clients_number(
    level: Level, gammas: tuple[float, float], turn: float, saturations: tuple[float, float]
) -> None:
    x = images()
    for client in range(8):
        gamma, sign, saturation = gammas[client & 1], (-1, 1)[client >> 1 & 1], saturations[client >> 2 & 1]
        expected = adjust_gamma(adjust_hue(adjust_saturation(x, saturation), sign * turn), gamma)
        assert torch.equal(colour(x, client, level), expected)
    shifted = [colour(x, i, level) for i in range(8)]
    assert all(not torch.allclose(a, b, atol=1e-3) for k, a in enumerate(shifted) for b in shifted[:k])
    assert torch.equal(colour(x, 8, level), shifted[0])  # from the ninth client on the shifts come again


def test_rotation_by_a_quarter_is_exact_and_turns_anticlockwise() -> None:
    x = images(channels=1)
    assert torch.allclose(rotate(x, 90.0), torch.rot90(x, 1, (2, 3)), atol=1e-4)
    assert torch.allclose(rotate(x, 0.0), x, atol=1e-6)
    wide = torch.rand(2, 1, 6, 10, generator=generator("wide"))
    assert torch.allclose(rotate(wide, 180.0), wide.flip(2, 3), atol=1e-4)


def test_blur_keeps_flat_images_and_loses_detail() -> None:
    flat = torch.full((2, 3, 9, 9), 0.3)
    assert torch.allclose(blur(flat, 1.5), flat, atol=1e-6)
    x = images()
    assert torch.equal(blur(x, 0.0), x)
    assert float(blur(x, 1.0).var()) < 0.3 * float(x.var())
    point = torch.zeros(1, 1, 15, 15)
    point[0, 0, 7, 7] = 1
    spread = blur(point, 1.0)
    assert float(spread.sum()) == pytest.approx(1, abs=1e-5)
    at = torch.arange(15) - 7.0
    assert float((spread.sum((0, 1, 2)) * at**2).sum()) == pytest.approx(1.0, rel=0.05)  # variance sigma squared


def test_noise_is_drawn_by_its_key_with_its_standard_deviation() -> None:
    x = torch.full((4, 1, 50, 50), 0.5)
    a = add_noise(x, 0.1, 3, "a")
    assert torch.equal(a, add_noise(x, 0.1, 3, "a"))
    assert not torch.equal(a, add_noise(x, 0.1, 3, "b"))
    assert float(a.std()) == pytest.approx(0.1, rel=0.05)


def rows_of(count: int, clients: int = 8) -> list[Tensor]:
    return [torch.arange(i, count, clients) for i in range(clients)]


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["colour", *REACH]),
    level=st.sampled_from(["low", "mid", "high"]),
    channels=st.sampled_from([1, 3]),
    whole=st.booleans(),
)
def test_uint8_stays_uint8_float_stays_in_bounds_and_shape_stays(
    method: str, level: str, channels: int, whole: bool
) -> None:
    x = images(channels)
    x = (x * 255).round().to(torch.uint8) if whole else x
    before = x.clone()
    shift = Shift.model_validate({"method": method, "level": level})
    out = apply(x, shift, rows_of(16), CLIENTS, seed=0)
    assert out.shape == x.shape
    assert out.dtype == x.dtype
    assert whole or bool(((out >= 0) & (out <= 1)).all())
    assert torch.equal(x, before)
    assert torch.equal(out, apply(x, shift, rows_of(16), CLIENTS, seed=0))


def test_uint8_is_the_float_shift_rounded_once() -> None:
    x = (images() * 255).round().to(torch.uint8)
    out = apply(x, Shift(method="colour", level="high"), rows_of(16), CLIENTS, seed=0)
    i = 5
    expected = (colour(x[rows_of(16)[i]].float() / 255, i, "high") * 255).round().to(torch.uint8)
    assert torch.equal(out[rows_of(16)[i]], expected)


def test_only_named_clients_are_shifted_and_unknown_ones_refused() -> None:
    x = images()
    out = apply(x, Shift(method="brightness", clients=["b"]), rows_of(16), CLIENTS, seed=0)
    assert not torch.equal(out[1::8], x[1::8])
    assert torch.equal(out[0::8], x[0::8])
    with pytest.raises(InputError, match="no client 'bb'"):
        apply(x, Shift(method="brightness", clients=["bb"]), rows_of(16), CLIENTS, seed=0)
    with pytest.raises(InputError, match="needs images"):
        apply(torch.rand(16, 3), Shift(method="noise"), rows_of(16), CLIENTS, seed=0)
    with pytest.raises(InputError, match="divide them by 255"):
        apply(x * 255, Shift(method="noise"), rows_of(16), CLIENTS, seed=0)


def test_the_first_and_last_client_are_at_the_ends_of_the_reach() -> None:
    x = images()
    bright = Shift(method="brightness", level="mid")
    assert torch.allclose(shift_of(bright, 0, 5)(x), x / 1.5)
    assert torch.allclose(shift_of(bright, 2, 5)(x), x)
    assert torch.allclose(shift_of(bright, 4, 5)(x), (x * 1.5).clamp(0, 1))
    assert torch.equal(shift_of(Shift(method="noise"), 0, 5)(x), x)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 99), classes=st.integers(2, 9), share=st.sampled_from([0.1, 0.5, 1.0]))
def test_a_concept_shift_moves_every_label_of_the_chosen_and_none_of_the_others(
    seed: int, classes: int, share: float
) -> None:
    y = torch.arange(240) % classes
    labels = [str(k) for k in range(classes)]
    new, chosen = relabel(y, Concept(clients=share), rows_of(240), CLIENTS, labels, seed)
    assert len(chosen) == max(1, round(share * 8))
    for i, c in enumerate(CLIENTS):
        rows = rows_of(240)[i]
        if c not in chosen:
            assert torch.equal(new[rows], y[rows])
            continue
        assert bool((new[rows] != y[rows]).all())
        pairs = {(int(a), int(b)) for a, b in zip(y[rows], new[rows], strict=True)}
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})  # one name for another


def test_a_concept_shift_of_two_labels_swaps_them() -> None:
    y = torch.arange(80) % 5
    concept = Concept(clients=["c"], labels=["1", "4"])
    new, chosen = relabel(y, concept, rows_of(80), CLIENTS, [str(k) for k in range(5)], 0)
    assert chosen == ("c",)
    at = rows_of(80)[2]
    swap = torch.tensor([0, 4, 2, 3, 1])
    assert torch.equal(new[at], swap[y[at]])
    with pytest.raises(InputError, match="no label 'x'"):
        relabel(y, Concept(labels=["x", "1"]), rows_of(80), CLIENTS, [str(k) for k in range(5)], 0)
    with pytest.raises(InputError, match="at least two labels"):
        relabel(y, Concept(labels=["1"]), rows_of(80), CLIENTS, [str(k) for k in range(5)], 0)
