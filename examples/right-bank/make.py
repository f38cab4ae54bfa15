"""Writes the loans of four made-up banks to loans.parquet, and some applications that name no bank to queries.parquet,
beside this file or in --out.

    python make.py [--rows 3000] [--seed 0] [--out FOLDER]

coast lends to hotels and fishers, inland to farms, metro to start-ups, border to traders. A loan is six numbers. Who
pays back differs from bank to bank: debt is harmless where a harvest pays it and a bad sign where it does not, and a
busy season is a good sign here and a bad one there. Each bank's customers look different too, so that an application
says, without naming it, whose model knows its kind."""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("income", "debt", "years", "season", "staff", "collateral")
SHARE = {"border": 0.2, "coast": 0.25, "inland": 0.35, "metro": 0.2}  # of all loans
# bank -> what its customers are like on average, column by column; the spread is 1
CUSTOMERS = {
    "border": (0.0, -0.5, -0.5, 0.0, 1.5, 1.0),
    "coast": (0.0, 0.5, 0.5, 1.0, -0.5, 0.0),
    "inland": (0.5, 0.0, 1.0, -1.0, -0.5, 1.0),
    "metro": (-0.5, 0.5, -1.5, -0.5, 1.0, -1.0),
}
# bank -> what each column adds to the log-odds of default
RISK = {
    "border": (-0.5, -2.0, 0.0, 2.0, 0.0, 0.5),
    "coast": (-0.5, 2.0, 0.0, 2.0, 0.0, -0.5),
    "inland": (-0.5, -2.0, 0.0, -2.0, 0.5, 0.5),
    "metro": (-0.5, 2.0, 1.0, -2.0, -0.5, 0.0),
}


def bank(name: str, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 6) loans of one bank and (n,) bool, whether each defaulted: about a third."""
    draw = np.random.default_rng([seed, sorted(SHARE).index(name)])
    off = draw.standard_normal((n, len(COLUMNS)))
    odds = off @ np.array(RISK[name]) * 1.5 - 1.0
    return off + np.array(CUSTOMERS[name]), draw.random(n) < 1 / (1 + np.exp(-odds))


def write(folder: Path, rows: int = 3000, seed: int = 0) -> None:
    """loans.parquet with bank and default, queries.parquet without either."""
    made = {name: bank(name, round(rows * share), seed) for name, share in SHARE.items()}
    x = np.concatenate([x for x, _ in made.values()]).astype(np.float32)
    owner = np.repeat(list(made), [len(x) for x, _ in made.values()])
    default = np.where(np.concatenate([y for _, y in made.values()]), "yes", "no")
    loans = pa.table(dict(zip(COLUMNS, x.T, strict=True)) | {"bank": owner, "default": default})
    pq.write_table(loans, folder / "loans.parquet")
    new = np.concatenate([bank(name, 3, seed + 1)[0] for name in SHARE]).astype(np.float32)
    pq.write_table(pa.table(dict(zip(COLUMNS, new.T, strict=True))), folder / "queries.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3000, help="loans of all banks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    write(options.out, options.rows, options.seed)
