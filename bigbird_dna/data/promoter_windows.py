"""Build the promoter data set: windows around each TSS with their negatives, by split (App. F.2).

`windows.parquet` has one row per window (contig, start, end, strand, split, negative_set, pair, name) and
`labels.npz` its label; sequences are read from the reference on demand. A positive and its negatives have the
same number in `pair` and the same split. With an annotation, a last column `coding` has the fraction of
coding bases of the window.

Oubounyt et al. (2019) divide a positive into 20 parts, keep 8 in place and "substitute" 12. Two
interpretations are in use, and they are different tasks: `substituted` fills the 12 parts with random bases;
`permuted` shuffles the 12 parts among themselves.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config.promoters import (
    DERIVED_SETS,
)
from bigbird_dna.config.run import Config
from bigbird_dna.console import log
from bigbird_dna.data.chromatin import LEAST_EXAMPLES, draw_groups
from bigbird_dna.data.negatives import (
    MAX_N,
    coding_counts,
    coding_fractions,
    find_negatives,
    open_coding,
)
from bigbird_dna.data.predictions import CODING, HOMOLOGY, POSITIVE
from bigbird_dna.disk.arrays import open_npz, read_frame
from bigbird_dna.disk.atomic import reading, write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError, one_of
from bigbird_dna.genome.chromatin.dataset import source_entry
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    fraction_n,
    inside,
    window_around,
)
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
    config: Config,
    reference: Path,
    promoters: Path,
    output: Path,
    annotation: Path | None = None,
) -> None:
    """Write the data set `output` as configured in the sections `genome` and `promoters.windows`.

    A training promoter has `negatives` negatives of each set, a held-out promoter one. The following
    promoters are excluded and counted: those on excluded contigs and regions, and those whose window leaves the contig or its split or has more
    than 10 % N. Held-out windows that are similar to each other (`similar_groups`) have a common number in
    the column `homology`.
    An `annotation`, GFF3 or GTF, adds the column `coding` and allows `intergenic` negatives.
    """
    genome, loci, settings = (
        Reference(reference),
        read_loci(promoters),
        config.promoters.windows,
    )
    assembly = find_assembly(config)
    coding = (
        None
        if annotation is None
        else open_coding(annotation, genome.contigs, assembly)
    )
    if "intergenic" in settings.negative_sets and coding is None:
        raise ConfigError(
            "promoters.windows.negative_sets: 'intergenic' needs the coding sequences; give a GFF3 or "
            "GTF file in promoters.annotation, or with prepare promoter-windows --annotation FILE"
        )
    splits = Splits.from_config(config.genome, genome.contigs, assembly)
    counts: Counter[str] = Counter()
    windows: list[Interval] = []
    window_splits: list[Split] = []
    names: list[str] = []
    for locus in loci:
        window = window_around(locus, *settings.sides)
        here = splits.over(Interval(locus.contig, locus.position, locus.position + 1))
        split = here[0].split if here else None
        if locus.contig not in genome.contigs or (here and split is None):
            cut = here and len(here[0].interval) < genome.contigs[locus.contig]
            counts["in an excluded region" if cut else "on an excluded contig"] += 1
        elif split is None or not inside(window, genome.contigs):
            counts["window leaves the contig"] += 1
        elif splits.over(window) != here:
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
        found: Sequence[Interval | None], pairs: Sequence[int], negative_set: str
    ) -> None:
        for window, pair in zip(found, pairs, strict=True):
            if window is not None:
                split = window_splits[pair]
                rows.append((*astuple(window), split, negative_set, pair, names[pair]))

    add(windows, range(len(windows)), POSITIVE)
    for negative_set in settings.negative_sets:
        if negative_set in DERIVED_SETS:
            add([windows[pair] for pair in owners], owners, negative_set)
            continue
        stream = 8 if negative_set == "intergenic" else 3
        found = find_negatives(
            genome,
            loci,
            windows,
            window_splits,
            splits,
            settings,
            owners,
            (config.seed, stream),
            coding=coding if negative_set == "intergenic" else None,
        )
        add(found, owners, negative_set)
        missing = found.count(None)
        counts[f"{negative_set} negatives not found"] = missing
        if missing:
            lacking = {*owners} - {
                pair for pair, window in zip(owners, found, strict=True) if window
            }
            log(
                f"warning: no window found for {missing:,} of {len(owners):,} {negative_set} negatives: the split "
                f"has no more of them at the minimum distance from every TSS; {len(lacking):,} promoters have none "
                "and are kept"
            )
    table, info = pd.DataFrame(rows, columns=COLUMNS[:-1]), dict[str, Any](counts)
    # Training windows are in no group, nor are derived negatives, which are at the place of their promoter.
    homology = np.arange(len(table))
    for split in ("valid", "test"):
        chosen = np.flatnonzero(
            (table["split"] == split) & ~table["negative_set"].isin(DERIVED_SETS)
        )
        sequences = window_sequences(genome, table.iloc[chosen], config.seed)
        homology[chosen] = chosen[similar_groups(sequences, SIMILAR)]
    table[HOMOLOGY] = homology
    if annotation is not None and coding is not None:
        table[CODING] = coding_fractions(coding, table)
        info |= coding_counts(table)
        info["annotation"] = source_entry(Path(annotation))
    present = table.groupby(["split", "negative_set"]).size()
    for split in SPLITS:
        for name in (POSITIVE, *settings.negative_sets):
            if (split, name) not in present:
                why = "a model cannot be trained"
                if split != "train":
                    why = "their metrics are not defined"
                what = "promoters" if name == POSITIVE else f"{name} negatives"
                log(f"warning: split {split!r} has no {what}: {why}")
    with into_directory(output) as files:
        write_windows(files, table, info)


def substitute(sequence: str, rng: np.random.Generator) -> str:
    """Fill 12 of the 20 parts, chosen at random, with random bases (interpretation of DeePromoter)."""
    letters, parts = _parts(sequence)
    for part in rng.choice(PARTS, CHANGED, replace=False):
        parts[part] = _BASES[rng.integers(0, 4, parts.shape[1])]
    return letters.tobytes().decode()


def permute(sequence: str, rng: np.random.Generator) -> str:
    """Shuffle 12 of the 20 parts, chosen at random, among themselves (interpretation of GENA-LM)."""
    letters, parts = _parts(sequence)
    places = rng.choice(PARTS, CHANGED, replace=False)
    origins = rng.permutation(places)
    while np.array_equal(origins, places):
        origins = rng.permutation(places)
    parts[places] = parts[origins]
    return letters.tobytes().decode()


def _parts(sequence: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the sequence as bytes, and a view of its parts (20, length) without up to 19 last bases."""
    if len(sequence) < PARTS:
        raise ValueError(
            f"a window of {len(sequence)} bp cannot be divided into {PARTS} parts"
        )
    letters = np.frombuffer(sequence.encode(), dtype=np.uint8).copy()
    size = len(sequence) // PARTS
    return letters, letters[: PARTS * size].reshape(PARTS, size)


