"""Convert DeepSEA's published training bundle and the coordinates of its bins to a chromatin data set.

The bundle has three MATLAB files, `train.mat` (7.3), `valid.mat` and `test.mat` (5). Each contains windows
`…xdata` (rows, 4, 1000) and labels `…data` (rows, tracks). Channels are A, G, C, T; N is zero. The first
half of the rows is the forward strand; the second half has the reverse complements in the same order. These
are not used because a model reads both strands itself.

Bins are the lines of `allTFs.pos.bed`: the first ones for training, the next for validation, those on chr8
and chr9 for testing. A window of 1000 bp starts 400 bp before its bin of 200 bp. Windows are used only to
check that the reference and the coordinates are those of the bundle.
"""

import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

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
from bigbird_dna.genome.chromatin.labels import Bytes, PackedLabels
from bigbird_dna.genome.chromatin.matlab import MatArray, open_mat
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.intervals import read_intervals
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, Positions, base_codes, window_start
from bigbird_dna.genome.splits import SPLITS, Split

CHANNELS = "AGCT"
BIN = 200  # bp
WINDOW = 1000  # bp
MEMBERS = tuple(f"{split}.mat" for split in SPLITS)


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
    with _plain_bed(Path(bed)) as path:
        for line, name, start, end in read_intervals(path):
            if name not in known:
                known[name] = assembly.match(name, reference.contigs)
            contig = known[name]
            if contig is None:
                raise DataError(
                    f"{path}: line {line}: contig {name!r} is not in the reference "
                    f"({shown(reference.contigs)}; names are looked up in {assembly.name})"
                )
            if end - start != BIN or end > reference.contigs[contig]:
                raise DataError(
                    f"{path}: line {line}: {name}:{start}-{end} is not a bin of {BIN} bp on the "
                    f"reference's {reference.contigs[contig]:,} bp"
                )
            contigs.append(contig)
            starts.append(start)
    codes, found = pd.factorize(np.array(contigs, object))
    return BundleBins(found.tolist(), codes, np.array(starts, np.int64))


def unpack_bundle(archive: Path, directory: Path) -> None:
    """Write `train.mat`, `valid.mat` and `test.mat` of the bundle's archive to a directory."""
    missing = set(MEMBERS)
    directory.mkdir(parents=True, exist_ok=True)
    with (
        reading(archive, "not a complete tar archive", Exception),
        tarfile.open(archive, "r|*") as tar,
    ):
        for member in tar:
            name = Path(member.name).name
            if name in missing and member.isfile():
                log(f"unpacking {name} ({member.size / 1e6:,.0f} MB)")
                _write_member(tar, member, directory / name)
                missing.remove(name)
    if missing:
        raise DataError(
            f"{archive}: the archive does not contain {', '.join(sorted(missing))}"
        )


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None, "a regular file has content"
    with path.open("wb") as stream:
        shutil.copyfileobj(source, stream, 1 << 22)


@contextmanager
def unpacked(bundle: Path, out: Path) -> Iterator[dict[Split, Path]]:
    """Yield the bundle's files by split; an archive is unpacked to a temporary directory next to `out`."""
    if not bundle.is_dir():
        with scratch_directory(out.parent) as directory:
            unpack_bundle(bundle, directory)
            yield {split: directory / f"{split}.mat" for split in SPLITS}
        return
    files: dict[Split, Path] = {}
    for split, name in zip(SPLITS, MEMBERS, strict=True):
        paths = sorted(bundle.rglob(name), key=lambda path: (len(path.parts), path))
        if not paths:
            raise DataError(f"{bundle}: the directory does not contain {name}")
        files[split] = paths[0]
    yield files


def bundle_arrays(
    path: Path, arrays: Mapping[str, MatArray], split: Split, tracks: int | None
) -> tuple[MatArray, MatArray]:
    """Return the windows (rows, 4, 1000) and labels (rows, tracks) of a file.

    `DataError` for other shapes or, if `tracks` is given, another number of tracks.
    """
    for name in (f"{split}xdata", f"{split}data"):
        if name not in arrays:
            raise DataError(
                f"{path}: no array {name!r} in the file; its numeric arrays are: {', '.join(arrays) or 'none'}"
            )
    windows, labels = arrays[f"{split}xdata"], arrays[f"{split}data"]
    rows = windows.shape[0]
    if windows.shape[1:] != (len(CHANNELS), WINDOW):
        raise DataError(
            f"{path}: {windows.name} has MATLAB shape {windows.shape}, expected (rows, 4, 1000)"
        )
    if len(labels.shape) != 2 or labels.shape[0] != rows:
        raise DataError(
            f"{path}: {labels.name} has MATLAB shape {labels.shape}, expected ({rows}, tracks)"
        )
    if rows % 2 or not rows:
        raise DataError(
            f"{path}: {rows:,} rows; the forward strand needs as many rows as the reverse strand"
        )
    if tracks is not None and labels.shape[1] != tracks:
        raise DataError(
            f"{path}: {labels.name} has {labels.shape[1]:,} tracks, the table of tracks has {tracks:,}"
        )
    return windows, labels


