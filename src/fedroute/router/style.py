"""What an image looks like, apart from what it shows: statistics of its pixels, of simple mixes of their channels and
of the steps between them, over the whole image and coarsely over its parts. General ones, made for no shift in
particular."""

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
COARSE = 4  # the layout is the mean colours of a grid of 4 x 4
HUES = 18  # parts of the circle of hues


def style(x: Tensor, chunk: int = 512) -> Tensor:
    """x (B, C, H, W), uint8 or float in 0..1 -> (B, D) float64, D = 401 of colour images, 38 of grey ones. Each row's
    statistics are of that row alone.

    Of each map (`maps`): mean, deviation, skewness, kurtosis; the values at QUANTILES; the shares of pixels within a
    step of 8 bits of 0 and of 1; the mean absolute steps to the right and down. Of all maps and their absolute steps
    together: correlations over the pixels. Of the logarithms of the channels, the largest and the smallest of them:
    mean, deviation, skewness, kurtosis. Of three channels: how colourful each part of the circle of hues is. And the
    mean colours of a COARSE x COARSE grid."""
    return torch.cat([_style(part) for part in x.split(chunk)]) if len(x) else _style(x.new_zeros(1, *x.shape[1:]))[:0]


def maps(x: Tensor) -> Tensor:
    """(B, C, H, W) float in 0..1 -> (B, C', H, W): the channels; of more than one also their largest (the value of
    HSV), the saturation of HSV, and the difference of each channel to the next."""
    if x.shape[1] == 1:
        return x
    top, low = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    saturation = (top - low) / top.clamp(min=1e-6)
    return torch.cat([x, top, saturation, x[:, :-1] - x[:, 1:]], 1)


def moments(flat: Tensor) -> Tensor:
    """(B, C, P) -> (B, 4 C): mean, deviation, skewness, and the root of the kurtosis."""
    mean = flat.mean(2, keepdim=True)
    off = flat - mean
    deviation = off.square().mean(2, keepdim=True).sqrt()
    unit = off / deviation.clamp(min=1e-3)
    cubes, fourth = unit * unit * unit, unit.square().square()
    return torch.cat([mean[..., 0], deviation[..., 0], cubes.mean(2), fourth.mean(2).sqrt()], 1)


def quantiles(flat: Tensor) -> Tensor:
    """(B, C, P) -> (B, 7 C): the values at QUANTILES, each that of a pixel."""
    at = [round(q * (flat.shape[2] - 1)) for q in QUANTILES]
    return flat.sort(2).values[..., at].flatten(1)


def correlations(flat: Tensor) -> Tensor:
    """(B, C, P) -> (B, C (C - 1) / 2): of each two maps, 0 where one is constant."""
    off = flat - flat.mean(2, keepdim=True)
    unit = off / off.square().sum(2, keepdim=True).sqrt().clamp(min=1e-3)
    i, j = torch.triu_indices(flat.shape[1], flat.shape[1], 1)
    return (unit @ unit.mT)[:, i, j]


def steps(x: Tensor, dim: int) -> Tensor:
    """The absolute difference of each pixel to the next along a dimension, 0 at the last."""
    return x.diff(dim=dim, append=x.narrow(dim, x.shape[dim] - 1, 1)).abs()


def hues(x: Tensor) -> Tensor:
    """(B, 3, H, W) -> (B, HUES): the roots of the mean over all pixels of their colourfulness (largest less smallest
    channel), by parts of the circle of hues (of HSV). Roots, as the deviation of a share grows with the root of it."""
    top, low = x.amax(1), x.amin(1)
    colourful = top - low
    red, green, blue = x.unbind(1)
    spread = colourful.clamp(min=1e-6)
    between = torch.where(top == green, 2 + (blue - red) / spread, 4 + (red - green) / spread)
    hue = torch.where(top == red, (green - blue) / spread, between) / 6 % 1  # of the circle
    part = (hue * HUES).long().clamp(0, HUES - 1).flatten(1)
    sums = x.new_zeros(len(x), HUES).scatter_add(1, part, colourful.flatten(1))
    return (sums / part.shape[1]).sqrt()


def _style(x: Tensor) -> Tensor:
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    plain = maps(x)
    right, down = (steps(plain, dim).flatten(2) for dim in (3, 2))
    flat = plain.flatten(2)
    ends = [(flat < 1 / 255).float().mean(2), (flat > 254 / 255).float().mean(2)]
    several = [x.amax(1, keepdim=True), x.amin(1, keepdim=True)] if x.shape[1] > 1 else []
    logs = torch.cat([x, *several], 1).flatten(2).clamp(min=0).add(1 / 255).log()
    layout = adaptive_avg_pool2d(x, COARSE).flatten(1)
    found = [moments(flat), quantiles(flat), *ends, right.mean(2), down.mean(2)]
    found += [correlations(torch.cat([flat, right, down], 1)), moments(logs), layout]
    found += [hues(x)] if x.shape[1] == 3 else []
    return torch.cat(found, 1).double()
