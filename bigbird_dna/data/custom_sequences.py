"""Build the promoter data set of user-supplied sequences, in the same form as a genome's: each is a contig.

In addition to the files of `prepare_windows`, it has `sequences.fa.gz`, whose contigs are the records, each a
window from end to end on "+"; `training.fa.gz` and `test.fa.gz` with records of one split; and `splits.tsv`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.promoters import (
    NEGATIVE_SETS,
    PARTED_SETS,
    PLACED_SETS,
    is_table,
)
from bigbird_dna.console import log
from bigbird_dna.data.negatives import MAX_N
from bigbird_dna.data.predictions import HOMOLOGY, POSITIVE
from bigbird_dna.data.promoter_windows import COLUMNS as WINDOW_COLUMNS
from bigbird_dna.data.promoter_windows import write_windows
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import (
    DataError,
    UsageError,
    check_at_least_one,
    check_choice,
    check_fraction,
)
from bigbird_dna.genome.chromatin.dataset import source_entry
from bigbird_dna.genome.fields import RecordNames
from bigbird_dna.genome.records import (
    Records,
    check_names,
    check_splits,
    common_length,
    counted,
    divide,
    first_copies,
    listed,
    look_up,
    read_records,
    read_splits,
    with_validation,
    write_splits,
)
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sequence import fraction_n
from bigbird_dna.genome.sequence_tables import (
    COLUMNS,
    TableColumns,
    read_labeled_tables,
)
from bigbird_dna.genome.similar_groups import SIMILAR, similar_groups
from bigbird_dna.genome.sources import sequence_role
from bigbird_dna.genome.splits import Split

_PATHS = RunPaths(Path())
_FILES = {
    _PATHS.sequences.name: None,
    _PATHS.training_sequences.name: "train",
    _PATHS.test_sequences.name: "test",
}
"""File → split of its records; None means all splits."""


@dataclass(frozen=True)
class SequenceOptions:
    """Options of a data set of sequences."""

    # From `user` (user-supplied), `substituted` and `permuted` (derived from the positives). Empty: `user`,
    # or the other two without user-supplied negatives.
    negative_sets: tuple[str, ...] = ()
    derived: int = 1  # negatives per training promoter and derived set; held-out promoters have one
    length: int | None = (
        None  # bp to trim all sequences to, at their center; None: equal lengths
    )
    upstream: int | None = (
        None  # bp of a window before the TSS; None: half of the window
    )
    similarity: float = SIMILAR  # minimum fraction of common k-mers (`similar_groups`)
    seed: int = 1  # for assigning splits

    def __post_init__(self) -> None:
        check_at_least_one({"derived": self.derived, "length": self.length})
        check_fraction("similarity", self.similarity)
        if not self.similarity:
            raise UsageError(
                "--similarity 0: must be above 0, as all sequences would form one group"
            )
        for name in self.negative_sets:
            check_choice(
                "negative set",
                name,
                [one for one in NEGATIVE_SETS if one not in PLACED_SETS],
            )
        if len({*self.negative_sets}) < len(self.negative_sets):
            raise UsageError("duplicate negative set")

    def sets(self, negatives: bool) -> tuple[str, ...]:
        """Return the negative sets; `negatives` is whether there are user-supplied ones."""
        sets = self.negative_sets or (("user",) if negatives else PARTED_SETS)
        if ("user" in sets) != negatives:
            raise UsageError(
                "negative set 'user' and a file of negatives need each other; give both or neither"
            )
        return sets


class SequenceFiles(NamedTuple):
    """Sequences as given: positives, and negatives if there are some; their splits; files by role."""

    files: list[Records]
    splits: Mapping[str, Split] | None
    where: str  # names the splits in errors
    sources: dict[str, Path]
    unlabeled: int = (
        0  # rows of the tables that were left out, because they have no label
    )


def read_given(
    data: Sequence[Path],
    negatives: Path | None,
    splits: Path | None,
    columns: TableColumns,
) -> SequenceFiles:
    """Read FASTA files, or tables with both classes; records without a name of their own get a number."""
    positives = data[0]
    sources = {sequence_role(number): path for number, path in enumerate(data)}
    more = {"negatives": negatives, "splits": splits}
    sources |= {role: path for role, path in more.items() if path is not None}
    groups = f"{positives}: by groups of similar sequences"
    if are_tables(data, negatives, splits):
        table = read_labeled_tables(data, columns)
        where = groups if table.splits is None else f"{positives}: by the table"
        files = [table.positives, table.negatives]
        return SequenceFiles(files, table.splits, where, sources, table.unlabeled)
    given = [path for path in (positives, negatives) if path is not None]
    if splits is not None:  # a table refers to names, so they must be unique
        files = [read_records(path) for path in given]
        if negatives is not None:
            check_names(*files)
        return SequenceFiles(files, read_splits(splits), str(splits), sources)
    names = RecordNames()
    files = [read_records(path, names) for path in given]
    if changed := names.changed:
        log(
            f"warning: {len(changed):,} of {len(names.used):,} records have no name, or that of another one: "
            f"their number is added, as in {changed[-1]!r}"
        )
    return SequenceFiles(files, None, groups, sources)


def are_tables(
    data: Sequence[Path], negatives: Path | None, splits: Path | None
) -> bool:
    """Return whether `data` are tables, or a FASTA file; `UsageError` for other files together."""
    if all(is_table(path.name) for path in data):
        if negatives is not None or splits is not None:
            raise UsageError(
                f"{data[0]} is a table, which contains the negatives and the splits"
            )
        return True
    if len(data) > 1:
        raise UsageError(
            f"{data[1]}: give one FASTA file of positives, or several tables"
        )
    return False


def prepare_sequences(
    data: Sequence[Path],
    output: Path,
    options: SequenceOptions | None = None,
    *,
    negatives: Path | None = None,
    splits: Path | None = None,
    columns: TableColumns = COLUMNS,
) -> dict[str, Any]:
    """Write the data set `output` from FASTA files of positives and negatives, or from tables with labels.

    `data` is a FASTA file of positives, or tables (`read_labeled_tables`). Returns `windows.json`.

    Sequences must have one length, or are trimmed to one. Those with more than 10 % N are excluded and
    counted. Similar sequences are assigned to the same split, unless the tables, or a table `splits`, specify
    each record's split. `UsageError` for options that do not match the files. `DataError` for a sequence in
    both classes, different lengths, or an empty split.
    """
    options = options or SequenceOptions()
    files, table, where, sources, unlabeled = read_given(
        data, negatives, splits, columns
    )
    sets = options.sets(len(files) > 1)
    aligned = len({len(one) for one in files[0].sequences.values()}) == 1
    if options.length is not None:
        files = [records.trimmed(options.length) for records in files]
    length = common_length(files)
    upstream = _upstream(length, options, sets)
    _check_copies(files)
    records, positive, left_out = _usable(files)
    names = [*records]
    log(f"comparing {len(names):,} sequences of {length:,} bp")
    groups = similar_groups([*records.values()], options.similarity)
    if table is None:
        chosen = divide(groups, positive, options.seed)
    else:
        # Excluded records may be in the table or not.
        kept = {name: split for name, split in table.items() if name not in left_out}
        chosen = with_validation(
            look_up(names, kept, where), groups, positive, options.seed
        )
    check_splits(chosen, positive, where)
    info: dict[str, Any] = {
        "promoters": int(positive.sum()),
        "negatives": int((~positive).sum()),
        "sequence holds too many N": len(left_out),
        "rows without a label": unlabeled,
        "groups of similar sequences": int(groups.max()) + 1,
        "held-out sequences like a training one": like_training(groups, chosen),
        "window": {"upstream": upstream, "downstream": length - upstream},
        "sources": {role: source_entry(path) for role, path in sources.items()},
        "similarity": options.similarity,
        "trimmed": options.length is not None,
        "aligned": aligned,
        "IUPAC codes read as N": sum(records.ambiguous for records in files),
    }
    with into_directory(output) as directory:
        _write_sequences(directory, records, chosen)
        write_splits(directory / "splits.tsv", names, chosen, groups.tolist())
        rows = _rows(names, length, positive, chosen, sets, options.derived)
        write_windows(directory, rows.assign(**{HOMOLOGY: groups[rows["pair"]]}), info)
    _log_splits(info, chosen, groups, where)
    return info


def like_training(groups: npt.NDArray[np.int64], chosen: Sequence[str]) -> int:
    """Count held-out sequences whose group is also in training; only a user-supplied table can cause this."""
    training = np.array(chosen) == "train"
    return int((np.isin(groups, groups[training]) & ~training).sum())


def _write_sequences(
    directory: Path, records: Mapping[str, str], chosen: Sequence[str]
) -> None:
    """Write a FASTA file of all sequences, and one per split."""
    for file, of in _FILES.items():
        some = zip(records.items(), chosen, strict=True)
        write_fasta(
            directory / file, (record for record, split in some if of in (None, split))
        )


def _upstream(length: int, options: SequenceOptions, sets: Sequence[str]) -> int:
    """Return the number of bp before the TSS."""
    if length < 20 and {*sets} & {*PARTED_SETS}:
        raise DataError(
            f"sequences of {length} bp are shorter than the 20 parts of derived negatives"
        )
    upstream = length // 2 if options.upstream is None else options.upstream
    if not 0 <= upstream < length:
        raise DataError(
            f"promoters.windows.upstream {upstream:,}: must be less than the sequence length ({length:,} bp)"
        )
    return upstream


def _log_splits(
    info: Mapping[str, Any],
    splits: Sequence[Split],
    groups: npt.NDArray[np.int64],
    where: str,
) -> None:
    sizes, largest = Counter(splits), int(np.bincount(groups).max())
    shares = ", ".join(f"{sizes[split]:,} {split}" for split in get_args(Split))
    number = info["groups of similar sequences"]
    log(f"{shares} ({where}; the largest of {number:,} groups has {largest:,})")
    if like := info["held-out sequences like a training one"]:
        log(
            f"warning: {like:,} of {sizes['valid'] + sizes['test']:,} held-out sequences are similar to a "
            f"training sequence (at least {info['similarity']:g} of their k-mers): metrics are optimistic"
        )


def _check_copies(files: Sequence[Records]) -> None:
    """Raise `DataError` for a positive that is also a negative, because one of the labels must be wrong.

    Copies in one file are only logged: they are in the same split, so they do not improve any metric.
    """
    names = [name for records in files for name in records.sequences]
    texts = [text for records in files for text in records.sequences.values()]
    positives = len(files[0].sequences)
    within, across = list[str](), list[str]()
    for row, first in enumerate(first_copies(texts)):
        if first != row:
            copies = within if (first < positives) == (row < positives) else across
            copies.append(f"{names[row]!r} of {names[first]!r}")
    if across:
        raise DataError(
            f"{files[1].path}: {counted(len(across), 'sequence')} also a positive, on either strand: "
            f"{listed(across)}"
        )
    if within:
        log(
            f"warning: {counted(len(within), 'sequence')} duplicated in one file, on either strand: "
            f"{listed(within)}"
        )


def _usable(
    files: Sequence[Records],
) -> tuple[dict[str, str], npt.NDArray[np.bool_], set[str]]:
    """Return the sequences to use, positives first; whether each is positive; and names with too many N."""
    used: dict[str, str] = {}
    positive: list[bool] = []
    for records in files:
        kept = {
            name: one
            for name, one in records.sequences.items()
            if fraction_n(one) <= MAX_N
        }
        if not kept:
            raise DataError(
                f"{records.path}: all sequences have more than {MAX_N:.0%} N"
            )
        used |= kept
        positive += [records is files[0]] * len(kept)
    return (
        used,
        np.array(positive),
        {name for one in files for name in one.sequences} - used.keys(),
    )


def _rows(
    names: Sequence[str],
    length: int,
    positive: npt.NDArray[np.bool_],
    splits: Sequence[Split],
    sets: Sequence[str],
    derived: int,
) -> pd.DataFrame:
    """Return the windows: positives, then set by set; user-supplied negatives belong to no pair."""
    records = list(zip(names, splits, positive.tolist(), strict=True))
    rows = [
        (name, 0, length, "+", split, POSITIVE if is_positive else "user", pair, name)
        for pair, (name, split, is_positive) in enumerate(records)
    ]
    rows += [
        (name, 0, length, "+", split, negative_set, pair, name)
        for negative_set in sets
        if negative_set != "user"
        for pair, (name, split, is_positive) in enumerate(records)
        if is_positive
        for _ in range(derived if split == "train" else 1)
    ]
    return pd.DataFrame(rows, columns=WINDOW_COLUMNS[:-1])
