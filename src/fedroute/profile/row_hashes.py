"""Rows as keyed hashes: who has the key can tell whether two rows are equal or nearly so, and nothing else is sent.

Exact: blake2b of the row's bytes. Near: the cell of a randomly turned and shifted grid in which the standardised row
lies (Datar, Immorlica, Indyk and Mirrokni 2004, "Locality-sensitive hashing scheme based on p-stable distributions",
with unit directions), hashed with blake2b in turn, so that the cell itself does not leave. Rows a jitter apart share
most of their cells, others hardly ever one."""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from fedroute.data.distinct import row_bytes
from fedroute.profile.own_rows import SIDE, Ints, OwnRows
from fedroute.randomness import generator, seed_of

Keys = NDArray[np.uint64]
DIRECTIONS = 8  # of a grid; fewer where a row has fewer numbers
WIDTH = 2.5  # of a cell, in tolerances, for each direction: of few, rows must agree the closer for as many to share one


def key_of(seed: int) -> bytes:
    """The federation's key for one profile: 16 bytes that the clients agree on and the server does not have. Here a
    function of the seed, because one process plays all of them."""
    return seed_of(seed, "profile", "key").to_bytes(16, "big")


def exact(own: OwnRows, key: bytes) -> Keys:
    """(n,) of x alone: equal where x is equal, number by number (0 and -0 are)."""
    return _digests(row_bytes(own.raw), key)


def cells(z: NDArray[np.float32], tolerance: float, seed: int, grid: int, images: bool = False) -> Ints:
    """(n, k) integers: the cell of each row of z (n, F) in that grid. The directions of images are mixtures of their
    slow waves, in which images differ most and codings least (as in a perceptual hash)."""
    draw = generator(seed, "profile", "grid", grid)
    width = z.shape[1]
    waves = _slow_waves(width) if images else np.eye(width)
    k = min(DIRECTIONS, len(waves))
    turned = torch.linalg.qr(torch.randn(len(waves), k, generator=draw, dtype=torch.float64))[0].numpy()
    shift = torch.rand(k, generator=draw, dtype=torch.float64).numpy()
    found: Ints = np.floor(z @ (waves.T @ turned).astype(np.float32) / (k * WIDTH * tolerance) + shift).astype(np.int64)
    return found


def _slow_waves(width: int) -> NDArray[np.float64]:
    """(16 or fewer, F) the slowest cosines over the blocks of an image, of each channel, of length 1."""
    from scipy.fft import idctn

    side = next((s for s in range(SIDE, 0, -1) if width % (s * s) == 0), 1)
    channels, found = width // (side * side), []
    for u, v in sorted(np.ndindex(side, side), key=lambda w: w[0] + w[1])[:16]:
        wave = np.zeros((side, side))
        wave[u, v] = 1
        found.append(np.tile(idctn(wave, norm="ortho").reshape(-1), channels) / np.sqrt(channels))
    return np.stack(found)


def mixed(columns: Ints | Keys) -> Keys:
    """(n,) one number for each row of (n, k) integers; equal rows have equal ones, others hardly ever. Not for
    sending: anybody can compute it."""
    found = np.zeros(len(columns), dtype=np.uint64)
    for j in range(columns.shape[1]):
        found += scrambled(columns[:, j].astype(np.uint64), j)
    return found


def scrambled(v: Keys, salt: int) -> Keys:
    """Each number as another that looks like chance (Steele, Lea and Flood 2014, SplitMix64)."""
    z = v + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    found: Keys = z ^ (z >> np.uint64(31))
    return found


def sealed(numbers: Keys, key: bytes, salt: int) -> Keys:
    """Numbers as keyed hashes, which may leave."""
    data, person = numbers.tobytes(), salt.to_bytes(1, "big")
    return _joined([
        hashlib.blake2b(data[i : i + 8], digest_size=8, key=key, person=person).digest() for i in range(0, len(data), 8)
    ])  # fmt: skip


def _digests(rows: list[bytes], key: bytes) -> Keys:
    return _joined([hashlib.blake2b(row, digest_size=8, key=key).digest() for row in rows])


def _joined(digests: list[bytes]) -> Keys:
    return np.frombuffer(b"".join(digests), dtype=np.uint64)
