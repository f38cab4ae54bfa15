"""Randomness as a function of a key such as (seed, round, client): never global, the same in every process."""

import hashlib

import torch


def seed_of(*key: int | str) -> int:
    """A 63-bit seed that depends on every part of the key and on nothing else."""
    text = "\x1f".join(f"{type(k).__name__}:{k}" for k in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*key: int | str) -> torch.Generator:
    """A fresh generator for this key."""
    return torch.Generator().manual_seed(seed_of(*key))
