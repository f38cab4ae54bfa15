"""How many rows are different from one another."""

import hashlib

import torch
from torch import Tensor


def distinct(x: Tensor, y: Tensor, rows: Tensor, chunk: int = 16384) -> int:
    """The number of different rows among those at `rows` (n,): two are the same where x and y are, number by number
    (0 and -0 are). By a hash of 16 bytes a row, so that memory does not grow with the width of a row."""
    seen = set[bytes]()
    for part in rows.split(chunk):
        seen.update(map(_hash, zip(row_bytes(x[part]), row_bytes(y[part]), strict=True)))
    return len(seen)


def _hash(row: tuple[bytes, bytes]) -> bytes:
    return hashlib.blake2b(row[0] + row[1], digest_size=16).digest()


def row_bytes(v: Tensor) -> list[bytes]:
    """The bytes of each row of v (n, ...), by which rows are the same."""
    v = v + 0.0 if v.is_floating_point() else v  # -0 becomes 0
    return [row.tobytes() for row in v.reshape(len(v), -1).contiguous().view(torch.uint8).numpy()] if len(v) else []
