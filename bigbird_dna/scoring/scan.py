"""Score windows along every record of a FASTA file as a stream, and convert the scores to a signal track.

A record is tiled symmetrically with windows of the model's size, so that the reverse complement of a record
is cut into the same windows. Memory does not grow with the length of the records: it holds one chunk of
sequence, one batch of windows, and a bounded cache of scores of repeated windows.

A promoter model scores a window for a TSS at a fixed position: `upstream` bp from the start of the window, in
the direction of transcription. The score belongs to that position, not to the center of the window. With the
paper's 5,000 + 3,000 bp, the position is 1 kb right of the center on "+" and 1 kb left of it on "-".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import chain, count, groupby, islice, pairwise, tee
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import Chunk, stream_fasta
from bigbird_dna.genome.given_sequences import filled
from bigbird_dna.genome.intervals import Places
from bigbird_dna.genome.sequence import (
    Strand,
    centered_tiles,
    count_tiles,
    fraction_n,
    neighboring_tiles,
    reverse_complement,
)
from bigbird_dna.model.chromatin import Predictor

BOTH_STRANDS: tuple[Strand, ...] = ("+", "-")
SHORT = "short"
_FIRST_BATCH = 32  # sequences; small, so that the first scores appear soon
KEPT_BASES = 1 << 24
"""Most bases of cached windows, whose repeats (repetitive sequence, tiny records) are not scored again."""


T = TypeVar("T")
_Segment = tuple[int, int, float | None]  # start, end and score on one strand; None if not scored
_Asked = tuple[str, int, int, Strand, str, str]
"""A window on one strand: contig, start, end, strand, note, and sequence ("" if not scored)."""


class ScoredWindow(NamedTuple):
    """The score of one strand of one window.

    `start` and `end` are 0-based, half-open, on the record's forward strand and within the record. `score`
    is a probability, or None if the window was not scored. `note` is "" or parts joined by ";": `short` for
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
        """`contig:start-end(strand)`, unique within a scan."""
        return f"{self.contig}:{self.start}-{self.end}({self.strand})"

    @property
    def is_short(self) -> bool:
        """Whether the record is shorter than the window."""
        return self.note.startswith(SHORT)


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
    kept_bases: int = KEPT_BASES,
) -> Iterator[ScoredWindow]:
    """Yield the scores of the windows of every record, in file order; the strands of a window are adjacent.

    A record shorter than the window is scored once, padded by `filled`; with `beyond_is_n`, the padding
    counts as N. If `places` is given, only windows that overlap them are scored; `numbers` selects a range of
    these (see `count_windows`). Up to `kept_bases` bases of windows are cached. `DataError` if the file
    cannot be read, or no longer matches `contigs`, the lengths of its records.
    """
    if window < 1 or stride < 1 or not 0 <= max_n <= 1:
        raise ValueError(f"window {window}, stride {stride} or max_n {max_n} is out of range")

    def asked() -> Iterator[_Asked]:
        grid = _Grid(window, stride, places)
        for contig, start, sequence in _windows(fasta, contigs, grid, numbers, chunk_bases):
            end, missing = start + len(sequence), window - len(sequence)
            notes = [SHORT] if missing else []
            beyond = missing if beyond_is_n else 0
            n_fraction = (sequence.count("N") + beyond) / (len(sequence) + beyond)
            if n_fraction > max_n:
                notes.append(f"n_fraction={n_fraction:.4g}")
                sequence = ""
            for strand in strands:
                text = sequence if strand == "+" else reverse_complement(sequence)
                yield contig, start, end, strand, ";".join(notes), text

    known: dict[str, float] = {}
    bases = 0  # total length of the windows in `known`
    for batch in growing_batches(asked(), lambda _: 1, _FIRST_BATCH, batch_sequences):
        if bases > kept_bases:
            known, bases = {}, 0
        new = list(dict.fromkeys(text for *_, text in batch if text and text not in known))
        if new:
            scores = predict([filled(text, window) for text in new])
            assert scores.shape == (len(new),), f"{scores.shape} scores for {len(new)} sequences"
            known.update(zip(new, scores.tolist(), strict=True))
            bases += sum(map(len, new))
        for contig, start, end, strand, note, text in batch:
            yield ScoredWindow(contig, start, end, strand, known[text] if text else None, note)


