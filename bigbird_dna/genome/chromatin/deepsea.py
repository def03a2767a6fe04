"""Convert DeepSEA's published training bundle and the coordinates of its bins to a chromatin data set.

The bundle has three MATLAB files, `train.mat` (7.3, which is HDF5), `valid.mat` and `test.mat` (5). Each
contains windows `…xdata` (rows, 4, 1000) and labels `…data` (rows, tracks); rows are the last axis here, as in
HDF5. Channels are A, G, C, T; N is zero. The first half of the rows is the forward strand; the second half has
the reverse complements in the same order. These are not used because a model reads both strands itself.

Bins are the lines of `allTFs.pos.bed`: the first ones for training, the next for validation, those on chr8
and chr9 for testing. A window of 1000 bp starts 400 bp before its bin of 200 bp. Windows are used only to
check that the reference and the coordinates are those of the bundle.
"""

import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.io

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import reading, scratch_directory
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly, shown
from bigbird_dna.genome.chromatin.dataset import (
    ChromatinData,
    make_bins,
    source_entry,
    write_dataset,
)
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.intervals import read_intervals
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, Positions, base_codes, window_start
from bigbird_dna.genome.splits import SPLITS, Split

CHANNELS = "AGCT"
BIN = 200  # bp
WINDOW = 1000  # bp
_TEST_CONTIGS = ("chr8", "chr9")
_RUN = 16  # consecutive rows per check
_AT_ONCE = 1 << 26  # bytes of labels in memory at a time
_CODED = np.eye(5, 4, dtype=np.uint8)[:, [0, 2, 1, 3]]  # rows: codes of A, C, G, T, N
_DAMAGED = "truncated or damaged, or not a MATLAB file of DeepSEA's bundle"
_ARCHIVE = "not a complete tar archive"


class BundleBins(NamedTuple):
    """The bins of the coordinate file in file order, with the reference's names of contigs."""

    contigs: list[str]
    codes: npt.NDArray[np.intp]  # (N,), indices of `contigs`
    starts: Positions  # (N,)


def read_bundle_bins(bed: Path, reference: Reference, assembly: Assembly) -> BundleBins:
    """Read the coordinates of the bins; `DataError` unless each is an interval of 200 bp on the reference."""
    contigs: list[str] = []
    starts: list[int] = []
    known: dict[str, str | None] = {}
    for line, name, start, end in read_intervals(bed):
        if name not in known:
            known[name] = assembly.match(name, reference.contigs)
        contig = known[name]
        if contig is None:
            raise DataError(
                f"{bed}: line {line}: contig {name!r} is not in the reference "
                f"({shown(reference.contigs)}; names are looked up in {assembly.name})"
            )
        if end - start != BIN or end > reference.contigs[contig]:
            raise DataError(
                f"{bed}: line {line}: {name}:{start}-{end} is not a bin of {BIN} bp on the "
                f"reference's {reference.contigs[contig]:,} bp"
            )
        contigs.append(contig)
        starts.append(start)
    codes, found = pd.factorize(np.array(contigs, object))
    return BundleBins(found.tolist(), codes, np.array(starts, np.int64))


@contextmanager
def _unpacked(
    source: Path, names: Sequence[str], scratch: Path
) -> Iterator[list[Path]]:
    """Yield the files of a directory, or of a tar archive, which is unpacked next to `scratch`."""
    with scratch_directory(scratch.parent) as directory:
        if not source.is_dir():
            with reading(source, _ARCHIVE, Exception), tarfile.open(source) as tar:
                for member in tar:
                    member.name = Path(member.name).name
                    if member.isfile() and member.name in names:
                        log(f"unpacking {member.name} ({member.size / 1e6:,.0f} MB)")
                        tar.extract(member, directory, filter="data")
            source = directory
        paths = [next(iter(sorted(source.rglob(name))), None) for name in names]
        for name, path in zip(names, paths, strict=True):
            if path is None:
                raise DataError(f"{source}: does not contain {name}")
        yield [path for path in paths if path is not None]


@contextmanager
def _open_arrays(path: Path, split: Split) -> Iterator[tuple[Any, Any]]:
    """Yield the windows (1000, 4, rows) and the labels (tracks, rows) of a file of the bundle."""
    names = f"{split}xdata", f"{split}data"
    with reading(path, _DAMAGED, Exception):
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                yield _checked(path, *(file[name] for name in names))
        else:
            found = scipy.io.loadmat(path, variable_names=names)
            yield _checked(path, *(found[name].T for name in names))


def _checked(path: Path, windows: Any, labels: Any) -> tuple[Any, Any]:
    rows = windows.shape[-1]
    if windows.shape != (WINDOW, len(CHANNELS), rows) or labels.shape[1:] != (rows,):
        raise DataError(
            f"{path}: windows of MATLAB shape {windows.shape[::-1]} and labels of {labels.shape[::-1]}; "
            "expected (rows, 4, 1000) and (rows, tracks)"
        )
    if rows % 2 or not rows:
        raise DataError(
            f"{path}: {rows:,} rows; the forward strand needs as many rows as the reverse strand"
        )
    return windows, labels


