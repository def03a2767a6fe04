"""DeepSEA's published training bundle, with the coordinates of its bins.

The bundle has three MATLAB files, `train.mat` (7.3), `valid.mat` and `test.mat` (5), each with windows
`…xdata` (rows, 4, 1000) and labels `…data` (rows, tracks). Channels are A, G, C, T; N is all zero.
The first half of the rows is the forward strand, the second half the reverse complements in the same
order, which are not used here: a model reads both strands itself. Bins are the lines of
`allTFs.pos.bed`: the first ones for training, the next for validation, those on chr8 and chr9 for
testing. A window of 1000 bp starts 400 bp before its bin of 200 bp.

Nothing but labels is taken from the bundle. Its windows serve as a check that the reference and the
coordinates are those it was made from.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.files import check_writable, checksum
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.chromatin.dataset import ChromatinData, write_dataset
from bigbird_dna.genome.chromatin.labels import LabelBuilder, PackedLabels
from bigbird_dna.genome.chromatin.region_splits import SPLITS
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.deepsea.bundle import (
    BIN,
    WINDOW,
    BundleBins,
    bundle_arrays,
    read_bundle_bins,
    unpacked,
)
from bigbird_dna.genome.deepsea.checks import check_prevalence, check_rows
from bigbird_dna.genome.deepsea.matlab import MatArray, open_mat
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.splits import Split


def build_deepsea(
    out: Path,
    bundle: Path,
    bed: Path,
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
    *,
    test_contigs: Sequence[str] = ("chr8", "chr9"),
    samples: int = 512,
) -> ChromatinData:
    """Turn the bundle into a chromatin data set `out`, rows in the bundle's order.

    Parameters
    ----------
    bundle
        The directory with the three MATLAB files, or the archive (`.tar.gz`), which is unpacked
        beside `out` for the time being (`unpack_bundle` does it for good).
    bed
        The bins: `allTFs.pos.bed`, plain, gzip or in a `.tar.gz`.
    tracks
        In the order of the labels.
    samples
        Windows of each file that are compared with the reference, spread evenly.

    Raises
    ------
    DataError
        A file is missing or damaged; arrays are missing or have other shapes; the numbers of bins,
        windows, labels and tracks differ; the second half of the rows isn't the reverse complement
        of the first; a window isn't the reference's sequence.

    A list of tracks with other shares of positives than the labels is warned of (`check_prevalence`).
    """
    check_writable(out, directory=True)
    bins = read_bundle_bins(bed, reference, assembly)  # before minutes of unpacking
    with unpacked(Path(bundle), Path(out)) as files:
        labels, rows = [], []
        for split, chosen in _split_rows(files, bins, bed, test_contigs, assembly).items():
            with open_mat(files[split]) as arrays:
                windows, values = bundle_arrays(files[split], arrays, split, len(tracks))
                checked = check_rows(windows, values, samples, bins, chosen, reference)
                log(
                    f"{files[split]}: {checked:,} of {len(chosen):,} windows agree with the reference"
                )
                labels.append(_read_labels(values, len(chosen)))
            rows.append(chosen)
        order = np.concatenate(rows)
        frame = pd.DataFrame(
            {
                "contig": pd.Categorical.from_codes(
                    bins.codes[order], categories=pd.Index(bins.contigs)
                ),
                "start": bins.starts[order],
                "end": bins.starts[order] + BIN,
                "split": pd.Categorical.from_codes(
                    np.repeat(np.arange(len(SPLITS)), [len(chosen) for chosen in rows]),
                    categories=pd.Index(SPLITS),
                ),
            }
        )
        info: dict[str, Any] = {
            "bin_size": BIN,
            "stride": BIN,
            "rule": "half",
            "window": WINDOW,
            "assembly": assembly.name,
            "left_out": [],
            "bins_of_no_split": len(bins.starts) - len(order),
            "sources": {
                "reference": {"file": reference.path.name, "sha256": checksum(reference.path)},
                "bins": {"file": Path(bed).name, "sha256": checksum(bed)},
            },
        }
        for split, path in files.items():
            info["sources"][split] = {"file": path.name, "sha256": checksum(path)}
    packed = PackedLabels(np.concatenate([part.packed for part in labels]), len(tracks))
    data = write_dataset(out, frame, packed, tracks, info)
    check_prevalence(data)
    return data


def _split_rows(
    files: Mapping[Split, Path],
    bins: BundleBins,
    bed: Path,
    test_contigs: Sequence[str],
    assembly: Assembly,
) -> dict[Split, npt.NDArray[np.intp]]:
    """Which bins are each split's forward rows, by the sizes of the files."""
    sizes: dict[Split, int] = {}
    for split, path in files.items():
        with open_mat(path) as arrays:
            windows, _ = bundle_arrays(path, arrays, split, None)
            sizes[split] = windows.shape[0] // 2
    held_out = [
        bins.contigs.index(contig)
        for contig in (assembly.match(name, bins.contigs) for name in test_contigs)
        if contig is not None
    ]
    for_test = np.isin(bins.codes, held_out)
    ends = sizes["train"], sizes["train"] + sizes["valid"]
    names = " and ".join(test_contigs)
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


def _read_labels(labels: MatArray, rows: int) -> PackedLabels:
    builder = LabelBuilder(rows, labels.shape[1])
    for block in labels.blocks(rows):
        builder.fill(block.track, block.row, block.values)
    return builder.build()