def scan_bins(
    fasta: Path,
    contigs: Mapping[str, int],
    *,
    window: int,
    stride: int,
    size: int,
    margin: int,
    columns: Mapping[Strand, int],
    predict: Predictor,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    beyond_is_n: bool = True,
    places: Places | None = None,
    numbers: range | None = None,
    batch_sequences: int = 64,
    chunk_bases: int = 1_000_000,
) -> Iterator[ScoredWindow]:
    """Yield the scores of the bins of every record, in file order; the strands of a bin are adjacent.

    Windows of `window` bp every `stride` bp are read with `margin` bp on both sides, and `predict` returns
    (N, K, T) for their K bins of `size` bp. Bases beyond the record are N, and always count as such.
    `columns` has the track of each strand. Where windows overlap, each scores the bins nearest to its center.
    A record too short to be scored has one window, without a score. Other arguments and errors are those of
    `scan_promoters`.
    """
    grid, read = _Grid(window, stride, places), window + 2 * margin
    tracks, nothing = [columns[strand] for strand in strands], [None] * len(strands)
    windows = _windows(fasta, contigs, grid, numbers, chunk_bases, margin)
    for batch in growing_batches(windows, lambda _: 1, 2, batch_sequences):
        texts = [filled(text, read).ljust(read, "N") for *_, text in batch]
        fractions = [fraction_n(text) for text in texts]
        kept = [text for text, fraction in zip(texts, fractions, strict=True) if fraction <= max_n]
        predicted = iter(predict(kept)[..., tracks].tolist() if kept else ())
        for (contig, start, _), fraction in zip(batch, fractions, strict=True):
            length, scores, note = contigs[contig], None, f"n_fraction={fraction:.4g}"
            if fraction <= max_n:
                scores, note = next(predicted), ""
            elif length < window:
                notes = f"{SHORT};{note}"
                yield from (ScoredWindow(contig, 0, length, strand, None, notes) for strand in strands)
                continue
            first = start if length >= window else -((window - length) // 2)
            for number, begin in _own_bins(first, window, size, length):
                if places is None or places.overlaps(contig, begin, begin + size):
                    for strand, score in zip(strands, scores[number] if scores else nothing, strict=True):
                        yield ScoredWindow(contig, begin, begin + size, strand, score, note)


def _own_bins(start: int, window: int, size: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield number and start of the bins that a window scores: inside the record, nearest to its center.

    Windows overlap in the center of a record, where the tilings from both ends meet.
    """
    before, after = neighboring_tiles(length, window, window, start)
    for number, begin in enumerate(range(start, start + window, size)):
        double = 2 * begin + size - start - window  # twice the bin's center, less those of adjacent windows
        if before is not None and double <= before:
            continue
        if 0 <= begin <= length - size and (after is None or double <= after):
            yield number, begin


def growing_batches(
    items: Iterable[T], size: Callable[[T], int], first: int, most: int, longest: int | None = None
) -> Iterator[list[T]]:
    """Yield batches of items to predict together; the total size doubles from `first` up to `most`.

    Small first batches give first results soon. No batch has more than `longest` items.
    """
    batch: list[T] = []
    total, enough = 0, min(first, most)
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= enough or len(batch) == longest:
            yield batch
            batch, total, enough = [], 0, min(2 * enough, most)
    if batch:
        yield batch


def count_windows(
    contigs: Mapping[str, int], *, window: int, stride: int, places: Places | None = None
) -> int:
    """Return the number of windows per strand in a scan."""
    grid = _Grid(window, stride, places)
    return sum(grid.number(contig, length) for contig, length in contigs.items())


class _Grid(NamedTuple):
    """Positions of the windows of a scan."""

    size: int
    stride: int
    places: Places | None

    def starts(self, contig: str, length: int) -> Iterator[int]:
        """Yield the starts of the windows of a record of `length` bp."""
        starts = centered_tiles(length, self.size, self.stride) if length >= self.size else iter((0,))
        if self.places is None:
            return starts
        size, overlaps = min(self.size, length), self.places.overlaps
        return (start for start in starts if overlaps(contig, start, start + size))

    def number(self, contig: str, length: int) -> int:
        """Return the number of these windows."""
        if length < self.size:
            return int(self.places is None or self.places.overlaps(contig, 0, length))
        parts = [(0, length)] if self.places is None else self.places.clipped(contig, 0, length)
        below = partial(count_tiles, length, self.size, self.stride)
        count = counted = 0
        for start, end in parts:
            first = max(start - self.size + 1, counted)  # earlier windows are counted with earlier parts
            if first < end:
                count += below(end) - below(first)
                counted = end
        return count


def _windows(
    fasta: Path,
    contigs: Mapping[str, int],
    grid: _Grid,
    numbers: range | None,
    chunk_bases: int,
    margin: int = 0,
) -> Iterator[tuple[str, int, str]]:
    """Yield contig, start and sequence of windows; a record shorter than a window is a single window.

    The sequence has `margin` more bases at both ends of the window, N beyond the record.
    """
    around = [Chunk("", 0, "N" * margin, False)] * (margin > 0)
    places, before = grid.places, 0  # number of windows in the records read so far
    left = None if places is None else {contig for contig in contigs if places.on(contig)}  # still to read
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
        size = min(grid.size, length) + 2 * margin
        for start, sequence in _cut(chain(around, pieces, around), starts, size):
            if len(sequence) != size:
                raise DataError(f"{fasta}: changed while it was read: record {contig!r} is shorter")
            yield contig, start, sequence
        if left is not None:
            left.discard(contig)
            if not left:  # the rest of the file is not needed
                return


def _cut(chunks: Iterable[Chunk], starts: Iterable[int], size: int) -> Iterator[tuple[int, str]]:
    """Yield slices `[start, start + size)` of one record; the last may be cut short by the record's end."""
    upcoming = iter(starts)
    start = next(upcoming, None)
    held, held_from = "", 0
    for chunk in chunks:
        held += chunk.sequence
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


class SignalSpan(NamedTuple):
    """A span of a signal track: `[start, end)` of a contig, 0-based, and its probability."""

    contig: str
    start: int
    end: int
    score: float


def signal_spans(
    windows: Iterable[ScoredWindow],
    contigs: Mapping[str, int],
    *,
    upstream: int,
    downstream: int,
    stride: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
) -> Iterator[SignalSpan]:
    """Convert scored windows, ascending on each of `contigs` (bp), into non-overlapping spans.

    On each strand, the span of a window extends half-way to the TSS positions of the adjacent windows; a
    short record is one span. Where both strands have a span, the larger score is used. Bounds between two
    bases are rounded away from the record's center, so that its reverse complement has the mirrored signal.
    """
    center = {"+": 2 * upstream + 1, "-": 2 * downstream - 1}
    for contig, rows in groupby(windows, key=attrgetter("contig")):
        # The strands differ by at most |upstream − downstream| bp, which bounds the buffer of tee.
        segments = [
            _segments(copy, strand, center[strand], contigs[contig], stride)
            for strand, copy in zip(strands, tee(rows, len(strands)), strict=True)
        ]
        yield from _larger(contig, segments)


def _segments(
    rows: Iterable[ScoredWindow], strand: Strand, center: int, length: int, stride: int
) -> Iterator[_Segment]:
    """Yield the spans of one strand of a contig; `center` is twice the TSS offset from the window's start."""
    before: int | None = None
    own = (row for row in rows if row.strand == strand)
    for row, after in pairwise(chain(own, (None,))):
        assert row is not None
        if row.is_short:
            yield 0, length, row.score
            continue
        here = 2 * row.start + center
        left = here - 2 * stride if before is None else before
        right = here + 2 * stride if after is None else 2 * after.start + center
        start, end = _bound(left + here, length), _bound(here + right, length)
        if start < end:
            yield start, end, row.score
        before = here


def _bound(quadruple: int, length: int) -> int:
    """Return a bound, given as four times its position, as an integer within `[0, length]`."""
    outward = quadruple // 4 if quadruple <= 2 * length else -(-quadruple // 4)
    return min(max(outward, 0), length)


def _larger(contig: str, strands: Iterable[Iterable[_Segment]]) -> Iterator[SignalSpan]:
    """Yield the larger score where at least one strand has one; merge adjacent spans of equal score."""

    def edges(strand: int, segments: Iterable[_Segment]) -> Iterator[tuple[int, int, float | None]]:
        for start, end, score in segments:
            yield start, strand, score
            yield end, strand, None

    place = itemgetter(0)
    known: dict[int, float | None] = {}
    start, score = 0, None
    for here, changes in groupby(merge(*map(edges, count(), strands), key=place), place):
        known.update((strand, value) for _, strand, value in changes)
        larger = max((value for value in known.values() if value is not None), default=None)
        if larger != score:
            if score is not None:
                yield SignalSpan(contig, start, here, score)
            start, score = here, larger
