"""The files of DeepSEA's bundle: found or unpacked, and their contents checked for shape."""

import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.files import atomic_path, reading
from bigbird_dna.genome.assembly import Assembly, shown
from bigbird_dna.genome.chromatin.peaks import Positions, read_intervals
from bigbird_dna.genome.chromatin.region_splits import SPLITS
from bigbird_dna.genome.deepsea.matlab import MatArray
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.splits import Split
from bigbird_dna.scratch import scratch_directory

CHANNELS = "AGCT"
BIN = 200  # bp
WINDOW = 1000  # bp
_SMALLEST = 10_000  # no packing makes a matrix smaller than by this factor
MEMBERS = tuple(f"{split}.mat" for split in SPLITS)


class BundleBins(NamedTuple):
    """The bins of the coordinate file in file order, contigs named as in the reference."""

    contigs: list[str]
    codes: npt.NDArray[np.intp]  # (N,), of `contigs`
    starts: Positions  # (N,)


def read_bundle_bins(bed: Path, reference: Reference, assembly: Assembly) -> BundleBins:
    """Read the coordinates of the bins.

    Raises
    ------
    DataError
        The file can't be read, an interval hasn't 200 bp, its contig isn't in the reference, or it
        ends beyond it.
    """
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
    """Write `train.mat`, `valid.mat` and `test.mat` of the bundle's archive to a directory.

    Files that are there with the size they have in the archive are not written again.

    Raises
    ------
    UsageError
        A file of that name and another size is there.
    DataError
        The archive is missing, damaged or truncated, or lacks one of them.
    """
    found = set()
    with reading(archive, "not a complete tar archive", Exception), tarfile.open(archive, "r|*") as tar:
        for member in tar:
            name = Path(member.name).name
            if name not in MEMBERS or not member.isfile():
                continue
            target = directory / name
            if target.exists() and not (target.is_file() and target.stat().st_size == member.size):
                raise UsageError(f"{target}: is there, and not of the archive's size: move it away")
            if not target.exists():
                log(f"unpacking {name} ({member.size / 1e6:,.0f} MB)")
                with atomic_path(target) as temporary:
                    _unpack(tar, member, archive, temporary)
            found.add(name)
            if found == set(MEMBERS):
                return
    missing = ", ".join(name for name in MEMBERS if name not in found)
    raise DataError(f"{archive}: no {missing} in the archive")


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, archive: Path, target: Path) -> None:
    """Write a file of an archive; one that claims to have more than the archive can hold is refused."""
    if member.issparse() or member.size > _SMALLEST * archive.stat().st_size:
        raise DataError(f"{archive}: {member.name}: {member.size:,} bytes are more than the archive can hold")
    source = tar.extractfile(member)
    assert source is not None, "a regular file has content"
    with target.open("wb") as stream:
        while block := source.read(1 << 22):
            stream.write(block)
        if stream.tell() != member.size:
            raise EOFError("unexpected end of data")


@contextmanager
def unpacked(bundle: Path, out: Path) -> Iterator[dict[Split, Path]]:
    """The bundle's files by split; an archive is unpacked beside `out` for the time being."""
    if bundle.is_dir():
        yield find_files(bundle)
        return
    with scratch_directory(out.parent) as directory:
        unpack_bundle(bundle, directory)
        yield find_files(directory)


def find_files(directory: Path) -> dict[Split, Path]:
    """The bundle's files in a directory or below it, by split."""
    files: dict[Split, Path] = {}
    for split, name in zip(SPLITS, MEMBERS, strict=True):
        found = sorted(directory.rglob(name), key=lambda path: (len(path.parts), path))
        if not found:
            raise DataError(f"{directory}: no {name} in it")
        files[split] = found[0]
    return files


def bundle_arrays(
    path: Path, arrays: Mapping[str, MatArray], split: Split, tracks: int | None
) -> tuple[MatArray, MatArray]:
    """The windows (rows, 4, 1000) and labels (rows, tracks) of a file.

    Raises
    ------
    DataError
        One is missing, or they have other shapes; with `tracks`, another number of tracks.
    """
    names = f"{split}xdata", f"{split}data"
    for name in names:
        if name not in arrays:
            there = f"has only {', '.join(arrays)}" if arrays else "has no numeric array"
            raise DataError(f"{path}: no array {name!r}; the file {there}")
    windows, labels = arrays[names[0]], arrays[names[1]]
    wanted = (len(CHANNELS), WINDOW)
    if windows.shape[1:] != wanted:
        axes = len(windows.shape) == 3 and set(wanted) <= set(windows.shape)
        raise DataError(
            f"{path}: {windows.name} is {windows.shape} in MATLAB's order, (rows, 4, 1000) is expected"
            + (": its axes are in another order (transposed already?)" if axes else "")
        )
    if len(labels.shape) != 2:
        raise DataError(f"{path}: {labels.name} is {labels.shape}, not (rows, tracks)")
    rows = windows.shape[0]
    if labels.shape[0] != rows:
        turned = " (axes in another order?)" if labels.shape[1] == rows else ""
        raise DataError(
            f"{path}: {labels.name} is {labels.shape} in MATLAB's order, {rows:,} rows are expected{turned}"
        )
    if rows % 2 or not rows:
        raise DataError(f"{path}: {rows:,} rows: not as many reverse complements as forward rows")
    if tracks is not None and labels.shape[1] != tracks:
        raise DataError(
            f"{path}: {labels.name} has {labels.shape[1]:,} tracks, the table of tracks {tracks:,}"
        )
    return windows, labels


@contextmanager
def _plain_bed(path: Path) -> Iterator[Path]:
    """The file of bins itself, or the one in a tar archive."""
    fault = "not a complete tar archive"
    with reading(path, fault, Exception):
        packed = path.is_file() and tarfile.is_tarfile(path)
    if not packed:
        yield path
        return
    with scratch_directory() as directory:
        with reading(path, fault, Exception), tarfile.open(path) as tar:
            # The archive may hold a Mac's resource fork (._name) beside the file.
            members = [
                member for member in tar if member.isfile() and not Path(member.name).name.startswith(".")
            ]
            if len(members) != 1:
                raise DataError(f"{path}: {len(members)} files in the archive, one is expected")
            target = directory / Path(members[0].name).name
            _unpack(tar, members[0], path, target)
        try:
            yield target
        except DataError as error:
            raise DataError(str(error).replace(str(target), f"{path}: {target.name}")) from None
