"""Images as waves, each weighed by how exactly JPEG keeps it: in what an encoder throws away copies differ most and
other images least."""

import numpy as np
from numpy.typing import NDArray

from fedroute.profile.own_rows import SIDE, Floats

# steps that the standard proposes (ITU-T T.81, annex K, tables K.1 and K.2), for the first 8x8 cosines
BRIGHT = np.array([
    [16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55], [14, 13, 16, 24, 40, 57, 69, 56],
    [14, 17, 22, 29, 51, 87, 80, 62], [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101], [72, 92, 95, 98, 112, 100, 103, 99],
])  # fmt: skip
COLOUR = np.full((SIDE, SIDE), 99)
COLOUR[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
SEEN = np.array([[0.299, 0.587, 0.114], [-0.1687, -0.3313, 0.5], [0.5, -0.4187, -0.0813]])
"""Brightness and two differences of colour from red, green and blue (ITU-R BT.601)."""


def waves(z: Floats, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """(n, C h w) means of blocks of images of `shape` (C, H, W) or (H, W), channel by channel, as the cosines of each
    channel divided by the steps: a noise as strong in all blocks keeps its root mean square. Three channels are taken
    for red, green and blue; of colour codings keep half as many waves a side."""
    from scipy.fft import dctn

    high, wide = (min(SIDE, side) for side in shape[-2:])
    blocks = z.reshape(len(z), -1, high, wide)
    colour = blocks.shape[1] == 3
    if colour:
        blocks = np.einsum("kc,nchw->nkhw", SEEN, blocks)
    step = np.stack([BRIGHT, *[_halved(COLOUR)] * 2] if colour else [BRIGHT] * blocks.shape[1])
    weight = 1 / step[:, :high, :wide]
    noise = (SEEN**2).sum(1)[:, None, None] if colour else 1.0
    weight /= np.sqrt((noise * weight**2).mean())
    found: NDArray[np.float32] = (dctn(blocks, axes=(2, 3), norm="ortho") * weight).reshape(len(z), -1)
    return found.astype(np.float32)


def _halved(step: NDArray[np.int64]) -> Floats:
    """Steps for an image of twice as many blocks a side: every other one, and none kept beyond."""
    found = np.full(step.shape, np.inf)
    found[: SIDE // 2, : SIDE // 2] = step[::2, ::2]
    return found
