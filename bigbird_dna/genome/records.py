"""Read FASTA records that are windows, and split them by a table or by groups of similar sequences."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.disk.compression import open_bytes, read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import parse_fasta
from bigbird_dna.genome.fields import RecordNames, quoted
from bigbird_dna.genome.sequence import (
    clean_bytes,
    reverse_complement,
)
from bigbird_dna.genome.splits import SPLITS, Split

Classes = npt.NDArray[np.integer] | npt.NDArray[np.bool_]

LONGEST = 100_000
"""Maximum length of a window in bp; longer records are contigs."""

_LISTED = 3
_LOWER = [bytes([letter]) for letter in b"acgtnrykmswbdhv"]


@dataclass
class Records:
    """Records of a file, in file order, in A C G T N."""

    path: Path
    sequences: dict[str, str] = field(default_factory=dict)  # by name
    lower: dict[str, int] = field(
        default_factory=dict
    )  # number of lower-case letters by name

    def add(self, name: str, letters: bytes) -> None:
        """Add a record with valid letters as in the file."""
        self.sequences[name] = clean_bytes(letters).decode("ascii")
        self.lower[name] = sum(letters.count(letter) for letter in _LOWER)


def read_records(path: Path, names: RecordNames | None = None) -> Records:
    """Read all records of a FASTA file of windows: records of at most 100,000 bp.

    Lower case is read as upper case, and IUPAC codes as N. A missing or repeated name is an error; with
    `names`, it gets a number.
    """
    found = Records(path)
    with open_bytes(path) as stream:
        for name, letters in whole_records(path, stream, names):
            found.add(name, letters)
    return found


def whole_records(
    path: Path,
    stream: IO[bytes],
    names: RecordNames | None = None,
    *,
    strict: bool = True,
) -> Iterator[tuple[str, bytes]]:
    """Yield name and letters, as in the file, of each record of windows; see `parse_fasta`."""
    for name, parts in groupby(
        parse_fasta(path, stream, names=names, strict=strict), itemgetter(0)
    ):
        letters, size = [], 0
        for _, part in parts:
            letters.append(part)
            size += len(part)
            if size > LONGEST:
                raise DataError(
                    f"{path}: record {name!r} has more than {LONGEST:,} bp; expected windows, not contigs"
                )
        yield name, b"".join(letters)


def check_names(positives: Records, negatives: Records) -> None:
    """Raise `DataError` if a name occurs in both files: splits and scores are keyed by name."""
    both = [name for name in negatives.sequences if name in positives.sequences]
    if both:
        raise DataError(
            f"{negatives.path}: {counted(len(both), 'record')} also in {positives.path}: {named(both)}; "
            "names must differ because splits and scores are keyed by them"
        )


def first_copies(sequences: Iterable[str]) -> list[int]:
    """Return the number of the first sequence that is the same as each one, on either strand."""
    first: dict[str, int] = {}
    keys = (min(sequence, reverse_complement(sequence)) for sequence in sequences)
    return [first.setdefault(key, row) for row, key in enumerate(keys)]


def counted(count: int, noun: str) -> str:
    """Format a count as the start of a sentence: `3 sequences are`."""
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def named(names: Sequence[str]) -> str:
    """List the first names and the number of further ones."""
    return listed([*map(repr, names)])


def listed(texts: Sequence[str]) -> str:
    """List the first texts and the number of further ones."""
    text = ", ".join(texts[:_LISTED])
    return (
        text if len(texts) <= _LISTED else f"{text} and {len(texts) - _LISTED:,} more"
    )


FRACTIONS: Mapping[Split, float] = {"train": 0.8, "valid": 0.1, "test": 0.1}


def read_splits(path: Path) -> dict[str, Split]:
    """Read a table of record and split: tab-separated, with or without the header `name split`.

    Lines that begin with `#` are comments; columns after the second are ignored.
    """
    splits: dict[str, Split] = {}
    for number, line in read_lines(Path(path)):
        where, fields = f"{path}: line {number}", line.split("\t")
        is_header = not splits and fields[:2] == ["name", "split"]
        if not line.strip() or line.startswith("#") or is_header:
            continue
        if len(fields) < 2:
            raise DataError(
                f"{where}: expected a record's name, a tab and its split, found {quoted(line)}"
            )
        name, split = fields[:2]
        if split not in FRACTIONS:
            raise DataError(
                f"{where}: {quoted(split)} is not a split; expected train, valid or test"
            )
        if name in splits:
            raise DataError(f"{where}: duplicate record {quoted(name)}")
        splits[name] = cast(Split, split)
    if not splits:
        raise DataError(f"{path}: the file contains no records")
    return splits


def look_up(
    names: Sequence[str], table: Mapping[str, Split], where: str
) -> list[Split]:
    """Return the split of each record from a table of `read_splits`; `where` names the table in errors.

    A record that is only in `names` or only in the table is a `DataError`.
    """
    missing = [name for name in names if name not in table]
    if missing:
        raise DataError(
            f"{where}: {counted(len(missing), 'record')} not in the table: {named(missing)}"
        )
    known = set(names)
    strange = [name for name in table if name not in known]
    if strange:
        raise DataError(
            f"{where}: {counted(len(strange), 'record')} in neither FASTA file: {named(strange)}"
        )
    return [table[name] for name in names]


def divide(groups: npt.NDArray[np.int64], classes: Classes, seed: int) -> list[Split]:
    """Return a split for each sequence (N,): about 80, 10 and 10 % of each class; groups are never divided.

    `classes` (N,) count from 0.

    Groups are assigned from the largest to the smallest, each to the split that lacks most of its quota; so
    large groups are used for training. Equal input and seed give equal splits.
    """
    members = np.zeros((int(groups.max()) + 1, int(classes.max()) + 1), np.int64)
    np.add.at(members, (groups, classes.astype(np.int64)), 1)  # of a group and class
    shuffled = np.random.default_rng((seed, 6)).permutation(len(members))
    order = shuffled[np.argsort(-members.sum(axis=1)[shuffled], kind="stable")]
    totals = np.maximum(members.sum(axis=0), 1)
    missing = {split: fraction * totals for split, fraction in FRACTIONS.items()}
    chosen: list[Split] = ["train"] * len(members)
    for group in order.tolist():
        sizes = members[group]
        lacks = {
            split: float((sizes * np.maximum(quota, 0) / totals).sum())
            for split, quota in missing.items()
        }
        best = max(FRACTIONS, key=lacks.__getitem__)
        chosen[group] = best
        missing[best] = missing[best] - sizes
    return [chosen[group] for group in groups.tolist()]


def with_validation(
    splits: list[Split], groups: npt.NDArray[np.int64], classes: Classes, seed: int
) -> list[Split]:
    """Return splits in which a tenth of the training sequences is for validation, if none is yet; see
    `divide`."""
    if "valid" in splits:
        return splits
    rows = np.flatnonzero(np.array(splits) == "train")
    again = divide(pd.factorize(groups[rows])[0], classes[rows], seed)
    held_out = {
        row for row, split in zip(rows.tolist(), again, strict=True) if split == "valid"
    }
    log(
        f"no sequence is for validation: {len(held_out):,} of {len(rows):,} training sequences are used"
    )
    return ["valid" if row in held_out else split for row, split in enumerate(splits)]


def check_splits(
    splits: Sequence[Split], positive: npt.NDArray[np.bool_], where: str
) -> None:
    """Raise `DataError` if a split has no positives, or no negatives although there are some.

    The message begins with `where`.
    """
    counts = Counter(zip(splits, positive.tolist(), strict=True))
    for label, noun in ((True, "positive"), (False, "negative")):
        missing = [split for split in SPLITS if not counts[split, label]]
        if missing and label in positive:
            raise DataError(f"{where}: no {noun} is in split {missing[0]!r}")
