"""Files of scores compared by value: rounding may depend on how a job was divided, and on the machine."""

import gzip
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pybigtools

TOLERANCE = 1e-6


def assert_same_scores(
    found: bytes | Path, expected: bytes | Path, name: str = ""
) -> None:
    """Compare two files, of the format that the ending of `name` tells: all text must be equal, and decimal
    numbers up to `TOLERANCE` and the last digit printed."""
    name = name or (expected.name if isinstance(expected, Path) else "")
    one, other = (
        x.read_bytes() if isinstance(x, Path) else x for x in (found, expected)
    )
    if name.endswith(".parquet"):
        tables = [pd.read_parquet(io.BytesIO(content)) for content in (one, other)]
        pd.testing.assert_frame_equal(*tables, rtol=0, atol=TOLERANCE)
    elif name.endswith(".npz"):
        ours, theirs = (dict(np.load(io.BytesIO(content))) for content in (one, other))
        np.testing.assert_allclose(
            ours.pop("embeddings"),
            theirs.pop("embeddings"),
            rtol=0,
            atol=10 * TOLERANCE,
        )
        assert {name: x.tolist() for name, x in ours.items()} == {
            name: x.tolist() for name, x in theirs.items()
        }
    elif name.endswith(".bw"):
        first, second = (
            pybigtools.open(io.BytesIO(content)) for content in (one, other)
        )
        assert first.chroms() == second.chroms()
        for contig in second.chroms():
            ours, theirs = (
                np.array([*file.records(contig)]) for file in (first, second)
            )
            np.testing.assert_array_equal(ours[:, :2], theirs[:, :2])
            np.testing.assert_allclose(ours[:, 2], theirs[:, 2], rtol=0, atol=TOLERANCE)
    elif name.endswith((".tbi", ".csi")):
        assert one[:4] == other[:4]
    else:
        _same_text(*(_text(content) for content in (one, other)))


def _text(content: bytes) -> str:
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    return content.decode("utf-8", "surrogateescape")


def _same_text(found: str, expected: str) -> None:
    decimal = r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+"
    assert re.sub(decimal, "0.0", found) == re.sub(decimal, "0.0", expected)
    ours, theirs = re.findall(decimal, found), re.findall(decimal, expected)
    np.testing.assert_allclose(
        [*map(float, ours)], [*map(float, theirs)], rtol=1e-5, atol=2 * TOLERANCE
    )
