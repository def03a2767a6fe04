"""A chromatin data set of the labels in DeepSEA's published bundle.

Bins are the lines of `allTFs.pos.bed`: the first ones for training, the next for validation, those on chr8
and chr9 for testing. A window of 1000 bp starts 400 bp before its bin of 200 bp. Windows serve only as a
check that the reference and the coordinates are those the bundle was made from.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.console import log
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.chromatin.dataset import ChromatinData, make_bins, source_entry, write_dataset
from bigbird_dna.genome.chromatin.deepsea import (
    BIN,
    WINDOW,
    BundleBins,
    bundle_arrays,
    check_prevalence,
    check_rows,
    read_bundle_bins,
    unpacked,
)
from bigbird_dna.genome.chromatin.labels import Bytes, LabelBuilder, PackedLabels
from bigbird_dna.genome.chromatin.matlab import open_mat
from bigbird_dna.genome.chromatin.regions import SPLITS
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.splits import Split

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
    """Turn the bundle into a chromatin data set `out`, rows in the bundle's order.

    `bundle` is the directory of the MATLAB files, or the archive, which is unpacked beside `out` for the time
    being. `bed` has the bins, plain, gzip or in a `.tar.gz`; `tracks` are in the order of the labels.
    `samples` windows of each file, spread evenly, are compared with the reference: whatever doesn't agree is
    a `DataError`.
    """
    check_directory(out, [bundle, bed, reference.path])
    bins = read_bundle_bins(bed, reference, assembly)  # before minutes of unpacking
    with unpacked(Path(bundle), Path(out)) as files:
        rows = _split_rows(files, bins, bed, assembly)
        packed: list[Bytes] = []
        for split, chosen in rows.items():
            with open_mat(path := files[split]) as arrays:
                windows, labels = bundle_arrays(path, arrays, split, len(tracks))
                checked = check_rows(windows, labels, samples, bins, chosen, reference)
                log(f"{path}: {checked:,} of {len(chosen):,} windows agree with the reference")
                builder = LabelBuilder(len(chosen), len(tracks))
                for first, row, part in labels.parts(len(chosen)):
                    for track, values in enumerate(part, first):
                        builder.mark(track, row + np.flatnonzero(values))
            packed.append(builder.build().packed)
        sources = {"reference": source_entry(reference.path), "bins": source_entry(Path(bed))}
        sources |= {split: source_entry(path) for split, path in files.items()}
    order = np.concatenate(list(rows.values()))
    splits = np.repeat(np.arange(len(SPLITS)), [len(chosen) for chosen in rows.values()])
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
    data = write_dataset(out, table, PackedLabels(np.concatenate(packed), len(tracks)), tracks, info)
    check_prevalence(data)
    return data


def _split_rows(
    files: Mapping[Split, Path], bins: BundleBins, bed: Path, assembly: Assembly
) -> dict[Split, npt.NDArray[np.intp]]:
    """Which bins are each split's forward rows, by the sizes of the files."""
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
            f"{bed}: {len(for_test):,} bins, fewer than the {ends[1]:,} windows of train.mat and valid.mat"
        )
    if for_test[: ends[1]].any():
        row = int(np.argmax(for_test[: ends[1]]))
        raise DataError(
            f"{bed}: bin {row + 1:,} is on {bins.contigs[bins.codes[row]]}, among the first {ends[1]:,}, "
            f"which are for training and validation ({names} are for testing): another order or file"
        )
    if np.count_nonzero(for_test) != sizes["test"]:
        raise DataError(
            f"{bed}: {np.count_nonzero(for_test):,} bins on {names}, test.mat has {sizes['test']:,} windows"
        )
    return {
        "train": np.arange(ends[0]),
        "valid": np.arange(ends[0], ends[1]),
        "test": np.flatnonzero(for_test),
    }
