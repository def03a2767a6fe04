"""Which sequences train, validate and test a model: as a table says, or by groups of similar ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast, get_args

import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import DataError
from bigbird_dna.files import atomic_path
from bigbird_dna.genome.compression import read_lines
from bigbird_dna.genome.fields import quoted
from bigbird_dna.genome.sequences.records import counted, named
from bigbird_dna.genome.splits import Split

SHARES: Mapping[Split, float] = {"train": 0.8, "valid": 0.1, "test": 0.1}
_COLUMNS = ("name", "split", "group")


def read_splits(path: Path) -> dict[str, Split]:
    """Read a table of record and split: tab-separated, with or without the header `name split`.

    Lines that begin with `#` are comments; columns after the second are not read.

    Raises
    ------
    DataError
        The file can't be read or has no record; or a line has one column, another split than train, valid
        and test, or a record that was there before.
    """
    splits: dict[str, Split] = {}
    is_first = True
    for number, line in read_lines(Path(path)):
        if not line.strip() or line.startswith("#"):
            continue
        where, fields = f"{path}: line {number}", line.split("\t")
        header, is_first = is_first and tuple(fields[:2]) == _COLUMNS[:2], False
        if header:
            continue
        if len(fields) < 2:
            raise DataError(f"{where}: expected a record's name, a tab and its split, found {quoted(line)}")
        name, split = fields[:2]
        if split not in SHARES:
            raise DataError(f"{where}: {quoted(split)} is not a split: say train, valid or test")
        if name in splits:
            raise DataError(f"{where}: record {quoted(name)} is there a second time")
        splits[name] = cast(Split, split)
    if not splits:
        raise DataError(f"{path}: no record in the file")
    return splits


def write_splits(path: Path, names: Sequence[str], splits: Sequence[Split], groups: Sequence[int]) -> None:
    """Write what `read_splits` reads, and each record's group of similar ones."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.write("\t".join(_COLUMNS) + "\n")
        for name, split, group in zip(names, splits, groups, strict=True):
            stream.write(f"{name}\t{split}\t{group}\n")


def look_up(names: Sequence[str], table: Mapping[str, Split], where: Path) -> list[Split]:
    """The split of each record in a table of `read_splits`, which is called `where`.

    Raises
    ------
    DataError
        Records are missing in the table, or the table names records that there aren't; the text says how
        many and names the first.
    """
    missing = [name for name in names if name not in table]
    if missing:
        raise DataError(f"{where}: {counted(len(missing), 'record')} not in the table: {named(missing)}")
    known = set(names)
    strange = [name for name in table if name not in known]
    if strange:
        raise DataError(f"{where}: {counted(len(strange), 'record')} in neither FASTA file: {named(strange)}")
    return [table[name] for name in names]


def divide(groups: npt.NDArray[np.int64], positive: npt.NDArray[np.bool_], seed: int) -> list[Split]:
    """A split for each sequence (N,): a group stays whole, and the splits have about 80, 10 and 10 % of
    either class.

    The largest groups are placed first, each where most is missing: the large ones are trained on. Equal
    input and seed give equal splits.
    """
    members = np.zeros((int(groups.max()) + 1, 2), np.int64)  # negatives and positives of a group
    np.add.at(members, (groups, positive.astype(np.int64)), 1)
    drawn = np.random.default_rng((seed, 6)).permutation(len(members))
    order = drawn[np.argsort(-members.sum(axis=1)[drawn], kind="stable")]
    totals = members.sum(axis=0).tolist()
    missing = {split: [share * total for total in totals] for split, share in SHARES.items()}
    chosen: list[Split] = ["train"] * len(members)
    for group in order.tolist():
        size = members[group].tolist()

        def room(split: Split, size: list[int] = size) -> float:
            return sum(
                count * max(left, 0.0) / total if (left := missing[split][label]) else 0.0
                for label, (count, total) in enumerate(zip(size, totals, strict=True))
                if count
            )

        best = max(SHARES, key=room)
        chosen[group] = best
        missing[best] = [left - count for left, count in zip(missing[best], size, strict=True)]
    return [chosen[group] for group in groups.tolist()]


def check_splits(splits: Sequence[Split], positive: npt.NDArray[np.bool_], where: str) -> None:
    """Refuse splits of which one has no positive or, where there are negatives, no negative.

    Raises
    ------
    DataError
        The text says what is missing, after `where`.
    """
    counts = Counter(zip(splits, positive.tolist(), strict=True))
    for label, noun in ((True, "positive"), (False, "negative")):
        if label not in positive:
            continue
        for split in get_args(Split):
            if not counts[split, label]:
                raise DataError(f"{where}: no {noun} is in split {split!r}")