def build_deepsea(
    out: Path,
    bundle: Path,
    bed: Path,
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
    *,
    samples: int = 512,
) -> ChromatinData:
    """Convert the bundle to a chromatin data set `out` with rows in the bundle's order.

    `bundle` is the directory of the MATLAB files, or the archive, which is temporarily unpacked next to
    `out`. `bed` has the bins, plain, gzip or in a `.tar.gz`; `tracks` are in the order of the labels. From
    each file, `samples` evenly spread windows are compared with the reference. A difference is a `DataError`.
    """
    check_directory(out, [bundle, bed, reference.path])
    if bed.suffixes[-2:] == [".tar", ".gz"]:
        with _unpacked(bed, ["allTFs.pos.bed"], out) as (path,):
            bins = read_bundle_bins(path, reference, assembly)
    else:
        bins = read_bundle_bins(bed, reference, assembly)
    with _unpacked(bundle, [f"{split}.mat" for split in SPLITS], out) as paths:
        files = dict(zip(SPLITS, paths, strict=True))
        sizes: dict[Split, int] = {}
        for split, path in files.items():
            with _open_arrays(path, split) as (windows, _):
                sizes[split] = windows.shape[-1] // 2
        rows = _split_rows(sizes, bins, bed, assembly)
        packed = []
        for split, path in files.items():
            with _open_arrays(path, split) as (windows, labels):
                _check_rows(path, windows, samples, bins, rows[split], reference)
                packed.append(_pack(path, labels, len(rows[split]), len(tracks)))
        inputs: dict[str, Path] = {"reference": reference.path, "bins": bed}
        inputs |= {str(split): path for split, path in files.items()}
        sources = {name: source_entry(path) for name, path in inputs.items()}
    order = np.concatenate(list(rows.values()))
    splits = np.repeat(
        np.arange(len(SPLITS)), [len(chosen) for chosen in rows.values()]
    )
    table = make_bins(bins.contigs, bins.codes[order], bins.starts[order], splits, BIN)
    info: dict[str, Any] = {
        "bin_size": BIN,
        "rule": "half",
        "window": WINDOW,
        "assembly": assembly.name,
        "left_out": [],
        "bins_of_no_split": len(bins.starts) - len(table),
        "sources": sources,
    }
    labels = PackedLabels(np.concatenate(packed), len(tracks))
    return write_dataset(out, table, labels, tracks, info)


def _split_rows(
    sizes: dict[Split, int], bins: BundleBins, bed: Path, assembly: Assembly
) -> dict[Split, npt.NDArray[np.intp]]:
    """Return the bins of the forward rows of each split, from the numbers of windows in the files."""
    held_out = [
        bins.contigs.index(contig)
        for contig in (assembly.match(name, bins.contigs) for name in _TEST_CONTIGS)
        if contig is not None
    ]
    for_test = np.isin(bins.codes, held_out)
    ends = sizes["train"], sizes["train"] + sizes["valid"]
    if ends[1] > len(for_test) or for_test[: ends[1]].any():
        raise DataError(
            f"{bed}: the first {ends[1]:,} bins, as many as windows in train.mat and valid.mat, must be on "
            f"other contigs than {' and '.join(_TEST_CONTIGS)}: wrong order or file"
        )
    if np.count_nonzero(for_test) != sizes["test"]:
        raise DataError(
            f"{bed}: {np.count_nonzero(for_test):,} bins on {' and '.join(_TEST_CONTIGS)}, "
            f"{sizes['test']:,} windows in test.mat"
        )
    return {
        "train": np.arange(ends[0]),
        "valid": np.arange(ends[0], ends[1]),
        "test": np.flatnonzero(for_test),
    }


def _check_rows(
    path: Path,
    windows: Any,
    samples: int,
    bins: BundleBins,
    rows: npt.NDArray[np.intp],
    reference: Reference,
) -> None:
    """Compare about `samples` windows, in runs of consecutive rows, with the reference.

    `rows` (n,) has the bin of each forward row. A difference is a `DataError`.
    """
    runs = max(1, -(-min(samples, len(rows)) // _RUN))
    firsts = np.linspace(0, max(0, len(rows) - _RUN), runs).astype(np.intp)
    for first in firsts.tolist():
        for row, encoded in enumerate(windows[..., first : first + _RUN].T, first):
            if row >= len(rows):
                break
            contig = bins.contigs[bins.codes[rows[row]]]
            start = int(window_start(bins.starts[rows[row : row + 1]], BIN, WINDOW)[0])
            window = Interval(contig, start, start + WINDOW)
            expected = _CODED[base_codes(reference.fetch(window))]
            differing = np.flatnonzero((expected != encoded.T).any(axis=1))
            if len(differing):
                raise DataError(
                    f"{path}: window {row + 1} ({contig}:{start}-{start + WINDOW}, 0-based) differs from "
                    f"{reference.path} in {len(differing)} of {WINDOW} bases, first in base "
                    f"{differing[0] + 1}: another assembly, shifted coordinates, or another order of rows"
                )
    log(f"{path}: {len(rows):,} windows; a sample of them matches the reference")


def _pack(path: Path, labels: Any, rows: int, tracks: int) -> npt.NDArray[np.uint8]:
    """Return the packed labels of the forward rows (rows, K)."""
    if labels.shape[0] != tracks:
        raise DataError(
            f"{path}: labels of {labels.shape[0]:,} tracks, the table of tracks has {tracks:,}"
        )
    marked = PackedLabels.empty(rows, tracks)
    width = (getattr(labels, "chunks", None) or (1, 1))[1]
    width *= max(1, _AT_ONCE // (tracks * width * labels.dtype.itemsize))
    for first in range(0, rows, width):
        values = labels[:, first : min(first + width, rows)]
        if not np.isin(values, (0, 1)).all():
            raise DataError(f"{path}: labels contain values other than 0 and 1")
        for track, of_track in enumerate(values):
            marked.mark(track, first + np.flatnonzero(of_track))
    return np.ascontiguousarray(marked.packed)