DERIVED: dict[str, tuple[int, Callable[[str, np.random.Generator], str]]] = {
    "substituted": (1, substitute),
    "permuted": (2, permute),
}
"""Per set derived from a positive's sequence: its random stream and its function."""


def window_sequences(reference: Reference, rows: pd.DataFrame, seed: int) -> list[str]:
    """Return the sequence of each row, in transcription order.

    Derived negatives depend on the seed, their pair, and their index among the pair's negatives.
    """
    sequences = []
    needed = rows[["contig", "start", "end", "strand", "negative_set", "pair"]].assign(
        variant=variants(rows)
    )
    for *place, negative_set, pair, variant in needed.itertuples(
        index=False, name=None
    ):
        sequence = reference.fetch(Interval(*place))
        if negative_set in DERIVED:
            stream, make = DERIVED[negative_set]
            sequence = make(
                sequence, np.random.default_rng((seed, stream, pair, variant))
            )
        sequences.append(sequence)
    return sequences


def variants(rows: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the index of each row (N,) among the rows of its pair and negative set, in file order."""
    return np.asarray(rows.groupby(["pair", "negative_set"]).cumcount(), dtype=np.int64)


def training_windows(data: WindowSet, share: float, seed: int) -> npt.NDArray[np.intp]:
    """Return the training windows (n,) of a fraction of the training promoters with all their negatives.

    The choice depends only on `seed`. `ConfigError` if fewer than five promoters or five negatives remain.
    """
    rows = np.flatnonzero(data.rows["split"].to_numpy() == "train")
    if share >= 1:
        return rows
    pairs, positive = data.rows["pair"].to_numpy(np.int64)[rows], data.labels[rows] == 1
    kept = draw_groups(pairs, share, (seed, 6, 0))
    promoters, negatives = int((kept & positive).sum()), int((kept & ~positive).sum())
    if min(promoters, negatives) < LEAST_EXAMPLES:
        raise ConfigError(
            f"promoters.training.train_fraction {share:g}: leaves {promoters:,} of {int(positive.sum()):,} "
            f"training promoters and {negatives:,} negatives; at least {LEAST_EXAMPLES} of each are needed"
        )
    return rows[kept]


def write_windows(directory: Path, rows: pd.DataFrame, info: Mapping[str, Any]) -> None:
    """Write `windows.parquet`, `labels.npz` (packed bits) and `windows.json` (`info`), and log its counts."""
    labels = (rows["negative_set"] == POSITIVE).to_numpy()
    packed = np.packbits(labels[:, None], axis=1)  # (N, ceil(tracks / 8))
    rows.to_parquet(directory / "windows.parquet", index=False)
    np.savez_compressed(
        directory / "labels.npz", packed=packed, tracks=np.array(["promoter"])
    )
    write_json(directory / "windows.json", info)
    for reason, count in info.items():
        if type(count) is int and count:
            log(f"{count:,} {reason}")


def check_training_classes(directory: Path, data: WindowSet) -> None:
    """Raise `DataError` if the training windows from a data set are all promoters, or all negatives."""
    training = data.labels[data.rows["split"].to_numpy() == "train"]
    for label, noun in ((1, "promoter"), (0, "negative")):
        if label not in training:
            raise DataError(f"{directory}: no {noun} is in split 'train'")


def read_windows(directory: Path, negative_set: str) -> WindowSet:
    """Read positives and the negatives of one set, in file order, with the column `coding` if it exists."""
    path = directory / "windows.parquet"
    for needed in (path, directory / "labels.npz"):
        if not needed.is_file():
            raise DataError(f"{needed}: no such file; run `prepare promoter-windows`")
    rows = read_frame(path)
    with (
        reading(directory / "labels.npz", "damaged", Exception),
        open_npz(directory / "labels.npz") as stored,
    ):
        packed = stored["packed"]
        fitting = packed.shape == (len(rows), 1)
        labels = (
            np.unpackbits(packed, axis=1)[:, 0] if fitting else np.zeros(0, np.uint8)
        )
    if list(rows.columns) not in (COLUMNS, [*COLUMNS, CODING]) or not fitting:
        raise DataError(
            f"{path}: not a file of promoter windows, or labels.npz is of another data set"
        )
    if negative_set not in set(rows["negative_set"]):
        made = sorted(set(rows["negative_set"]) - {POSITIVE})
        raise DataError(
            f"{path}: no negative set {negative_set!r}: {one_of(negative_set, made)}"
        )
    chosen = rows["negative_set"].isin([POSITIVE, negative_set]).to_numpy()
    return WindowSet(rows[chosen].reset_index(drop=True), labels[chosen])
