"""Write measured activities of E. coli's start sites (Urtecho et al. 2020) as a table for `finetune-sequences`.

    python workflow/scripts/measured_promoters.py workflow/config/ecoli.yaml TABLE --reference FASTA -o CSV

TABLE is the file of `prepare fetch ASM584v2.measured`; the splits are those of the configuration.

The public file has a row per sequence, without a header: 150 bases in the direction of transcription, the
activity in a reporter in the genome, start and end, and the name, with position and strand of the start site.
Three things in it need care:

* Coordinates are those of U00096.2, which lacks up to 1,978 bp before a position of U00096.3.
* Where the windows of two start sites are the same bases on opposite strands, each sequence has a row for
  either name. The right name has the sequence's strand.
* The start site is base 119 of a sequence on "+", from 0, and base 120 on "-".

Controls are left out. A sequence is active if its activity is at least 1: the authors' threshold.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.config.reading import load_config
from bigbird_dna.config.run import Config
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import BigBirdDnaError, DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    Strand,
    clean,
    reverse_complement,
)
from bigbird_dna.genome.sources import find_assembly
from bigbird_dna.genome.splits import SPLITS, Splits

ACCESSION = "U00096.3"
ACTIVE = 1.0
COLUMNS = [
    *("name", "sequence", "label", "activity", "split"),
    *("contig", "start", "end", "strand"),
]
_NEAR = 3000  # bp on either side of its coordinates in which a sequence is looked for


class _Measured(NamedTuple):
    """A row of the public file; `start` is in U00096.2, `strand` that of the name."""

    name: str
    strand: str
    sequence: str
    activity: float
    start: int


def prepare_measured(
    config: Config, table: Path, reference: Path, output: Path
) -> None:
    """Write the start sites of the public file as CSV, with labels, places on the reference and splits.

    A row has the split of the configuration that all its bases are in. Left out are rows that are not on the
    reference, on the other strand than their name, or in several splits, and copies of a sequence, on either
    strand, that is also in a split further from training. The log has their numbers.
    """
    assembly = find_assembly(config)
    with Reference(reference) as genome:
        contig = assembly.match(ACCESSION, genome.contigs)
        if contig is None:
            raise DataError(
                f"{reference}: no contig is {ACCESSION} (E. coli K-12 MG1655)"
            )

        bases = genome.fetch(Interval(contig, 0, genome.contigs[contig]))
        splits = Splits.from_config(config.genome, genome.contigs, assembly)

    rows = []
    measured = list(_read(table))
    for one in measured:
        place = _find(one, bases)
        if place is not None and place.strand == one.strand:
            label = int(one.activity >= ACTIVE)
            labels = one.name, one.sequence, label, one.activity, ""
            rows.append((*labels, contig, place.start, place.end, place.strand))

    frame = pd.DataFrame(rows, columns=COLUMNS)
    if frame.empty:
        raise DataError(f"{table}: no sequence is on {reference}")

    length = len(measured[0].sequence)
    numbers = splits.assign(contig, frame["start"].to_numpy(), length, length)
    inside = frame[numbers >= 0].assign(
        split=np.array(SPLITS)[numbers[numbers >= 0]], number=numbers[numbers >= 0]
    )
    either = inside["sequence"].map(lambda text: min(text, reverse_complement(text)))
    last = inside["number"].groupby(either).transform("max")
    written = inside[inside["number"] == last].drop(columns="number")
    with atomic_path(output) as temporary:
        written.to_csv(temporary, index=False, lineterminator="\n")

    counts = ", ".join(
        f"{len(part):,} {split} ({int(part['label'].sum()):,} active)"
        for split in SPLITS
        if len(part := written[written["split"] == split])
    )
    log(
        f"{output}: {counts}; left out: {len(measured) - len(frame):,} not on the reference or its strand, "
        f"{len(frame) - len(inside):,} not in one split, {len(inside) - len(written):,} copies of sequences "
        "in another split"
    )


def _read(table: Path) -> Iterator[_Measured]:
    """Yield the start sites, without controls."""
    length = None
    for number, line in read_lines(table):
        where = f"{table}: line {number}"
        columns = line.split("\t")
        if len(columns) != 5:
            raise DataError(f"{where}: {len(columns)} columns, expected 5")

        text, activity, start, _, name = columns
        if not name.startswith("TSS_"):
            continue

        sequence = clean(text, where)
        length = length or len(sequence)
        if len(sequence) != length:
            raise DataError(
                f"{where}: {len(sequence)} bases, the first sequence has {length}"
            )

        try:
            if name.count(",") != 2:
                raise ValueError(f"{name!r:.60} has no position and strand")

            name, _, strand = name.split(",")
            yield _Measured(name, strand, sequence, float(activity), int(start))
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None

    if length is None:
        raise DataError(f"{table}: no start sites (names that begin with TSS_)")


def _find(measured: _Measured, bases: str) -> Interval | None:
    """Return the place of a sequence near its coordinates; None if it is at none, or at several.

    Windows across the origin have a negative start, and bases from elsewhere.
    """
    if measured.start < 0:
        return None

    first = max(measured.start - _NEAR, 0)
    around = bases[first : measured.start + len(measured.sequence) + _NEAR]
    found = None
    strands: list[tuple[Strand, str]] = [
        ("+", measured.sequence),
        ("-", reverse_complement(measured.sequence)),
    ]
    for strand, text in strands:
        if around.count(text) > 1 or (found is not None and text in around):
            return None

        if text in around:
            start = first + around.index(text)
            found = Interval("", start, start + len(text), strand)

    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, metavar="CONFIG", help="configuration")
    parser.add_argument("table", type=Path, metavar="TABLE", help="public file")
    parser.add_argument("--reference", type=Path, metavar="FASTA", required=True)
    parser.add_argument("-o", "--output", type=Path, metavar="CSV", required=True)
    arguments = parser.parse_args()
    try:
        config = load_config(arguments.config)
        prepare_measured(config, arguments.table, arguments.reference, arguments.output)
    except BigBirdDnaError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
