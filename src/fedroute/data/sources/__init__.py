"""Where data come from."""

SOURCES = {
    "parquet": "Parquet files, with a client column, a file per client, or a partition; tables or a column of images",
    "csv": "CSV files (also .gz); delimiter, decimal sign and header found by looking",
    "images": "a folder of images: client/class/file, or class/file with a partition",
    "npz": "arrays in a NumPy .npz file",
    "bundled": "data that come with the package: digits, six offices that scan handwritten digits",
    "registry": "public data sets by name: looked for in $FEDROUTE_DATA, fetched where the publisher has them",
}
"""Name in `federation.source` -> what it reads."""
