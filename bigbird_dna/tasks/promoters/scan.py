"""Windows along every record of a FASTA file, scored as they stream by.

A record is tiled with windows of the model's own size, mirror-symmetrically, so that the reverse complement
of a record is cut into the same windows. Memory does not grow with the length of the records: one chunk of
sequence, one batch of windows and the scores of some windows that may come again are held.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import Chunk, stream_fasta
from bigbird_dna.genome.region_filter import Places
from bigbird_dna.genome.sequence import Strand, centred_tiles, count_tiles, reverse_complement
from bigbird_dna.tasks.predictor import Predictor

BOTH_STRANDS: tuple[Strand, ...] = ("+", "-")
SHORT = "short"
_FIRST_BATCH = 32  # sequences
KEPT_BASES = 1 << 24
"""Most bases of the windows whose scores are remembered: a repeat, or one more tiny record, costs no run."""


class ScoredWindow(NamedTuple):
    """What the model says about one strand of one window.

    `start` and `end` are 0-based, half-open, on the record's forward strand and within the record. `score`
    is a probability, None where the window was not scored. `note` is "" or parts joined by ";": `short` for
    a record shorter than the window, `n_fraction=F` for a window that was not scored.
    """

    contig: str
    start: int
    end: int
    strand: Strand
    score: float | None
    note: str

    @property
    def name(self) -> str:
        """`contig:start-end(strand)`, unique in a scan."""
        return f"{self.contig}:{self.start}-{self.end}({self.strand})"

    @property
    def is_short(self) -> bool:
        """Whether the record is shorter than the window."""
        return self.note.startswith(SHORT)


class _Window(NamedTuple):
    """A window before it is scored; `sequence` is the forward strand's, None if it stays unscored.

    That of a record shorter than the window is the record's, not filled up yet.
    """

    contig: str
    start: int
    end: int
    sequence: str | None
    note: str


def scan_promoters(
    fasta: Path,
    contigs: Mapping[str, int],
    *,
    window: int,
    stride: int,
    predict: Predictor,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    beyond_is_n: bool = False,
    places: Places | None = None,
    numbers: range | None = None,
    batch_sequences: int = 512,
    chunk_bases: int = 1_000_000,
) -> Iterator[ScoredWindow]:
    """Score the windows of every record, in the file's order, one strand after the other.

    `predict` gets the window's sequence for "+" and its reverse complement for "-". A record shorter than
    the window is scored once, in the middle of a window that is filled up with N, as many on the left as on
    the right (so that the window is a base smaller where the missing bases are odd in number).

    Parameters
    ----------
    fasta
        Plain, gzip or bgzip; read once.
    contigs
        Length of every record in bp, as `scan_fasta` gives them, or `LengthsAhead`.
    window, stride
        Size of a window and distance between neighbours, bp, at least 1.
    max_n
        Windows with a larger fraction of N stay unscored and say so.
    beyond_is_n
        Whether what a window lacks in a short record counts as N; if not, only what the record has counts.
    places
        Only those windows that share a base with them; None: all. They lie where those of a whole scan do.
    numbers
        Only these of the windows, counted from 0 along the scan (see `count_windows`); None: all.
    batch_sequences
        Sequences collected for one call of `predict` (at least one window's). The first calls have
        fewer, so that the first scores come soon.

    Raises
    ------
    DataError
        The file can't be read, or is no longer the one that `contigs` was made from.
    ValueError
        `window`, `stride` or `max_n` is out of its range.
    """
    if window < 1 or stride < 1 or not 0 <= max_n <= 1:
        raise ValueError(f"window {window}, stride {stride} or max_n {max_n} is out of its range")
    scores = _Scores(window, predict)
    batch: list[_Window] = []
    enough = min(_FIRST_BATCH, batch_sequences)
    limit = _Limit(max_n, window if beyond_is_n else 0)
    for item in _windows(fasta, contigs, _Grid(window, stride, places), numbers, limit, chunk_bases):
        batch.append(item)
        if len(batch) * len(strands) >= enough:
            yield from _score(batch, strands, scores)
            batch = []
            enough = min(2 * enough, batch_sequences)
    yield from _score(batch, strands, scores)


def expected_windows(
    contigs: Mapping[str, int], *, window: int, stride: int, places: Places | None = None
) -> int:
    """How many windows a strand a scan has, to within one a record or region: enough for a progress bar."""
    if places is not None:
        return sum(
            1 + (min(part + window, length) - 1) // stride
            for contig, length in contigs.items()
            for part in places.parts(contig, length)
        )
    return sum(1 + -(-max(0, length - window) // stride) for length in contigs.values())


def count_windows(
    contigs: Mapping[str, int], *, window: int, stride: int, places: Places | None = None
) -> int:
    """How many windows a strand a scan has, exactly; of regions this takes as long as finding them does."""
    grid = _Grid(window, stride, places)
    return sum(grid.number(contig, length) for contig, length in contigs.items())


def lies_beyond(length: int, window: int, max_n: float) -> bool:
    """Whether more than the fraction `max_n` of a window around a record of `length` bp lies beyond it."""
    return (window - length) / window > max_n


class _Limit(NamedTuple):
    """The largest fraction of N in a window that is scored, counted among at least `size` bp."""

    max_n: float
    size: int

    def fraction(self, sequence: str) -> float:
        """That of a window of which the record has `sequence`."""
        missing = max(self.size - len(sequence), 0)
        return (sequence.count("N") + missing) / (len(sequence) + missing)


class _Grid(NamedTuple):
    """Where the windows of a scan lie."""

    size: int
    stride: int
    places: Places | None

    def starts(self, contig: str, length: int) -> Iterator[int]:
        """Where those of a record of `length` bp begin."""
        starts = centred_tiles(length, self.size, self.stride) if length >= self.size else iter((0,))
        if self.places is None:
            return starts
        size, overlaps = min(self.size, length), self.places.overlaps
        return (start for start in starts if overlaps(contig, start, start + size))

    def number(self, contig: str, length: int) -> int:
        """How many they are."""
        if self.places is None or self.places.whole(contig):
            return count_tiles(length, self.size, self.stride)
        return sum(1 for _ in self.starts(contig, length)) if self.places.on(contig) else 0


def _windows(
    fasta: Path,
    contigs: Mapping[str, int],
    grid: _Grid,
    numbers: range | None,
    limit: _Limit,
    chunk_bases: int,
) -> Iterator[_Window]:
    places, before = grid.places, 0  # windows of the records that were passed
    left = None if places is None else {contig for contig in contigs if places.on(contig)}  # to be read
    for contig, pieces in groupby(stream_fasta(fasta, chunk_bases), key=attrgetter("contig")):
        length = contigs.get(contig)
        if length is None:
            raise DataError(f"{fasta}: changed while it was read: record {contig!r} is new")
        if left is not None and contig not in left:
            continue
        starts = grid.starts(contig, length)
        if numbers is not None:
            if before >= numbers.stop:
                return
            starts = islice(starts, max(numbers.start - before, 0), max(numbers.stop - before, 0))
            before += grid.number(contig, length)
            if before <= numbers.start:
                continue
        for start, sequence in _cut(pieces, starts, min(grid.size, length)):
            if len(sequence) != min(grid.size, length):
                raise DataError(f"{fasta}: changed while it was read: record {contig!r} is shorter")
            yield _window(contig, start, sequence, grid.size, limit)
        if left is not None:
            left.discard(contig)
            if not left:  # the rest of the file needn't be read
                return


def _window(contig: str, start: int, sequence: str, size: int, limit: _Limit) -> _Window:
    notes = [SHORT] if len(sequence) < size else []
    end = start + len(sequence)
    n_fraction = limit.fraction(sequence)
    if n_fraction > limit.max_n:
        notes.append(f"n_fraction={n_fraction:.4g}")
        return _Window(contig, start, end, None, ";".join(notes))
    return _Window(contig, start, end, sequence, ";".join(notes))


def _cut(pieces: Iterable[Chunk], starts: Iterable[int], size: int) -> Iterator[tuple[int, str]]:
    """Slices `[start, start + size)` of one record; the last may be cut short by the record's end."""
    upcoming = iter(starts)
    start = next(upcoming, None)
    held, held_from = "", 0
    for piece in pieces:
        held += piece.sequence
        while start is not None and start + size <= held_from + len(held):
            yield start, held[start - held_from : start - held_from + size]
            start = next(upcoming, None)
        if start is None:
            held_from, held = held_from + len(held), ""
        else:
            done = min(start - held_from, len(held))
            held_from, held = held_from + done, held[done:]
    if start is not None:
        yield start, held[max(0, start - held_from) :]


class _Scores:
    """The model's scores of windows; one that comes again soon is not predicted again.

    A score is a function of the window alone (see `Predictor`), so that this changes none.
    """

    def __init__(self, size: int, predict: Predictor) -> None:
        self.size, self.predict = size, predict
        self.known: dict[str, float] = {}
        self.bases = 0  # of the windows in `known`

    def of(self, windows: Sequence[str]) -> Iterator[float]:
        """A score for each, in their order. They may be shorter than `size`: what lacks is N."""
        if self.bases > KEPT_BASES:
            self.known, self.bases = {}, 0
        known = self.known
        new = list(dict.fromkeys(window for window in windows if window not in known))
        if new:
            scores = self.predict([self._filled(window) for window in new])
            assert scores.shape == (len(new),), f"{scores.shape} scores for {len(new)} sequences"
            known.update(zip(new, scores.tolist(), strict=True))
            self.bases += sum(map(len, new))
        return map(known.__getitem__, windows)

    def _filled(self, window: str) -> str:
        filling = "N" * ((self.size - len(window)) // 2)
        return filling + window + filling


def _score(batch: Sequence[_Window], strands: Sequence[Strand], scores: _Scores) -> Iterator[ScoredWindow]:
    sequences = [
        item.sequence if strand == "+" else reverse_complement(item.sequence)
        for item in batch
        if item.sequence is not None
        for strand in strands
    ]
    upcoming = scores.of(sequences)
    for contig, start, end, sequence, note in batch:
        for strand in strands:
            score = None if sequence is None else next(upcoming)
            yield ScoredWindow(contig, start, end, strand, score, note)
