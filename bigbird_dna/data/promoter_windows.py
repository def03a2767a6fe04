"""Build the promoter data set: windows around each TSS with their negatives, by split (App. F.2).

`windows.parquet` has one row per window (contig, start, end, strand, split, negative_set, pair, name) and
`labels.npz` its label; sequences are read from the reference on demand. A positive and its negatives have the
same number in `pair` and the same split.

Oubounyt et al. (2019) divide a positive into 20 parts, keep 8 in place and "substitute" 12. Two
interpretations are in use, and they are different tasks: `substituted` fills the 12 parts with random bases;
`permuted` shuffles the 12 parts among themselves.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config.promoters import DERIVED_SETS
from bigbird_dna.config.run import Config
from bigbird_dna.console import log
from bigbird_dna.data.negatives import MAX_N, find_negatives
from bigbird_dna.data.predictions import HOMOLOGY, POSITIVE
from bigbird_dna.disk.arrays import open_npz, read_frame
from bigbird_dna.disk.atomic import reading, write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import DataError, one_of
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n, inside, window_around
from bigbird_dna.genome.similarity import SIMILAR, similar_groups
from bigbird_dna.genome.sources import find_assembly
from bigbird_dna.genome.splits import SPLITS, Split, Splits

COLUMNS = [
    "contig",
    "start",
    "end",
    "strand",
    "split",
    "negative_set",
    "pair",
    "name",
    "homology",
]

PARTS = 20
CHANGED = 12
_BASES = np.frombuffer(b"ACGT", dtype=np.uint8)


class WindowSet(NamedTuple):
    """Rows of `windows.parquet` with their labels (N,), 1 for promoters."""

    rows: pd.DataFrame
    labels: npt.NDArray[np.uint8]


def prepare_windows(
    config: Config, reference: Path, promoters: Path, output: Path
) -> None:
    """Write the data set `output` as configured in the sections `genome` and `promoters.windows`.

    A training promoter has `negatives` negatives of each set, a held-out promoter one. The following promoters are excluded and counted:
    those on excluded contigs and regions, and those whose window leaves the contig or its split or has more
    than 10 % N. Held-out windows that are similar to each other (`similar_groups`) have a common number in
    the column `homology`.
    """
    genome = Reference(reference)
    loci = read_loci(promoters)
    settings = config.promoters.windows
    splits = Splits.from_config(config.genome, genome.contigs, find_assembly(config))

    counts: Counter[str] = Counter()
    windows: list[Interval] = []
    window_splits: list[Split] = []
    names: list[str] = []
    for locus in loci:
        window = window_around(locus, *settings.sides)
        site = Interval(locus.contig, locus.position, locus.position + 1)
        segments = splits.over(site)
        split = segments[0].split if segments else None
        if locus.contig not in genome.contigs or (segments and split is None):
            length = genome.contigs.get(locus.contig, 0)
            in_part = segments and len(segments[0].interval) < length
            counts["in an excluded region" if in_part else "on an excluded contig"] += 1
        elif split is None or not inside(window, genome.contigs):
            counts["window leaves the contig"] += 1
        elif splits.over(window) != segments:
            counts["window leaves its split"] += 1
        elif fraction_n(genome.fetch(window)) > MAX_N:
            counts["window holds too many N"] += 1
        else:
            windows.append(window)
            window_splits.append(split)
            names.append(locus.name)

    if not windows:
        raise DataError(
            f"{genome.path}: no promoter window of {settings.upstream}+{settings.downstream} bp is within a contig"
        )

    counts["promoters"] = len(windows)

    # Only training promoters have several negatives: held-out metrics compare one with one.
    owners: list[int] = []
    for pair, split in enumerate(window_splits):
        owners += [pair] * (settings.negatives if split == "train" else 1)

    rows: list[tuple[object, ...]] = []

    def add(
        intervals: Sequence[Interval | None],
        pairs: Sequence[int],
        negative_set: str,
    ) -> None:
        for window, pair in zip(intervals, pairs, strict=True):
            if window is not None:
                split = window_splits[pair]
                place = window.contig, window.start, window.end, window.strand
                rows.append((*place, split, negative_set, pair, names[pair]))

    add(windows, range(len(windows)), POSITIVE)
    for negative_set in settings.negative_sets:
        if negative_set in DERIVED_SETS:
            add([windows[pair] for pair in owners], owners, negative_set)
            continue

        negatives = find_negatives(
            genome,
            loci,
            windows,
            window_splits,
            splits,
            settings,
            owners,
            (config.seed, 3),
        )
        add(negatives, owners, negative_set)
        missing = negatives.count(None)
        counts[f"{negative_set} negatives not found"] = missing
        if missing:
            log(
                f"warning: no window found for {missing:,} of {len(owners):,} {negative_set} negatives: the split "
                "has no more of them at the minimum distance from every TSS"
            )

    table = pd.DataFrame(rows, columns=COLUMNS[:-1])

    # Training windows are in no group, nor are derived negatives, which are at the place of their promoter.
    homology = np.arange(len(table))
    is_derived = table["negative_set"].isin(DERIVED_SETS)
    for split in ("valid", "test"):
        chosen = np.flatnonzero((table["split"] == split) & ~is_derived)
        sequences = window_sequences(genome, table.iloc[chosen], config.seed)
        homology[chosen] = chosen[similar_groups(sequences, SIMILAR)]

    table[HOMOLOGY] = homology

    present = table.groupby(["split", "negative_set"]).size()
    for split in SPLITS:
        why = "their metrics are not defined"
        if split == "train":
            why = "a model cannot be trained"

        for name in (POSITIVE, *settings.negative_sets):
            if (split, name) not in present:
                what = "promoters" if name == POSITIVE else f"{name} negatives"
                log(f"warning: split {split!r} has no {what}: {why}")

    labels = (table["negative_set"] == POSITIVE).to_numpy()
    packed = np.packbits(labels[:, None], axis=1)  # (N, 1)
    with into_directory(output) as files:
        table.to_parquet(files / "windows.parquet", index=False)
        np.savez_compressed(
            files / "labels.npz", packed=packed, tracks=np.array(["promoter"])
        )
        write_json(files / "windows.json", counts)

    for reason, count in counts.items():
        if count:
            log(f"{count:,} {reason}")


def substitute(sequence: str, rng: np.random.Generator) -> str:
    """Fill 12 of the 20 parts, chosen at random, with random bases (interpretation of DeePromoter)."""
    letters, parts = _parts(sequence)
    for part in rng.choice(PARTS, CHANGED, replace=False):
        parts[part] = _BASES[rng.integers(0, 4, parts.shape[1])]
    return letters.tobytes().decode()


def permute(sequence: str, rng: np.random.Generator) -> str:
    """Shuffle 12 of the 20 parts, chosen at random, among themselves (interpretation of GENA-LM)."""
    letters, parts = _parts(sequence)
    chosen = rng.choice(PARTS, CHANGED, replace=False)
    origins = rng.permutation(chosen)
    while np.array_equal(origins, chosen):
        origins = rng.permutation(chosen)
    parts[chosen] = parts[origins]
    return letters.tobytes().decode()


def _parts(sequence: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the sequence as bytes, and a view of its parts (20, length) without up to 19 last bases."""
    letters = np.frombuffer(sequence.encode(), dtype=np.uint8).copy()
    size = len(sequence) // PARTS
    return letters, letters[: PARTS * size].reshape(PARTS, size)


