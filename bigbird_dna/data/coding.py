"""Coding bases of a reference: the fraction of each promoter window, and of its negatives, that is coding.

A base is coding if a CDS of the annotation covers it, on either strand.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config import PLACED_SETS
from bigbird_dna.data.predictions import EXTRA_NEGATIVES, POSITIVE
from bigbird_dna.errors import DataError
from bigbird_dna.genome.annotation import read_coding
from bigbird_dna.genome.assembly import Assembly, warn_of_dropped
from bigbird_dna.genome.sequence import NO_INTERVALS, Intervals

COLUMN = "coding"
"""Of `windows.parquet`: the fraction, from 0 to 1, of the window's bases that are coding."""

Coding = Mapping[str, Intervals]
"""The coding bases of a reference by contig, sorted and disjoint; contigs without any may be left out."""


def coding_fractions(coding: Coding, rows: pd.DataFrame) -> npt.NDArray[np.float32]:
    """The coding fraction (N,) of each row of a table with columns contig, start and end."""
    found = np.zeros(len(rows), np.float32)
    starts, ends = (rows[name].to_numpy(np.int64) for name in ("start", "end"))
    for contig, places in rows.groupby("contig", observed=True).indices.items():
        start, end = starts[places], ends[places]
        found[places] = coding.get(str(contig), NO_INTERVALS).covered(start, end) / (end - start)
    return found


def open_coding(path: Path, contigs: Mapping[str, int], assembly: Assembly) -> Coding:
    """The coding bases of an annotation, placed on a reference.

    The annotation is GFF3 or GTF, plain or gzip; `contigs` are the lengths of the reference's in bp. CDS on
    contigs that the reference doesn't have, and what reaches beyond the end of a contig, are left out; a
    warning counts them.
    """
    path = Path(path)
    parts: list[tuple[str, Intervals]] = []
    absent: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    read = read_coding(path)
    for name, (starts, ends) in read.items():
        contig = assembly.match(name, contigs)
        if contig is None:
            absent[name] += len(starts)
            continue
        length = contigs[contig]
        if outside := int(np.count_nonzero(ends > length)):
            beyond[name] += outside
        on_contig = starts < length
        if on_contig.any():
            parts.append((contig, Intervals(starts[on_contig], np.minimum(ends[on_contig], length))))
    if not parts:
        raise DataError(f"{path}: no CDS lies on the reference: {assembly.explain_none(read, contigs)}")
    where = str(path), "CDS", sum(len(starts) for starts, _ in read.values())
    warn_of_dropped(*where, absent, "are on contigs that the reference doesn't have: left out")
    warn_of_dropped(*where, beyond, "reach beyond the end of their contig: what lies there is left out")
    return Intervals.joined(parts)


def coding_counts(rows: pd.DataFrame) -> dict[str, int]:
    """How many promoters, and negatives of each set that has places of its own, are more than half coding.

    Further negatives, which are for the calibration alone, are not counted.
    """
    counts = {}
    ordinary = rows[~rows["split"].isin(EXTRA_NEGATIVES.values())]
    for name in (POSITIVE, *PLACED_SETS):
        own = ordinary[ordinary["negative_set"] == name]
        if len(own):
            what = "promoters" if name == POSITIVE else f"{name} negatives"
            counts[f"{what} more than half coding"] = int((own[COLUMN] > 0.5).sum())
    return counts


def check_fractions(path: Path, rows: pd.DataFrame) -> None:
    """`DataError` where the column `coding` of a table, read from `path`, holds anything but fractions."""
    column = rows[COLUMN]
    if column.dtype.kind != "f":
        raise DataError(f"{path}: column {COLUMN!r} holds {column.dtype}, not a fraction in every row")
    wrong = ~column.between(0, 1).to_numpy()  # also true of NaN
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{path}: row {row + 1:,}: {COLUMN} {column.iloc[row]} is not a fraction from 0 to 1")