@contextmanager
def _plain_bed(path: Path) -> Iterator[Path]:
    """Yield the file of bins, unpacked to a temporary directory if it is in a tar archive."""
    fault = "not a complete tar archive"
    with reading(path, fault, Exception):
        packed = path.is_file() and tarfile.is_tarfile(path)
    if not packed:
        yield path
        return
    with scratch_directory() as directory:
        with reading(path, fault, Exception), tarfile.open(path) as tar:
            # The archive may also contain the file's macOS resource fork (._name).
            members = [
                member
                for member in tar
                if member.isfile() and not Path(member.name).name.startswith(".")
            ]
            if len(members) != 1:
                raise DataError(
                    f"{path}: the archive contains {len(members)} files, expected one"
                )
            target = directory / Path(members[0].name).name
            _write_member(tar, members[0], target)
        try:
            yield target
        except DataError as error:
            raise DataError(
                str(error).replace(str(target), f"{path}: {target.name}")
            ) from None


_RUN = 16  # consecutive rows per check
_SEARCH = 1000  # bp on either side that are searched for a shifted window

_CODED = np.eye(5, 4, dtype=np.uint8)[:, [0, 2, 1, 3]]  # rows: codes of A, C, G, T, N


def check_rows(
    windows: MatArray,
    labels: MatArray,
    samples: int,
    bins: BundleBins,
    rows: npt.NDArray[np.intp],
    reference: Reference,
) -> int:
    """Compare rows with their reverse complements and the reference; return their number.

    `windows` (2 n, 4, 1000) and `labels` (2 n, tracks) contain n forward rows, then their reverse
    complements. `rows` (n,) has the bin of each forward row. A difference is a `DataError`.
    """
    half = len(rows)
    # About `samples` rows in runs of consecutive rows, including the first and the last row.
    starts = np.linspace(
        0, max(0, half - _RUN), max(1, -(-min(samples, half) // _RUN))
    ).astype(np.intp)
    chosen = np.unique(starts[:, None] + np.arange(_RUN))
    chosen = chosen[chosen < half]
    forward, backward = np.split(
        windows.pick(np.concatenate([chosen, chosen + half])), 2
    )
    first, second = np.split(labels.pick(np.concatenate([chosen, chosen + half])), 2)
    for what, one, other in (
        (windows, forward, backward[:, ::-1, ::-1]),
        (labels, first, second),
    ):
        unequal = np.flatnonzero((one != other).reshape(len(chosen), -1).any(axis=1))
        if len(unequal):
            row = int(chosen[unequal[0]])
            raise DataError(
                f"{what.path}: {what.name}: row {row + half + 1} is not the reverse complement of row "
                f"{row + 1}: the forward strand must come first, then all reverse complements"
            )
    for row, encoded in zip(chosen.tolist(), forward, strict=True):
        contig = bins.contigs[bins.codes[rows[row]]]
        start = int(window_start(bins.starts[rows[row : row + 1]], BIN, WINDOW)[0])
        window = Interval(contig, start, start + WINDOW)
        expected = reference.fetch(window)
        if not np.array_equal(_CODED[base_codes(expected)], encoded.T):
            raise DataError(
                f"{windows.path}: {windows.name}: row {row + 1} "
                f"{_describe_difference(encoded, expected, window, reference)}"
            )
    return len(chosen)


def check_prevalence(data: ChromatinData) -> None:
    """Warn about tracks whose fraction of positive test bins differs from the list of tracks.

    Labels have no names, so this check detects a list in another order. Tracks without a
    `published_prevalence` are skipped; published values have three digits.
    """
    test = data.rows("test")
    found = data.labels.positives(test) / max(len(test), 1)
    listed = pd.to_numeric(
        pd.Series([track.extra.get("published_prevalence") for track in data.tracks]),
        "coerce",
    ).to_numpy(np.float64)
    unlike = np.flatnonzero(
        np.abs(found - listed) > 0.01 * listed
    )  # False without a listed value
    if len(unlike):
        first = int(unlike[0])
        log(
            f"warning: {len(unlike):,} of {np.count_nonzero(~np.isnan(listed)):,} tracks differ in their "
            f"fraction of positive test bins from the list (the first is {data.tracks[first].name}: "
            f"{found[first]:.3g}, listed {listed[first]:.3g}); is the list in the order of the labels?"
        )


def _describe_difference(
    row: Bytes, expected: str, window: Interval, reference: Reference
) -> str:
    """Describe how a window (4, L) of the bundle differs from the reference sequence at its location."""
    if (row.sum(axis=0) > 1).any():
        return "is not one-hot: a base has more than one channel"
    letters = np.array([*f"N{CHANNELS}"])
    bases = letters[(row * np.arange(1, 5, dtype=np.uint8)[:, None]).sum(axis=0)]
    differences = np.flatnonzero(bases != np.array([*expected]))
    base = int(differences[0])
    around = Interval(window.contig, window.start - _SEARCH, window.end + _SEARCH)
    shift = reference.fetch(around).find("".join(bases)) - _SEARCH
    hint = (
        f"the bundle's window is {shift:+d} bp from this position: shifted coordinates"
        if shift >= -_SEARCH
        else "another assembly or shifted coordinates"
    )
    return (
        f"({window.contig}:{window.start}-{window.end}, 0-based): base {base + 1} is {bases[base]} in the "
        f"bundle and {expected[base]} in {reference.path} ({len(differences)} of {len(bases)} bases differ): "
        f"{hint}"
    )


_TEST_CONTIGS = ("chr8", "chr9")


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
    bins = read_bundle_bins(bed, reference, assembly)  # fails before the slow unpacking
    with unpacked(Path(bundle), Path(out)) as files:
        rows = _split_rows(files, bins, bed, assembly)
        packed: list[Bytes] = []
        for split, chosen in rows.items():
            with open_mat(path := files[split]) as arrays:
                windows, labels = bundle_arrays(path, arrays, split, len(tracks))
                checked = check_rows(windows, labels, samples, bins, chosen, reference)
                log(
                    f"{path}: {checked:,} of {len(chosen):,} windows match the reference"
                )
                marked = PackedLabels.empty(len(chosen), len(tracks))
                for first, row, part in labels.parts(len(chosen)):
                    for track, values in enumerate(part, first):
                        marked.mark(track, row + np.flatnonzero(values))
            packed.append(np.ascontiguousarray(marked.packed))
        sources = {
            "reference": source_entry(reference.path),
            "bins": source_entry(Path(bed)),
        }
        sources |= {split: source_entry(path) for split, path in files.items()}
    order = np.concatenate(list(rows.values()))
    splits = np.repeat(
        np.arange(len(SPLITS)), [len(chosen) for chosen in rows.values()]
    )
    table = make_bins(bins.contigs, bins.codes[order], bins.starts[order], splits, BIN)
    info: dict[str, Any] = {
        "bin_size": BIN,
        "stride": BIN,
        "rule": "half",
        "window": WINDOW,
        "assembly": assembly.name,
        "left_out": [],
        "bins_of_no_split": len(bins.starts) - len(table),
        "sources": sources,
    }
    data = write_dataset(
        out, table, PackedLabels(np.concatenate(packed), len(tracks)), tracks, info
    )
    check_prevalence(data)
    return data


def _split_rows(
    files: Mapping[Split, Path], bins: BundleBins, bed: Path, assembly: Assembly
) -> dict[Split, npt.NDArray[np.intp]]:
    """Return the bins of the forward rows of each split, from the sizes of the files."""
    sizes: dict[Split, int] = {}
    for split, path in files.items():
        with open_mat(path) as arrays:
            windows, _ = bundle_arrays(path, arrays, split, None)
            sizes[split] = windows.shape[0] // 2
    held_out = [
        bins.contigs.index(contig)
        for contig in (assembly.match(name, bins.contigs) for name in _TEST_CONTIGS)
        if contig is not None
    ]
    for_test = np.isin(bins.codes, held_out)
    ends = sizes["train"], sizes["train"] + sizes["valid"]
    names = " and ".join(_TEST_CONTIGS)
    if ends[1] > len(for_test):
        raise DataError(
            f"{bed}: {len(for_test):,} bins, but {ends[1]:,} windows in train.mat and valid.mat"
        )
    if for_test[: ends[1]].any():
        row = int(np.argmax(for_test[: ends[1]]))
        raise DataError(
            f"{bed}: bin {row + 1:,} is on {bins.contigs[bins.codes[row]]}, but the first {ends[1]:,} bins "
            f"are for training and validation ({names} are for testing): wrong order or file"
        )
    if np.count_nonzero(for_test) != sizes["test"]:
        raise DataError(
            f"{bed}: {np.count_nonzero(for_test):,} bins on {names}, {sizes['test']:,} windows in test.mat"
        )
    return {
        "train": np.arange(ends[0]),
        "valid": np.arange(ends[0], ends[1]),
        "test": np.flatnonzero(for_test),
    }
