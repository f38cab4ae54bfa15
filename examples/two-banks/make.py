"""Writes the payments of two made-up banks to large.parquet and small.parquet beside this file, or in --out.

    python make.py [--scale 1.0] [--seed 0] [--out FOLDER]

large: 1,000,000 payments, 0.02 % of them fraud. small: 20,000 payments, 4 % of them fraud. --scale 0.1 makes a tenth.

At both banks a payment is six numbers. At the large one fraud is a high amount from a new device, and payments from
abroad at night are everyday business of its many customers who travel. At the small one, which serves a single town,
payments from abroad at night are what fraud looks like, and high amounts from new devices are harmless. What the two
have in common is that fraud comes in bursts. A model that follows the large bank cannot tell the small one's frauds."""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("amount", "new_device", "abroad", "night", "burst", "age")
ROWS = {"large": 1_000_000, "small": 20_000}
FRAUD = {"large": 0.0002, "small": 0.04}
# bank -> the mean and spread of an honest payment and of a fraud, column by column
HONEST = {"large": ((0, 0, 0, 0, 0, 0), (1, 1, 3, 3, 1, 1)), "small": ((0, 0, 0, 0, 0, 0), (2, 2, 1, 1, 1, 1))}
CHEAT = {"large": ((4, 4, -2, -2, 1, 0), (1, 1, 2, 2, 1, 1)), "small": ((-1, -1, 1.8, 1.8, 1, 0), (2, 2, 1, 1, 1, 1))}


def bank(name: str, scale: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 6) float32 payments and (n,) int64, 1 for a fraud: exactly the bank's share of them, in a random order."""
    draw = np.random.default_rng([seed, sorted(ROWS).index(name)])
    n = round(ROWS[name] * scale)
    y = np.zeros(n, dtype=np.int64)
    y[draw.permutation(n)[: round(n * FRAUD[name])]] = 1
    (a, s), (b, t) = HONEST[name], CHEAT[name]
    x = np.where(y[:, None] == 1, b, a) + np.where(y[:, None] == 1, t, s) * draw.standard_normal((n, len(COLUMNS)))
    return x.astype(np.float32), y


def write(folder: Path, scale: float = 1.0, seed: int = 0) -> None:
    """large.parquet and small.parquet in a folder."""
    for name in ROWS:
        x, y = bank(name, scale, seed)
        columns = dict(zip(COLUMNS, x.T, strict=True)) | {"fraud": np.where(y == 1, "yes", "no")}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    write(options.out, options.scale, options.seed)
