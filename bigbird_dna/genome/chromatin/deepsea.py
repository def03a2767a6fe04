"""Convert DeepSEA's published training bundle and the coordinates of its bins to a chromatin data set.

The bundle has three MATLAB files, `train.mat` (7.3, which is HDF5), `valid.mat` and `test.mat` (5). Each
contains windows `…xdata` (rows, 4, 1000) and labels `…data` (rows, tracks); rows are the last axis here, as
in HDF5. Channels are A, G, C, T; N is zero. The first half of the rows is the forward strand; the second half
has the reverse complements in the same order. These are not used because a model reads both strands itself.

Bins are the lines of `allTFs.pos.bed`: the first ones for training, the next for validation, those on chr8
and chr9 for testing. A window of 1000 bp starts 400 bp before its bin of 200 bp. Windows are used only to
check that the reference and the coordinates are those of the bundle.
"""

import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

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
from bigbird_dna.genome.intervals import read_bed
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, base_codes
from bigbird_dna.genome.splits import SPLITS, Split

CHANNELS = "AGCT"
BIN = 200  # bp
WINDOW = 1000  # bp
_TEST_CONTIGS = ("chr8", "chr9")
_SAMPLES = 512  # windows of a file that are compared with the reference
_RUN = 16  # consecutive rows per check
_AT_ONCE = 1 << 16  # rows of labels in memory at a time
_CODED = np.eye(5, 4, dtype=np.uint8)[:, [0, 2, 1, 3]]  # rows: codes of A, C, G, T, N
_DAMAGED = "truncated or damaged, or not a MATLAB file of DeepSEA's bundle"
_ARCHIVE = "not a complete tar archive"


@contextmanager
def _unpacked(
    source: Path, names: Sequence[str], scratch: Path
) -> Iterator[list[Path]]:
    """Yield the files of a directory, or of a tar archive, which is unpacked next to `scratch`."""
    with scratch_directory(scratch.parent) as directory:
        folder = source
        if not source.is_dir():
            folder = directory
            with reading(source, _ARCHIVE, Exception), tarfile.open(source) as tar:
                for member in tar:
                    name = Path(member.name).name
                    file = tar.extractfile(member) if member.isfile() else None
                    if file is not None and name in names:
                        log(f"unpacking {name} ({member.size / 1e6:,.0f} MB)")
                        with (directory / name).open("wb") as copy:
                            shutil.copyfileobj(file, copy)

        paths = []
        for name in names:
            path = next(folder.rglob(name), None)
            if path is None:
                raise DataError(f"{source}: does not contain {name}")

            paths.append(path)

        yield paths


@contextmanager
def _open_arrays(path: Path, split: Split) -> Iterator[tuple[Any, Any]]:
    """Yield the windows (1000, 4, rows) and the labels (tracks, rows) of a file of the bundle."""
    names = f"{split}xdata", f"{split}data"
    with reading(path, _DAMAGED, Exception), ExitStack() as stack:
        if h5py.is_hdf5(path):
            file = stack.enter_context(h5py.File(path, "r"))
            windows, labels = (file[name] for name in names)
        else:
            arrays = scipy.io.loadmat(path, variable_names=names)
            windows, labels = (arrays[name].T for name in names)

        rows = windows.shape[-1]
        shapes = windows.shape, labels.shape[1:]
        if shapes != ((WINDOW, len(CHANNELS), rows), (rows,)) or rows % 2 or not rows:
            raise DataError(
                f"{path}: windows of MATLAB shape {windows.shape[::-1]} and labels of {labels.shape[::-1]}; "
                "expected (rows, 4, 1000) and (rows, tracks), with as many rows of the forward as of the reverse "
                "strand"
            )

        yield windows, labels


