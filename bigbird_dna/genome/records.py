"""Records of FASTA files that are windows: all of one length, each under a name of its own."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.sequence import reverse_complement

LONGEST = 100_000
"""bp of a window; what is longer is a contig."""

_MOST = 2_000_000  # records of a file: what memory has room for
_LISTED = 3


class Records(NamedTuple):
    """The records of a FASTA file, in its order, in A C G T N."""

    path: Path
    sequences: dict[str, str]  # by name
    ambiguous: int  # IUPAC codes of the file, which are N in the sequences

    def trimmed(self, length: int) -> "Records":
        """Each sequence cut to `length` bp around its middle; `DataError` if some are shorter."""
        short = [name for name, sequence in self.sequences.items() if len(sequence) < length]
        if short:
            raise DataError(
                f"{self.path}: {counted(len(short), 'sequence')} shorter than {length:,} bp: {named(short)}"
            )
        cut = {}
        for name, sequence in self.sequences.items():
            start = (len(sequence) - length) // 2
            cut[name] = sequence[start : start + length]
        return self._replace(sequences=cut)


def read_records(path: Path) -> Records:
    """Read a FASTA file of windows whole: at most two million records of 100,000 bp.

    Lower case is read as upper case, and IUPAC codes as N.
    """
    sequences: dict[str, str] = {}
    ambiguous = 0
    for chunk in stream_fasta(path, LONGEST):
        if not chunk.last:
            raise DataError(
                f"{path}: record {chunk.contig!r} has more than {LONGEST:,} bp: windows are asked for, not "
                "contigs"
            )
        if len(sequences) == _MOST:
            raise DataError(f"{path}: more than {_MOST:,} records")
        sequences[chunk.contig] = chunk.sequence
        ambiguous += chunk.ambiguous
    return Records(path, sequences, ambiguous)


def common_length(files: Iterable[Records]) -> int:
    """The length in bp that all records of some files have; `DataError` says how many have which length."""
    files = list(files)
    lengths = [Counter(map(len, records.sequences.values())) for records in files]
    whole = sum(lengths, Counter())
    if len(whole) > 1:
        each = "; ".join(
            f"{records.path} has {_lengths(found)}" for records, found in zip(files, lengths, strict=True)
        )
        raise DataError(
            f"the sequences differ in length: {each}: trim them around their middle with --length BP "
            "(promoters.sequences.length)"
        )
    return next(iter(whole))


def _lengths(found: Counter[int]) -> str:
    """How many sequences have which length."""
    listed = [f"{count:,} of {length:,} bp" for length, count in found.most_common(_LISTED)]
    if len(found) > _LISTED:
        others = found.total() - sum(count for _, count in found.most_common(_LISTED))
        listed.append(f"{others:,} of other lengths (from {min(found):,} to {max(found):,} bp)")
    return ", ".join(listed)


def check_names(positives: Records, negatives: Records) -> None:
    """`DataError` if records of both files have the same name: splits and scores go by name."""
    both = [name for name in negatives.sequences if name in positives.sequences]
    if both:
        raise DataError(
            f"{negatives.path}: {counted(len(both), 'record')} also in {positives.path}: {named(both)}; "
            "names must differ, as splits and scores go by them"
        )


class Copies(NamedTuple):
    """Records whose sequence is that of an earlier one, or its reverse complement: (earlier, later) names."""

    within: list[tuple[str, str]]  # one class
    across: list[tuple[str, str]]  # a positive and a negative


def find_copies(positives: Mapping[str, str], negatives: Mapping[str, str]) -> Copies:
    """Pairs of records with the same sequence on either strand; each record stands in one pair at most."""
    copies = Copies([], [])
    first: dict[str, tuple[str, bool]] = {}
    for is_positive, records in ((True, positives), (False, negatives)):
        for name, sequence in records.items():
            earlier, theirs = first.setdefault(
                min(sequence, reverse_complement(sequence)), (name, is_positive)
            )
            if earlier != name:
                (copies.within if theirs == is_positive else copies.across).append((earlier, name))
    return copies


def counted(count: int, noun: str) -> str:
    """A number of things as the start of a sentence: `3 sequences are`."""
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def named(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    return listed([*map(repr, names)])


def listed(texts: Sequence[str]) -> str:
    """The first of some texts, and how many more there are."""
    text = ", ".join(texts[:_LISTED])
    return text if len(texts) <= _LISTED else f"{text} and {len(texts) - _LISTED:,} more"