def window_sequences(reference: Reference, rows: pd.DataFrame, seed: int) -> list[str]:
    """Return the sequence of each row, in transcription order.

    Derived negatives depend on the seed, their pair, and their index among the pair's negatives.
    """
    sequences = []
    columns = ["contig", "start", "end", "strand", "negative_set", "pair"]
    table = rows[columns].assign(variant=variants(rows))
    for *place, negative_set, pair, variant in table.itertuples(index=False, name=None):
        sequence = reference.fetch(Interval(*place))
        if negative_set == "substituted":
            rng = np.random.default_rng((seed, 1, pair, variant))
            sequence = substitute(sequence, rng)
        elif negative_set == "permuted":
            rng = np.random.default_rng((seed, 2, pair, variant))
            sequence = permute(sequence, rng)

        sequences.append(sequence)

    return sequences


def variants(rows: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the index of each row (N,) among the rows of its pair and negative set, in file order."""
    return np.asarray(rows.groupby(["pair", "negative_set"]).cumcount(), dtype=np.int64)


def read_windows(directory: Path, negative_set: str) -> WindowSet:
    """Read positives and the negatives of one set, in file order.

    `DataError` if a file is missing or damaged, or if the training windows are all promoters, or all
    negatives.
    """
    path = directory / "windows.parquet"
    for file in (path, directory / "labels.npz"):
        if not file.is_file():
            raise DataError(f"{file}: no such file; run `prepare promoter-windows`")

    rows = read_frame(path)
    with (
        reading(directory / "labels.npz", "damaged", Exception),
        open_npz(directory / "labels.npz") as stored,
    ):
        packed = stored["packed"]

    if list(rows.columns) != COLUMNS or packed.shape != (len(rows), 1):
        raise DataError(
            f"{path}: not a file of promoter windows, or labels.npz is of another data set"
        )

    labels = np.unpackbits(packed, axis=1)[:, 0]

    available = sorted(set(rows["negative_set"]) - {POSITIVE})
    if negative_set not in available:
        raise DataError(
            f"{path}: no negative set {negative_set!r}: {one_of(negative_set, available)}"
        )

    chosen = rows["negative_set"].isin([POSITIVE, negative_set]).to_numpy()
    rows, labels = rows[chosen].reset_index(drop=True), labels[chosen]
    training = labels[rows["split"].to_numpy() == "train"]
    for label, noun in ((1, "promoter"), (0, "negative")):
        if label not in training:
            raise DataError(f"{directory}: no {noun} is in split 'train'")

    return WindowSet(rows, labels)
