"""Writes readings.parquet beside this file, or in --out: sixteen gas sensors as sixteen clients, a reading a row.

    FEDROUTE_DATA=FOLDER python make.py [--rows 6000] [--seed 0] [--out FOLDER]

FOLDER/gas_drift/gas.parquet holds the measurements (UCI, Gas Sensor Array Drift at Different Concentrations; Vergara et
al. 2012). Each was made by all sensors at once; here a measurement goes to one sensor, drawn by the seed, which sees
its own eight numbers of it and nothing of the others. Numbers span six orders of magnitude, so that sign(x) log(1 +
|x|) is taken. queries.parquet gets twelve readings that no sensor had, without saying whose they are."""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedroute.data.registry import locate

SENSORS, NUMBERS, QUERIES = 16, 8, 12


def write(folder: Path, rows: int = 6000, seed: int = 0) -> None:
    """readings.parquet: f1 .. f8, sensor, gas; queries.parquet: f1 .. f8."""
    table = pq.read_table(locate("gas_drift", "gas.parquet"))
    draw = np.random.default_rng(seed)
    kept = draw.permutation(table.num_rows)[: rows + QUERIES]
    sensor = draw.integers(1, SENSORS + 1, len(kept))
    wide = np.stack(
        [table[f"s{s:02d}_f{f}"].to_numpy() for s in range(1, SENSORS + 1) for f in range(1, NUMBERS + 1)], 1
    )
    x = wide.reshape(-1, SENSORS, NUMBERS)[kept, sensor - 1]
    x = np.sign(x) * np.log1p(np.abs(x))
    names = [f"f{k}" for k in range(1, NUMBERS + 1)]
    gas = table["gas"].cast(pa.string()).take(pa.array(kept))
    new = slice(len(kept) - QUERIES, len(kept))
    pq.write_table(pa.table(dict(zip(names, x[new].T, strict=True))), folder / "queries.parquet")
    columns = dict(zip(names, x[: new.start].T, strict=True))
    columns |= {"sensor": [f"s{s:02d}" for s in sensor[: new.start]], "gas": gas[: new.start]}
    pq.write_table(pa.table(columns), folder / "readings.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6000, help="measurements taken, of 6,697")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    write(options.out, options.rows, options.seed)
