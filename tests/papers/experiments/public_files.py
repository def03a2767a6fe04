"""Small files of the public sets' true forms."""

import gzip
import io
import json
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


def c4(texts: Sequence[str]) -> bytes:
    """Pages as the published files have them: letters stand for themselves, with no blanks between values."""
    lines = [
        json.dumps(
            {
                "text": text,
                "timestamp": "2019-04-25T12:57:54Z",
                "url": "https://example.org/",
            },
            **{"ensure_ascii": False, "separators": (",", ":")},
        )
        for text in texts
    ]
    return gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0)


def cifar10(images: np.ndarray, labels: Sequence[int]) -> bytes:
    """Images (N, 32, 32, 3) as records of a label and three planes."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return b"".join(
        bytes([label]) + plane.tobytes()
        for label, plane in zip(labels, planes, strict=True)
    )


def imagenet64(images: np.ndarray) -> bytes:
    """Images (N, 64, 64, 3) as a batch of downsampled ImageNet."""
    stream = io.BytesIO()
    planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1))
    np.savez(
        stream, data=planes, labels=np.ones(len(images), np.int64), mean=np.zeros(12288)
    )
    return stream.getvalue()


def images(count: int, side: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(
        0, 256, (count, side, side, 3), np.uint8
    )
