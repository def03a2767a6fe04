"""Predictions of test bins in pieces: rows of the array that all pieces make."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.disk.atomic import write_array
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import DataError
from bigbird_dna.pieces import Piece, PieceFile, write_piece

# Axes: n bins, m those of a piece, T tracks.

KIND = "predicted bins"


def write_bin_piece(
    output: Path, piece: Piece, values: npt.NDArray[np.float32], shape: tuple[int, int], job: dict[str, Any]
) -> None:
    """Write the probabilities (m, T) of a piece's bins; `shape` is (n, T), and `job` what decides them."""
    with write_piece(output, KIND, piece, {**job, "shape": list(shape)}) as writer:
        writer.write_array("values", values)


def merge_bins(pieces: Sequence[PieceFile], output: Path) -> int:
    """Write the array (n, T) of all pieces as one run would (`.npy`); gives n."""
    check_output(output, [piece.path for piece in pieces])
    rows, tracks = pieces[0].described(lambda job: job["shape"])
    parts = []
    for piece in pieces:
        (values,) = piece.arrays("values")
        if values.dtype != np.float32 or values.shape != (len(piece.piece.rows(rows)), tracks):
            raise DataError(f"{piece.path}: damaged: its values are not those of its bins")
        parts.append(values)
    write_array(output, np.concatenate(parts))
    return int(rows)
