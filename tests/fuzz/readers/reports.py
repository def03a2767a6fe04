"""Readers of arrays of rows × tracks, a report's and MATLAB's; and of a run's logs, metrics and tables."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from bigbird_dna.data.predictions import of_split, read_bits
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.matlab import open_mat
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.score_track import read_score_track
from bigbird_dna.reporting.summary import summarize
from bigbird_dna.reporting.tracks import auc_report, read_published
from bigbird_dna.reporting.training import read_training_log
from bigbird_dna.reporting.variant_page import variant_page
from tests.fuzz.reader import MATLAB5, Container, Reader, file_bytes
from tests.genome.chromatin.small_bundle import write_mat

ROWS, TRACKS = 24, 5
NAMES = [f"cell|mark{number}" for number in range(TRACKS)]


def scores(dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(1).random((ROWS, TRACKS)).astype(dtype)


def labels() -> np.ndarray:
    labels = np.random.default_rng(2).integers(0, 2, (ROWS, TRACKS)).astype(np.uint8)
    labels[0], labels[1] = 0, 1
    return labels


def _read_array(path: Path) -> None:
    array = open_array(path, "predictions")
    for first, last in ((0, array.tracks), (array.tracks - 1, array.tracks)):
        for chunk in array.chunks(first, last):
            assert chunk.shape[1] == last - first


def _report(path: Path) -> None:
    auc_report(
        scores(),
        path,
        path.parent / "report",
        compare={"kmers": scores()[:, ::-1]},
        threads=1,
    )


def _read_mat(path: Path) -> None:
    with open_mat(path) as arrays:
        for array in arrays.values():
            rows = array.shape[0] if array.shape else 0
            if rows:
                array.pick(np.unique([0, rows // 2, rows - 1]))
            if len(array.shape) == 2:
                for _ in array.parts(rows):
                    pass


def _matlab(kind: str, chunks: object = None) -> Callable[[Path], object]:
    rng = np.random.default_rng(5)
    content = {
        "xdata": (rng.random((8, 4, 6)) < 0.25).astype("u1"),
        "data": (rng.random((8, 5)) < 0.3).astype("f8"),
    }
    return lambda path: write_mat(path, content, kind, chunks)


def _write_hdf5(path: Path, chunks: bool) -> None:
    with h5py.File(path, "w", libver="latest" if chunks else "earliest") as file:
        data = file.create_dataset(
            "predictions",
            data=scores(),
            chunks=(8, 3) if chunks else None,
            compression="gzip" if chunks else None,
            shuffle=chunks,
        )
        file["group/other"] = labels()
        if chunks:
            data.attrs["tracks"] = NAMES
        else:
            file["tracks"] = np.array(NAMES, "S")


def _frame(of_labels: bool = False) -> pd.DataFrame:
    frame = pd.DataFrame(labels() if of_labels else scores(), columns=NAMES)
    frame.insert(0, "contig", ["chr1", "chr2"] * (ROWS // 2))
    frame.insert(1, "start", range(0, 200 * ROWS, 200))
    return frame


def _of(
    name: str,
    suffix: str,
    *writers: Callable[[Path], object],
    container: Container | None = None,
) -> Reader:
    """A reader of arrays of a format, whose seeds these write."""
    read = _read_mat if suffix == ".mat" else _read_array
    return Reader(name, suffix, read, lambda: file_bytes(suffix, *writers), container)


def _read_bits(path: Path) -> None:
    summarize(bits=path, output=path.parent / "summary.tsv").encode()
    write_tsv(path.parent / "bits.tsv", of_split(read_bits(path), "test"))


def _summed(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        sources: Any = {name: path}
        summarize(**sources, output=path.parent / "summary.tsv").encode()

    return read


def _page(path: Path) -> None:
    variant_page(path, path.with_suffix(".html"), top=3)


READERS = [
    _of("matlab5", ".mat", _matlab("packed"), container=MATLAB5),
    _of("matlab5-plain", ".mat", _matlab("plain")),
    _of("matlab73", ".mat", _matlab("hdf5"), _matlab("hdf5", ((2, 2, 4), (2, 4)))),
    _of(
        "hdf5",
        ".h5",
        *(functools.partial(_write_hdf5, chunks=chunks) for chunks in (False, True)),
    ),
    _of(
        "npy",
        ".npy",
        lambda path: np.save(path, scores()),
        lambda path: np.save(path, np.asfortranarray(scores("f8"))),
    ),
    _of(
        "npz",
        ".npz",
        lambda path: np.savez_compressed(
            path, predictions=scores(), tracks=np.array(NAMES)
        ),
        lambda path: np.savez(
            path, predictions=np.asfortranarray(scores()), other=labels()
        ),
    ),
    _of("npz-labels", ".npz", PackedLabels.from_dense(labels()).save),
    _of(
        "parquet",
        ".parquet",
        lambda path: _frame().to_parquet(path, index=False),
        lambda path: _frame(True).to_parquet(path, index=False, compression="none"),
    ),
    Reader("array-tsv", ".tsv", _read_array),
    Reader(
        "array-csv",
        ".csv",
        _read_array,
        tokens=(b'"', b'""', b",", b"Unnamed: 0", b"\n,"),
    ),
    Reader("array-tsv.gz", ".tsv.gz", _read_array, "array-tsv"),
    Reader("auc-report", ".tsv", _report, tokens=(b"</script>", b"<!--")),
    Reader("published", ".tsv", lambda path: read_published(path, NAMES)),
    Reader("score-track", ".bed", read_score_track),
    Reader("training-log", ".jsonl", read_training_log),
    Reader("metrics", ".json", _summed("pretraining")),
    Reader("bits-table", ".tsv", _read_bits),
    Reader("statistics", ".json", _summed("statistics")),
    Reader("promoters-table", ".tsv", _summed("promoters")),
    Reader("groups-table", ".tsv", _summed("groups")),
    Reader("leads-table", ".tsv", _summed("tracks")),
    Reader("variants-table", ".tsv", _summed("variants")),
    Reader("variant-page", ".vcf", _page),
    Reader("variant-page-table", ".tsv", _page),
]
