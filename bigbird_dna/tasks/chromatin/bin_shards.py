"""Predictions of test bins in shards: rows of the array that all shards make."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.disk.atomic import write_array
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.disk.shards import Shard, ShardFile, write_shard
from bigbird_dna.errors import DataError

# Axes: n bins, m those of a shard, T tracks.

KIND = "predicted bins"


def write_bin_shard(
    output: Path, shard: Shard, values: npt.NDArray[np.float32], shape: tuple[int, int], job: dict[str, Any]
) -> None:
    """Write the probabilities (m, T) of a shard's bins; `shape` is (n, T), and `job` what decides them."""
    with write_shard(output, KIND, shard, {**job, "shape": list(shape)}) as writer:
        writer.write_array("values", values)


def merge(shards: Sequence[ShardFile], output: Path) -> int:
    """Write the array (n, T) of all shards as one run would (`.npy`); gives n."""
    check_output(output, [shard.path for shard in shards])
    rows, tracks = shards[0].described(lambda job: job["shape"])
    parts = []
    for shard in shards:
        (values,) = shard.arrays("values")
        if values.dtype != np.float32 or values.shape != (len(shard.shard.rows(rows)), tracks):
            raise DataError(f"{shard.path}: damaged: its values are not those of its bins")
        parts.append(values)
    write_array(output, np.concatenate(parts))
    return int(rows)