def build_deepsea(
    out: Path,
    bundle: Path,
    bed: Path,
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
) -> ChromatinData:
    """Convert the bundle to a chromatin data set `out` with rows in the bundle's order.

    `bundle` is the directory of the MATLAB files, or the archive, which is temporarily unpacked next to
    `out`. `bed` has the bins, plain, gzip or in a `.tar.gz`; `tracks` are in the order of the labels. From
    each file, evenly spread windows are compared with the reference. A difference is a `DataError`.
    """
    check_directory(out, [bundle, bed, reference.path])
    with ExitStack() as stack:
        path = bed
        if bed.suffixes[-2:] == [".tar", ".gz"]:
            (path,) = stack.enter_context(_unpacked(bed, ["allTFs.pos.bed"], out))

        rows = [(fields[0], start, end) for _, fields, start, end in read_bed(path)]

    bins = pd.DataFrame(rows, columns=["name", "start", "end"])
    bins["contig"] = bins["name"].map(
        {
            name: assembly.match(name, reference.contigs)
            for name in bins["name"].unique()
        }
    )
    unknown = bins["contig"].isna()
    if unknown.any():
        raise DataError(
            f"{bed}: contig {bins['name'][unknown].iloc[0]!r} is not in the reference "
            f"({shown(reference.contigs)}; names are looked up in {assembly.name})"
        )

    lengths = bins["contig"].map(reference.contigs)
    wrong = (bins["end"] - bins["start"] != BIN) | (bins["end"] > lengths)
    if wrong.any():
        name, start, end, contig = bins[wrong].iloc[0]
        raise DataError(
            f"{bed}: {name}:{start}-{end} is not a bin of {BIN} bp on the reference's "
            f"{reference.contigs[contig]:,} bp"
        )

    for_test = bins["contig"].isin(
        [assembly.match(name, reference.contigs) for name in _TEST_CONTIGS]
    )
    first = 0
    indices, packed = [], []
    sources = {"reference": source_entry(reference.path), "bins": source_entry(bed)}
    with _unpacked(bundle, [f"{split}.mat" for split in SPLITS], out) as paths:
        for split, path in zip(SPLITS, paths, strict=True):
            with _open_arrays(path, split) as (windows, labels):
                count = windows.shape[-1] // 2
                chosen = np.arange(first, first + count)
                if split == "test":
                    chosen = np.flatnonzero(for_test)
                    fits = len(chosen) == count
                else:
                    first += count
                    fits = first <= len(bins) and not for_test[chosen].any()

                if not fits:
                    raise DataError(
                        f"{bed}: wrong order or file: bins on {' and '.join(_TEST_CONTIGS)} must be as many as "
                        "windows in test.mat, and come after those of train.mat and valid.mat"
                    )

                _check_rows(path, windows, bins.iloc[chosen], reference)
                packed.append(_pack(path, labels, count, len(tracks)))

            indices.append(chosen)
            sources[split] = source_entry(path)

    rows_of = np.concatenate(indices)
    splits = np.repeat(np.arange(len(SPLITS)), [len(chosen) for chosen in indices])
    codes, contigs = pd.factorize(bins["contig"])
    starts = bins["start"].to_numpy(np.int64)
    table = make_bins(contigs.tolist(), codes[rows_of], starts[rows_of], splits, BIN)
    info: dict[str, Any] = {
        "bin_size": BIN,
        "rule": "half",
        "window": WINDOW,
        "assembly": assembly.name,
        "left_out": [],
        "bins_of_no_split": len(bins) - len(table),
        "sources": sources,
    }
    labels = PackedLabels(np.concatenate(packed), len(tracks))
    return write_dataset(out, table, labels, tracks, info)


def _check_rows(
    path: Path, windows: Any, bins: pd.DataFrame, reference: Reference
) -> None:
    """Compare some windows, in runs of consecutive rows, with the bins of the forward rows on the reference.

    A difference is a `DataError`.
    """
    runs = max(1, -(-min(_SAMPLES, len(bins)) // _RUN))
    firsts = np.linspace(0, max(0, len(bins) - _RUN), runs).astype(np.intp)
    for first in firsts.tolist():
        last = min(first + _RUN, len(bins))
        for row, encoded in enumerate(windows[..., first:last].T, first):
            contig = bins["contig"].iloc[row]
            start = int(bins["start"].iloc[row]) + BIN // 2 - WINDOW // 2
            window = Interval(contig, start, start + WINDOW)
            expected = _CODED[base_codes(reference.fetch(window))]
            differing = np.flatnonzero((expected != encoded.T).any(axis=1))
            if len(differing):
                raise DataError(
                    f"{path}: window {row + 1} ({contig}:{start}-{start + WINDOW}, 0-based) differs from "
                    f"{reference.path} in {len(differing)} of {WINDOW} bases, first in base "
                    f"{differing[0] + 1}: another assembly, shifted coordinates, or another order of rows"
                )

    log(f"{path}: {len(bins):,} windows; a sample of them matches the reference")


def _pack(path: Path, labels: Any, rows: int, tracks: int) -> npt.NDArray[np.uint8]:
    """Return the packed labels of the forward rows (rows, K)."""
    if labels.shape[0] != tracks:
        raise DataError(
            f"{path}: labels of {labels.shape[0]:,} tracks, the table of tracks has {tracks:,}"
        )

    packed = []
    for first in range(0, rows, _AT_ONCE):
        values = labels[:, first : min(first + _AT_ONCE, rows)]
        if not np.isin(values, (0, 1)).all():
            raise DataError(f"{path}: labels contain values other than 0 and 1")

        packed.append(PackedLabels.from_dense(values.T).packed)

    return np.concatenate(packed)
