"""Small files of the public sets' true forms."""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd


def parquet(**columns: Sequence[str]) -> bytes:
    stream = io.BytesIO()
    pd.DataFrame(columns).to_parquet(stream, index=False)
    return stream.getvalue()


def wiki40b(texts: Sequence[str]) -> bytes:
    names = [f"Q{number}" for number in range(len(texts))]
    return parquet(wikidata_id=names, text=texts)


def cifar10(images: np.ndarray, labels: Sequence[int]) -> bytes:
    """Images (N, 32, 32, 3) as records of a label and three planes."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return b"".join(
        bytes([label]) + plane.tobytes()
        for label, plane in zip(labels, planes, strict=True)
    )


def images(count: int, side: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(
        0, 256, (count, side, side, 3), np.uint8
    )
