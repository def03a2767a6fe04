"""The nearest record of one FASTA file to each of another."""

from pathlib import Path

import pandas as pd

from bigbird_dna.files import check_writable
from bigbird_dna.genome.homology.nearest import Windows, aligned_pairs
from bigbird_dna.genome.sequences.records import read_records
from bigbird_dna.outputs import check_output
from bigbird_dna.reporting.tables import write_tsv
from bigbird_dna.tasks.homology.tables import nearest_table, say_similarities


def find_nearest(held_out: Path, training: Path, output: Path) -> pd.DataFrame:
    """Write the nearest record of `training` to each of `held_out` (`name similarity nearest orientation`).

    Both are FASTA files of windows; their lengths may differ. Returns the table.

    Raises
    ------
    DataError
        A file can't be used (see `read_records`).
    UsageError
        The output can't be written, or is an input.
    """
    check_writable(output)
    check_output(output, [held_out, training])
    queries, others = read_records(held_out).sequences, read_records(training).sequences
    texts = list(queries.values())
    found = aligned_pairs(texts, Windows.of(list(others.values()))).nearest(len(texts))
    table = nearest_table(pd.DataFrame({"name": [*queries]}), {"nearest": [*others]}, found)
    write_tsv(output, table)
    say_similarities(f"records of {held_out.name}", table)
    return table
