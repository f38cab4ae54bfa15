"""Feature and concept shifts, applied once when data are loaded. Pure torch, a whole batch at a time.

Images are (B, C, H, W) float in 0..1; `apply` also takes uint8 and gives uint8 back, rounded once at the end."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, pad

from fedroute.data.spec import Concept, Level, Shift, nearest
from fedroute.errors import InputError
from fedroute.randomness import generator, seed_of

COLOUR: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "low": ((0.9, 1.1), (-0.01, 0.01), (0.9, 1.1)),
    "mid": ((0.75, 1.25), (-0.05, 0.05), (0.7, 1.3)),
    "high": ((0.6, 1.4), (-0.1, 0.1), (0.5, 1.5)),
}
"""FedDRM's feature shift: level -> values of gamma, hue and saturation, picked by bits 0, 1 and 2 of the client's
number. The order is saturation, hue, gamma. (The authors round to 8 bits after each of the three; here once.)"""

REACH: dict[str, tuple[float, float, float]] = {
    "brightness": (1.2, 1.5, 2.0),  # factor, from 1/f to f
    "gamma": (1.2, 1.5, 2.0),  # exponent, from 1/g to g
    "hue": (0.02, 0.06, 0.12),  # of the circle, to either side
    "saturation": (1.2, 1.6, 2.5),  # factor, from 1/f to f
    "rotation": (15.0, 45.0, 90.0),  # degrees, to either side
    "noise": (0.05, 0.15, 0.3),  # standard deviation, from 0
    "blur": (0.5, 1.0, 2.0),  # standard deviation in pixels, from 0
}
"""method -> how far the first and the last client are at level low, mid and high; the others lie evenly between."""


def adjust_saturation(x: Tensor, factor: float) -> Tensor:
    """A mix of the image and its grey version (ITU-R 601 luma); 0 is grey, 1 the image. Grey images stay."""
    if x.shape[1] != 3:
        return x
    grey = (x * x.new_tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    return (factor * x + (1 - factor) * grey).clamp(0, 1)


def adjust_hue(x: Tensor, turn: float) -> Tensor:
    """The hue of HSV turned by a share of the circle, -0.5..0.5. Grey images stay."""
    if x.shape[1] != 3:
        return x
    top, low = x.amax(1), x.amin(1)
    spread = top - low
    r, g, b = x.unbind(1)
    safe = spread.where(spread > 0, torch.ones_like(spread))
    hue = torch.where(top == r, (g - b) / safe, torch.where(top == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    turned = hue / 6 + turn
    # each channel is top minus spread times a trapezoid of the hue, moved by a third of the circle
    moved = [(turned * 6 + n) % 6 for n in (5, 3, 1)]
    return torch.stack([top - spread * torch.minimum(k, 4 - k).clamp(0, 1) for k in moved], 1)


def adjust_gamma(x: Tensor, gamma: float) -> Tensor:
    """x to the power gamma: above 1 darker."""
    return x**gamma


def adjust_brightness(x: Tensor, factor: float) -> Tensor:
    return (x * factor).clamp(0, 1)


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Turned anticlockwise about the middle, bilinear, black outside. Pixels are square whatever the frame."""
    a = torch.deg2rad(torch.tensor(degrees, dtype=x.dtype))
    h, w = x.shape[2:]
    cos, sin = torch.cos(a), torch.sin(a)
    zero = torch.zeros_like(a)
    theta = torch.stack([torch.stack([cos, -sin * h / w, zero]), torch.stack([sin * w / h, cos, zero])])
    grid = affine_grid(theta.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return grid_sample(x, grid, align_corners=False).clamp(0, 1)


def add_noise(x: Tensor, sigma: float, *key: int | str) -> Tensor:
    """Gaussian noise drawn by the key, clipped to 0..1."""
    noise = torch.randn(x.shape, generator=generator("noise", *key), dtype=x.dtype)
    return (x + sigma * noise).clamp(0, 1)


def blur(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of 3 sigma reach, edges repeated; sigma in pixels, 0 leaves the image."""
    if sigma <= 0:
        return x
    reach = max(1, round(3 * sigma))
    at = torch.arange(-reach, reach + 1, dtype=x.dtype)
    kernel = torch.exp(-0.5 * (at / sigma) ** 2)
    kernel = (kernel / kernel.sum()).expand(x.shape[1], 1, 1, -1)
    x = conv2d(pad(x, (reach, reach, 0, 0), mode="replicate"), kernel, groups=x.shape[1])
    return conv2d(pad(x, (0, 0, reach, reach), mode="replicate"), kernel.mT, groups=x.shape[1]).clamp(0, 1)


def colour(x: Tensor, client: int, level: Level) -> Tensor:
    """FedDRM's shift of client number `client` (see COLOUR)."""
    gamma, hue, saturation = (pair[client >> bit & 1] for bit, pair in enumerate(COLOUR[level]))
    return adjust_gamma(adjust_hue(adjust_saturation(x, saturation), hue), gamma)


def shift_of(shift: Shift, client: int, clients: int, *key: int | str) -> Callable[[Tensor], Tensor]:
    """The shift of client number `client` of `clients`, as a function of images in 0..1. key: what noise is drawn by.

    One-sided methods (noise, blur) grow from nothing at the first client to the whole reach at the last; the others go
    from one side to the other. A single client gets the whole reach."""
    if shift.method == "colour":
        return lambda x: colour(x, client, shift.level)
    reach = REACH[shift.method][("low", "mid", "high").index(shift.level)]
    place = client / (clients - 1) if clients > 1 else 1.0  # 0..1
    side = 2 * place - 1  # -1..1
    match shift.method:
        case "brightness":
            return lambda x: adjust_brightness(x, reach**side)
        case "gamma":
            return lambda x: adjust_gamma(x, reach**side)
        case "hue":
            return lambda x: adjust_hue(x, reach * side)
        case "saturation":
            return lambda x: adjust_saturation(x, reach**side)
        case "rotation":
            return lambda x: rotate(x, reach * side)
        case "noise":
            return lambda x: add_noise(x, reach * place, *key)
    return lambda x: blur(x, reach * place)


def apply(x: Tensor, shift: Shift, rows: Sequence[Tensor], clients: Sequence[str], seed: int) -> Tensor:
    """x (R, C, H, W), uint8 or float in 0..1, with the rows of each client shifted; rows[i]: those of clients[i].

    Raises InputError where x is no image or the shift names a client that does not exist."""
    if x.ndim != 4:
        raise InputError(f"shift.method {shift.method} needs images and the rows have shape {tuple(x.shape[1:])}; "
                         "leave shift out for a table")  # fmt: skip
    if x.dtype != torch.uint8 and len(x) and not 0 <= float(x.min()) <= float(x.max()) <= 1:
        raise InputError("federation.shift needs pixels as uint8 or in 0..1, and there are others; divide them by 255")
    chosen = _chosen("shift", shift.clients, clients)
    out, whole = x.clone(), x.dtype == torch.uint8
    for i in chosen:
        for chunk, at in enumerate(rows[i].split(4096)):  # bounded memory
            images = out[at].float() / 255 if whole else out[at]
            moved = shift_of(shift, i, len(clients), seed, clients[i], chunk)(images)
            out[at] = (moved * 255).round().to(torch.uint8) if whole else moved
    return out


def relabel(
    y: Tensor, concept: Concept, rows: Sequence[Tensor], clients: Sequence[str], labels: Sequence[str], seed: int
) -> tuple[Tensor, tuple[str, ...]]:
    """y (R,) with the labels of some clients changed for one another, and the names of these clients. Each of them has
    an order of its own, in which every label becomes the next one, so that none stays.

    Raises InputError for unknown clients or labels, or fewer than two labels."""
    names = list(labels) if concept.labels is None else concept.labels
    for name in names:
        if name not in labels:
            raise InputError(f"federation.concept.labels: no label {name!r}{nearest(name, labels)}")
    if len(names) < 2:
        raise InputError("federation.concept needs at least two labels that can change places")
    if isinstance(concept.clients, float):
        by_lot = sorted(range(len(clients)), key=lambda i: seed_of(seed, "concept", clients[i]))
        chosen = sorted(by_lot[: max(1, round(concept.clients * len(clients)))])
    else:
        chosen = _chosen("concept", concept.clients, clients)
    codes = torch.tensor([labels.index(n) for n in names])
    y = y.clone()
    for i in chosen:
        order = codes[torch.randperm(len(codes), generator=generator(seed, "concept order", clients[i]))]
        becomes = torch.arange(len(labels))
        becomes[order] = order.roll(-1)
        y[rows[i]] = becomes[y[rows[i]]]
    return y, tuple(clients[i] for i in chosen)


def _chosen(key: str, named: Sequence[str] | None, clients: Sequence[str]) -> list[int]:
    for name in named or ():
        if name not in clients:
            raise InputError(f"federation.{key}.clients: no client {name!r}{nearest(name, clients)}")
    return [i for i, c in enumerate(clients) if named is None or c in named]
