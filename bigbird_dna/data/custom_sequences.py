"""The promoter data set of sequences of one's own, in the form of a genome's: each sequence is a contig.

Beside the files of `prepare_windows` it holds `sequences.fa.gz`, whose contigs are the records, each a window
from end to end on "+"; `training.fa.gz` and `test.fa.gz` with those of one split; and `splits.tsv`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config import NEGATIVE_SETS, PARTED_SETS, PLACED_SETS, RunPaths
from bigbird_dna.console import log
from bigbird_dna.data.negative_sampling import MAX_N
from bigbird_dna.data.predictions import POSITIVE
from bigbird_dna.data.promoter_windows import COLUMNS, write_windows
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import DataError, UsageError, check_at_least_one, check_choice, check_fraction
from bigbird_dna.genome.record_splits import (
    check_splits,
    divide,
    look_up,
    read_splits,
    similar_groups,
    write_splits,
)
from bigbird_dna.genome.records import Records, check_names, common_length, counted, find_copies, read_records
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sequence import fraction_n
from bigbird_dna.genome.splits import Split

_LISTED = 3
_PLACES = RunPaths(Path())


@dataclass(frozen=True)
class SequenceOptions:
    """What is made of sequences.

    Attributes
    ----------
    negative_sets
        Of `given` (the user's own), `substituted` and `permuted` (made of the positives); none: the user's
        own, or without them the other two.
    derived
        Negatives of each derived set that a training promoter has; held-out ones have one.
    length
        bp that all are trimmed to, around their middle; None: they have one length.
    upstream
        bp of a window before the TSS; None: half of it.
    similarity
        Share of their k-mers from which on two sequences are similar (`similar_groups`).
    seed
        Of the splits.
    """

    negative_sets: tuple[str, ...] = ()
    derived: int = 1
    length: int | None = None
    upstream: int | None = None
    similarity: float = 0.2
    seed: int = 1

    def __post_init__(self) -> None:
        check_at_least_one({"derived": self.derived, "length": self.length})
        check_fraction("similarity", self.similarity)
        if not self.similarity:
            raise UsageError("similarity 0 would make one group of all sequences")
        for name in self.negative_sets:
            check_choice("negative set", name, [one for one in NEGATIVE_SETS if one not in PLACED_SETS])
        if len({*self.negative_sets}) < len(self.negative_sets):
            raise UsageError("a negative set is named twice")

    def sets(self, negatives: Path | None) -> tuple[str, ...]:
        """The negative sets where the user's own are in this file, or in none."""
        sets = self.negative_sets or (PARTED_SETS if negatives is None else ("user",))
        if ("user" in sets) != (negatives is not None):
            raise UsageError(
                "the negative set 'user' and a file of negatives go together: name both, or neither"
            )
        return sets


def prepare_sequences(
    positives: Path,
    output: Path,
    options: SequenceOptions | None = None,
    *,
    negatives: Path | None = None,
    splits: Path | None = None,
) -> dict[str, Any]:
    """Write the data set `output` of FASTA files of positives and maybe negatives.

    All sequences have one length, or are trimmed to one. Left out, and counted, are those with more than
    10 % N. Similar ones share a split, unless a table of `splits` says each record's.

    Returns
    -------
    The content of `windows.json`: counts, the window's sides, and what it was made of.

    Raises
    ------
    UsageError
        The options don't fit the files.
    DataError
        A file can't be used; a sequence is in both files; lengths differ; or a split stays empty.
    """
    options = options or SequenceOptions()
    sets = options.sets(negatives)
    files = [read_records(path) for path in (positives, negatives) if path is not None]
    if len(files) > 1:
        check_names(*files)
    aligned = len({len(one) for one in files[0].sequences.values()}) == 1
    if options.length is not None:
        files = [records.trimmed(options.length) for records in files]
    length = common_length(files)
    sides = _sides(length, options, sets)
    _check_copies(files)
    names, sequences, positive, left_out = _usable(files)
    chosen, where = None, f"{positives}: by groups of similar sequences"
    if splits is not None:
        # What was left out may stand in the table, and need not.
        table = {name: split for name, split in read_splits(splits).items() if name not in left_out}
        chosen, where = look_up(names, table, splits), str(splits)
    log(f"comparing {len(names):,} sequences of {length:,} bp")
    groups = similar_groups(sequences, options.similarity)
    chosen = chosen or divide(groups, positive, options.seed)
    check_splits(chosen, positive, where)
    rows = _rows(names, length, positive, chosen, sets, options.derived)
    info: dict[str, Any] = {
        **_counts(positive, chosen, groups, left_out),
        "window": {"upstream": sides[0], "downstream": sides[1]},
        "sources": {
            role: {"file": path.name, "sha256": checksum(path)}
            for role, path in (("positives", positives), ("negatives", negatives), ("splits", splits))
            if path is not None
        },
        "similarity": options.similarity,
        "trimmed": options.length is not None,
        "aligned": aligned,
        "IUPAC codes read as N": sum(records.ambiguous for records in files),
    }
    with into_directory(output) as directory:
        _write_sequences(directory, names, sequences, chosen)
        write_splits(directory / "splits.tsv", names, chosen, groups.tolist())
        write_windows(directory, rows, info)
    _say(info, chosen, groups, where)
    return info


def _sides(length: int, options: SequenceOptions, sets: Sequence[str]) -> tuple[int, int]:
    """bp before the TSS and from it on."""
    if length < 20 and {*sets} & {*PARTED_SETS}:
        raise DataError(f"sequences of {length} bp can't be cut into the 20 parts of derived negatives")
    upstream = length // 2 if options.upstream is None else options.upstream
    if not 0 <= upstream < length:
        raise DataError(
            f"{upstream:,} bp before the TSS don't fit into sequences of {length:,} bp (promoters.windows."
            "upstream)"
        )
    return upstream, length - upstream


def _check_copies(files: Sequence[Records]) -> None:
    """Refuse a positive that is a negative too: one of the labels is wrong, and no model can learn both.

    Copies in one file are only said: they share a split, so that no figure gains by them.
    """
    copies = find_copies(files[0].sequences, files[1].sequences if len(files) > 1 else {})
    if copies.across:
        shown = _pairs_shown(copies.across)
        what = counted(len(copies.across), "sequence")
        raise DataError(f"{files[1].path}: {what} also a positive, on one strand or the other: {shown}")
    if copies.within:
        what, shown = counted(len(copies.within), "sequence"), _pairs_shown(copies.within)
        log(f"warning: {what} there twice in one file, on one strand or the other: {shown}")


def _pairs_shown(pairs: Sequence[tuple[str, str]]) -> str:
    text = ", ".join(f"{later!r} of {earlier!r}" for earlier, later in pairs[:_LISTED])
    return text if len(pairs) <= _LISTED else f"{text} and {len(pairs) - _LISTED:,} more"


def _usable(files: Sequence[Records]) -> tuple[list[str], list[str], npt.NDArray[np.bool_], set[str]]:
    """Names, sequences and labels of what is used, positives first; and the names of what has too many N."""
    names: list[str] = []
    sequences: list[str] = []
    labels: list[bool] = []
    left_out: set[str] = set()
    for is_positive, records in zip((True, False), files, strict=False):
        before = len(names)
        for name, sequence in records.sequences.items():
            if fraction_n(sequence) > MAX_N:
                left_out.add(name)
                continue
            names.append(name)
            sequences.append(sequence)
            labels.append(is_positive)
        if len(names) == before:
            raise DataError(f"{records.path}: all sequences have more than {MAX_N:.0%} N")
    return names, sequences, np.array(labels), left_out


def _rows(
    names: Sequence[str],
    length: int,
    positive: npt.NDArray[np.bool_],
    splits: Sequence[Split],
    sets: Sequence[str],
    derived: int,
) -> pd.DataFrame:
    """The data set's windows: positives, then set by set; the user's own negatives are nobody's pair."""
    rows = [
        (name, 0, length, "+", split, POSITIVE if is_positive else "user", pair, name)
        for pair, (name, split, is_positive) in enumerate(zip(names, splits, positive, strict=True))
    ]
    for negative_set in sets:
        if negative_set == "user":
            continue
        rows += [
            (name, 0, length, "+", split, negative_set, pair, name)
            for name, _, _, _, split, own, pair, _ in rows[: len(names)]
            if own == POSITIVE
            for _ in range(derived if split == "train" else 1)
        ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _counts(
    positive: npt.NDArray[np.bool_],
    splits: Sequence[Split],
    groups: npt.NDArray[np.int64],
    left_out: set[str],
) -> dict[str, int]:
    # Held-out sequences whose group is trained on as well: by a table of the user's own.
    trained = {group for group, split in zip(groups.tolist(), splits, strict=True) if split == "train"}
    like = sum(
        split != "train" and group in trained for group, split in zip(groups.tolist(), splits, strict=True)
    )
    counts = {"promoters": int(positive.sum()), "negatives": int((~positive).sum())}
    return counts | {
        "sequence holds too many N": len(left_out),
        "groups of similar sequences": int(groups.max()) + 1,
        "held-out sequences like a training one": like,
    }


def _write_sequences(
    directory: Path, names: Sequence[str], sequences: Sequence[str], splits: Sequence[Split]
) -> None:
    """The reference of all records, and those of the training and of the test."""
    records = list(zip(names, sequences, splits, strict=True))
    for path, wanted in (
        (_PLACES.sequences, None),
        (_PLACES.training_sequences, "train"),
        (_PLACES.test_sequences, "test"),
    ):
        some = ((name, sequence) for name, sequence, split in records if wanted in (None, split))
        write_fasta(directory / path.name, some)


def _say(info: Mapping[str, Any], splits: Sequence[Split], groups: npt.NDArray[np.int64], where: str) -> None:
    sizes = Counter(splits)
    largest = int(np.bincount(groups).max())
    shares = ", ".join(f"{sizes[split]:,} {split}" for split in get_args(Split))
    number = info["groups of similar sequences"]
    log(f"{shares} ({where}; the largest of {number:,} groups has {largest:,})")
    if like := info["held-out sequences like a training one"]:
        held_out = sizes["valid"] + sizes["test"]
        log(
            f"warning: {like:,} of {held_out:,} held-out sequences are like one of the training (a share of "
            f"{info['similarity']:g} of their k-mers): figures on them flatter the model"
        )
