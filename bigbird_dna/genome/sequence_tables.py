"""Read sequences with their names from tables (CSV, TSV, Parquet) and from FASTA files of windows, also .gz.

A table has a row per sequence, with the columns of `TableColumns`. FASTA records have at most 100,000 bp:
longer ones are contigs. A sequence is converted to A C G T N; an error names the file and the row or record.
"""

import csv
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from bigbird_dna.config.promoters import SEPARATORS, is_table, table_kind
from bigbird_dna.disk.arrays import open_parquet
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.disk.tables import check_unique, missing_column
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import split_records
from bigbird_dna.genome.fields import check_name
from bigbird_dna.genome.sequence import check_letters, clean_bytes

LONGEST = 100_000
"""Maximum length of a sequence in bp."""
EMPTY, INVALID_LETTER = "empty", "invalid_letter"
_ROWS = 10_000  # of a table in memory at a time
_MISSING = (
    "",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "<NA>",
    "NaN",
    "nan",
    "-nan",
    "NULL",
    "null",
    "None",
)


class TableColumns(NamedTuple):
    """Names of a table's columns; `name` and `split` are read if the table has them.

    `labels` may be patterns, such as "track_*". Without any, the label is `label`, or there are several:
    `label_0`, `label_1` and so on.
    """

    sequence: str = "sequence"
    labels: tuple[str, ...] = ()
    split: str = "split"
    name: str = "name"


COLUMNS = TableColumns()


class CheckedSequence(NamedTuple):
    """A sequence in A C G T N; or an empty one, with a note and a sentence why it is not DNA."""

    name: str
    text: str
    note: str = ""  # `EMPTY` or `INVALID_LETTER`
    fault: str = ""
    lower: int = 0  # number of lower-case letters in the file


def read_chunks(path: Path) -> Iterator[pd.DataFrame]:
    """Yield the rows of a table in chunks; cells are text, or NaN if empty or NA.

    `DataError` names the row that has fewer or more cells than the first line.
    """
    separator = SEPARATORS[table_kind(path.name)]
    if separator is None:
        with open_parquet(path) as stored:
            for batch in stored.iter_batches(_ROWS):
                batch.validate(full=True)  # invalid text is detected only on access
                chunk = batch.to_pandas()
                yield chunk.astype(object).where(chunk.isna(), chunk.astype(str))

        return

    with (
        open_bytes(path) as stream,
        reading(path, "not readable as a table", ValueError, csv.Error),
    ):
        # `pandas.read_csv` would fill up short rows, such as the last one of a file that was cut.
        text = TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        rows = filter(None, csv.reader(text, delimiter=separator, strict=True))
        header = next(rows, [])
        check_unique(str(path), filter(None, header))
        first = 1
        while chunk := list(islice(rows, _ROWS)):
            for number, row in enumerate(chunk, first):
                if len(row) != len(header):
                    raise DataError(
                        f"{path}: row {number:,} has {len(row)} cells, the first line has {len(header)}"
                    )

            table = pd.DataFrame(chunk, columns=pd.Index(header))
            yield table.mask(table.isin(_MISSING))
            first += len(chunk)


def check_sequence(name: str, text: str, where: str) -> CheckedSequence:
    """Convert a sequence; `DataError` if it is longer than `LONGEST`."""
    if not text:
        return CheckedSequence(name, "", EMPTY, f"{where}: the sequence is empty")

    if len(text) > LONGEST:
        raise DataError(
            f"{where}: {len(text):,} bp; a sequence must have 1 to {LONGEST:,} bp"
        )

    try:
        letters = check_letters(text, where)
    except DataError as error:
        return CheckedSequence(name, "", INVALID_LETTER, str(error))

    lower = sum(map(letters.count, b"acgtnrykmswbdhv"))
    sequence = clean_bytes(letters).decode("ascii")
    return CheckedSequence(name, sequence, lower=lower)


def stream_checked_sequences(
    path: Path, columns: TableColumns = COLUMNS
) -> Iterator[CheckedSequence]:
    """Yield the sequence of each row of a table or record of a FASTA file, also those that are not DNA.

    A table needs no labels. Names may repeat; missing ones are "row_1", "record_1" and so on.
    """
    number = 0
    if not is_table(path.name):
        for name, text in read_fasta_windows(path):
            number += 1
            name = name or f"record_{number}"
            yield check_sequence(name, text, f"{path}: record {name!r}")

        return

    for chunk in read_chunks(path):
        if columns.sequence not in chunk:
            raise missing_column(path, columns.sequence, [*chunk], "--sequence-column")

        names = chunk.get(columns.name, pd.Series("", chunk.index)).fillna("")
        texts = chunk[columns.sequence].fillna("").str.strip()
        for name, text in zip(names, texts, strict=True):
            number += 1
            where = f"{path}: row {number:,}"
            name = check_name(name, "the name", where) or f"row_{number}"
            yield check_sequence(name, text, where)

    if not number:
        raise DataError(f"{path}: the table contains no rows")


def stream_sequences(
    path: Path, columns: TableColumns = COLUMNS
) -> Iterator[tuple[str, str]]:
    """Yield name and sequence as `stream_checked_sequences`; `DataError` for one that is not DNA."""
    for sequence in stream_checked_sequences(path, columns):
        if sequence.fault:
            raise DataError(sequence.fault)
        yield sequence.name, sequence.text


def read_fasta_windows(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and letters of the records of a FASTA file; names may repeat or be missing."""
    for name, _, lines in split_records(path):
        letters = b"".join(lines).translate(None, b"\r\n \t")
        yield name, letters.decode("utf-8", "replace")
