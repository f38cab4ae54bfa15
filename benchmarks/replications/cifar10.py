"""The first images of CIFAR-10, dealt to made clients. They lie in a fixed random order, so that these are a sample."""

import io

import numpy as np
import torch

from fedroute.data.federation import Federation
from fedroute.data.registry import locate
from fedroute.data.spec import Partition, Split

LABELS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def cifar10(partition: Partition, seed: int, rows: int, split: Split) -> Federation:
    """x (rows, 3, 32, 32) float32, each channel by its mean and deviation over all training images."""
    import pyarrow.parquet as pq
    from PIL import Image

    table = pq.read_table(locate("cifar10", "train.parquet"), columns=["image", "label"]).slice(0, rows)
    images = np.stack([np.asarray(Image.open(io.BytesIO(b))) for b in table["image"].to_pylist()])
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    mean, deviation = (torch.tensor(v).reshape(3, 1, 1) for v in ((0.491, 0.482, 0.447), (0.245, 0.243, 0.261)))
    y = torch.from_numpy(table["label"].to_numpy().astype(np.int64))
    return Federation.from_arrays(
        (x - mean) / deviation, y, partition=partition, name="cifar10", labels=LABELS, split=split, seed=seed
    )
