"""Readers of arrays of rows × tracks: a report's, and MATLAB's."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import scipy.io

from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.matlab import open_mat
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.tracks import auc_report
from tests.fuzz.containers import GZIP, MATLAB5, NPY, NPZ
from tests.fuzz.reader import Reader

ROWS = 24


TRACKS = 5


NAMES = [f"cell|mark{number}" for number in range(TRACKS)]


Write = Callable[[Path], object]


def file_bytes(suffix: str, *writers: Write) -> list[bytes]:
    """What each writes to a file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"seed{suffix}")
        found = []
        for write in writers:
            write(path)
            found.append(path.read_bytes())
            path.unlink()
        return found


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
    auc_report(scores(), path, path.parent / "report", compare={"kmers": scores()[:, ::-1]}, threads=1)


def _read_mat(path: Path) -> None:
    with open_mat(path) as arrays:
        for array in arrays.values():
            rows = array.shape[0] if array.shape else 0
            if rows:
                array.pick(np.unique([0, rows // 2, rows - 1]))
            if len(array.shape) == 2:
                for _ in array.parts(rows):
                    pass


def _matlab() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "xdata": (rng.random((8, 4, 6)) < 0.25).astype("u1"),
        "data": (rng.random((8, 5)) < 0.3).astype("f8"),
    }


def _write_mat73(path: Path, chunks: bool) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in _matlab().items():
            turned = array.transpose()
            packing = {"chunks": (2,) * (turned.ndim - 1) + (4,), "compression": "gzip"} if chunks else {}
            file.create_dataset(name, data=turned, **packing)


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


def table(header: list[str], *rows: list[object]) -> bytes:
    return "".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]).encode()


READERS = [
    Reader(
        "matlab5",
        ".mat",
        _read_mat,
        lambda: file_bytes(".mat", lambda path: scipy.io.savemat(path, _matlab(), do_compression=True)),
        MATLAB5,
    ),
    Reader(
        "matlab5-plain",
        ".mat",
        _read_mat,
        lambda: file_bytes(".mat", lambda path: scipy.io.savemat(path, _matlab())),
    ),
    Reader(
        "matlab73",
        ".mat",
        _read_mat,
        lambda: file_bytes(
            ".mat", lambda path: _write_mat73(path, False), lambda path: _write_mat73(path, True)
        ),
    ),
    Reader(
        "hdf5",
        ".h5",
        _read_array,
        lambda: file_bytes(
            ".h5", lambda path: _write_hdf5(path, False), lambda path: _write_hdf5(path, True)
        ),
    ),
    Reader(
        "npy",
        ".npy",
        _read_array,
        lambda: file_bytes(
            ".npy",
            lambda path: np.save(path, scores()),
            lambda path: np.save(path, np.asfortranarray(scores("f8"))),
        ),
        NPY,
        (
            b"'O'",
            b"'descr'",
            b"'fortran_order': True",
            b"(",
            b"-1,",
            b"'<U9'",
            b"'V8'",
            b"'>f8'",
            b"[('a', '<f4')]",
        ),
    ),
    Reader(
        "npz",
        ".npz",
        _read_array,
        lambda: file_bytes(
            ".npz",
            lambda path: np.savez_compressed(path, predictions=scores(), tracks=np.array(NAMES)),
            lambda path: np.savez(path, predictions=np.asfortranarray(scores()), other=labels()),
        ),
        NPZ,
        (b"'|O'", b"'fortran_order': True", b"'<U99999999'"),
    ),
    Reader(
        "npz-labels",
        ".npz",
        _read_array,
        lambda: file_bytes(".npz", PackedLabels.from_dense(labels()).save),
        NPZ,
        (b"'|O'", b"'<i8'", b"()"),
    ),
    Reader(
        "parquet",
        ".parquet",
        _read_array,
        lambda: file_bytes(
            ".parquet",
            lambda path: _frame().to_parquet(path, index=False),
            lambda path: _frame(True).to_parquet(path, index=False, compression="none"),
        ),
    ),
    Reader(
        "array-tsv",
        ".tsv",
        _read_array,
        lambda: [
            _frame().to_csv(sep="\t", index=False).encode(),
            table(["1", "0", "NA"], [0, 1, "-1"], [1, 0, ""]),
        ],
    ),
    Reader(
        "array-csv",
        ".csv",
        _read_array,
        lambda: [
            _frame().to_csv(index=False).encode(),
            pd.DataFrame(scores()).to_csv().encode(),
            b'"a","b,c"\n0.5,1\n,"2"\n',
        ],
        tokens=(b'"', b'""', b",", b"Unnamed: 0", b"\n,"),
    ),
    Reader(
        "array-tsv.gz",
        ".tsv.gz",
        _read_array,
        lambda: [GZIP.wrap(b"", [_frame().to_csv(sep="\t", index=False).encode()])],
        GZIP,
    ),
    Reader(
        "auc-report",
        ".tsv",
        _report,
        lambda: [pd.DataFrame(labels(), columns=NAMES).to_csv(sep="\t", index=False).encode()],
        tokens=(b"</script>", b"<!--", b"NaN", b"-1"),
    ),
]
