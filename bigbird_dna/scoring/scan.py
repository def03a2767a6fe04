"""Score windows along every record of a FASTA file as a stream, and convert the scores to a signal track.

A record is tiled symmetrically with windows of the model's size, so that the reverse complement of a record
is cut into the same windows. Memory does not grow with the length of the records: it holds one chunk of
sequence, one batch of windows, and a bounded cache of scores of repeated windows.

A promoter model scores a window for a TSS at a fixed position: `upstream` bp from the start of the window, in
the direction of transcription. The score belongs to that position, not to the center of the window. With the
paper's 5,000 + 3,000 bp, the position is 1 kb right of the center on "+" and 1 kb left of it on "-". Each
score therefore carries its position, and nothing that uses it has to know the window.
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
from bigbird_dna.genome.given_sequences import filled, window_at_tss
from bigbird_dna.genome.intervals import Places
from bigbird_dna.genome.sequence import (
    Locus,
    Strand,
    centered_tiles,
    count_tiles,
    fraction_n,
    neighboring_tiles,
    reverse_complement,
    tss_position,
    window_around,
)
from bigbird_dna.model.chromatin import Predictor

BOTH_STRANDS: tuple[Strand, ...] = ("+", "-")
SHORT, PADDED, OUTSIDE = "short", "padded", "outside"  # notes
_FIRST_BATCH = 32  # sequences; small, so that the first scores appear soon
KEPT_BASES = 1 << 24
"""Most bases of cached windows, whose repeats (repetitive sequence, tiny records) are not scored again."""


T = TypeVar("T")
_Segment = tuple[
    int, int, float | None
]  # start, end and score on one strand; None if not scored
_Asked = tuple["ScoredWindow", str]
"""A window on one strand, and the sequence that the model reads ("" if the window is not scored)."""


class ScoredWindow(NamedTuple):
    """The score of one strand of one window.

    `start` and `end` are 0-based, half-open, on the record's forward strand and within the record. `score`
    is a probability, or None if the window was not scored. `note` is "" or parts joined by ";": `padded=BP`
    for a window with BP bases beyond the record; for one that was not scored, `short` (the record is
    shorter), `outside` (the record has none of its bases) or `n_fraction=F`. `tss` is the position that the
    score is about, 0-based; None if it is not in the record.
    """

    contig: str
    start: int
    end: int
    strand: Strand
    score: float | None
    note: str
    tss: int | None

    @property
    def name(self) -> str:
        """`contig:start-end(strand)`, unique within a scan."""
        return f"{self.contig}:{self.start}-{self.end}({self.strand})"

    @property
    def is_short(self) -> bool:
        """Whether the record does not fill the window."""
        return self.note.startswith((SHORT, PADDED, OUTSIDE))


def scan_promoters(
    fasta: Path,
    contigs: Mapping[str, int],
    *,
    window: int,
    stride: int,
    upstream: int,
    predict: Predictor,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    pad: bool = False,
    beyond_is_n: bool = False,
    places: Places | None = None,
    numbers: range | None = None,
    batch_sequences: int = 512,
    chunk_bases: int = 1_000_000,
    kept_bases: int = KEPT_BASES,
) -> Iterator[ScoredWindow]:
    """Yield the scores of the windows of every record, in file order; the strands of a window are adjacent.

    A score is about the TSS position of the window, `upstream` bp from its 5' end. A record shorter than the
    window has one row without a score; with `pad`, it is scored once, in the center of a window of N
    (`filled`), and with `beyond_is_n`, this padding counts as N. If `places` is given, only windows that
    overlap them are scored; `numbers` selects a range of these (see `count_windows`). Up to `kept_bases`
    bases of windows are cached. `DataError` if the file cannot be read, or no longer matches `contigs`, the
    lengths of its records.
    """
    if window < 1 or stride < 1 or not 0 <= max_n <= 1:
        raise ValueError(
            f"window {window}, stride {stride} or max_n {max_n} is out of range"
        )

    def asked() -> Iterator[_Asked]:
        grid = _Grid(window, stride, places)
        for contig, start, sequence in _windows(
            fasta, contigs, grid, numbers, chunk_bases
        ):
            end, missing = start + len(sequence), window - len(sequence)
            if missing and not pad:
                for strand in strands:
                    yield (
                        ScoredWindow(contig, start, end, strand, None, SHORT, None),
                        "",
                    )
                continue
            beyond = missing if beyond_is_n else 0
            n_fraction = (sequence.count("N") + beyond) / (len(sequence) + beyond)
            note = _window_note(missing, n_fraction, max_n)
            read, side = filled(sequence, window), missing // 2
            for strand in strands:
                tss = tss_position(start - side, end + side, strand, upstream)
                within = tss if start <= tss < end else None
                row = ScoredWindow(contig, start, end, strand, None, note, within)
                text = read if strand == "+" else reverse_complement(read)
                yield row, "" if n_fraction > max_n else text

    yield from _scored(asked(), predict, batch_sequences, kept_bases)


def scan_aligned(
    fasta: Path,
    contigs: Mapping[str, int],
    *,
    tss_offset: int,
    upstream: int,
    downstream: int,
    predict: Predictor,
    strands: Sequence[Strand] = ("+",),
    max_n: float = 0.25,
    places: Places | None = None,
    numbers: range | None = None,
    batch_sequences: int = 512,
    chunk_bases: int = 1_000_000,
    kept_bases: int = KEPT_BASES,
) -> Iterator[ScoredWindow]:
    """Yield one score per record and strand: that of the window whose TSS is base `tss_offset` of the record.

    Bases of the window beyond the record are N, which `max_n` does not count. `places` and `numbers` select
    records. Other arguments and errors are those of `scan_promoters`.
    """
    reach = max(upstream, downstream - 1)
    first = max(0, tss_offset - reach)

    def asked() -> Iterator[_Asked]:
        records = groupby(stream_fasta(fasta, chunk_bases), key=attrgetter("contig"))
        chosen = (
            record for record in records if places is None or places.on(record[0])
        )
        for contig, chunks in (
            chosen if numbers is None else islice(chosen, numbers.start, numbers.stop)
        ):
            if contig not in contigs:
                raise DataError(
                    f"{fasta}: changed while it was read: record {contig!r} is new"
                )
            ((_, text),) = _cut(chunks, (first,), tss_offset + reach + 1 - first)
            place = tss_offset - first  # of the TSS in the text
            read_as = {
                "+": (text, place),
                "-": (reverse_complement(text), len(text) - 1 - place),
            }
            for strand in strands:
                window = window_around(
                    Locus(contig, tss_offset, strand, ""), upstream, downstream
                )
                start, end = max(window.start, 0), min(window.end, contigs[contig])
                tss = tss_offset if tss_offset < contigs[contig] else None
                if start >= end:
                    yield (
                        ScoredWindow(
                            contig, 0, contigs[contig], strand, None, OUTSIDE, tss
                        ),
                        "",
                    )
                    continue
                missing = len(window) - (end - start)
                read = window_at_tss(*read_as[strand], upstream, downstream)
                n_fraction = (read.count("N") - missing) / (end - start)
                note = _window_note(missing, n_fraction, max_n)
                row = ScoredWindow(contig, start, end, strand, None, note, tss)
                yield row, "" if n_fraction > max_n else read

    yield from _scored(asked(), predict, batch_sequences, kept_bases)


def _window_note(missing: int, n_fraction: float, max_n: float) -> str:
    """Return the note of a window that lacks `missing` bases, or has too many N to be scored."""
    padded = f"{PADDED}={missing}" if missing else ""
    unknown = f"n_fraction={n_fraction:.4g}" if n_fraction > max_n else ""
    return ";".join(filter(None, (padded, unknown)))


def _scored(
    asked: Iterable[_Asked], predict: Predictor, batch_sequences: int, kept_bases: int
) -> Iterator[ScoredWindow]:
    """Yield the rows with their scores; a window that comes again is not predicted again."""
    known: dict[str, float] = {}
    bases = 0  # total length of the windows in `known`
    for batch in growing_batches(asked, lambda _: 1, _FIRST_BATCH, batch_sequences):
        if bases > kept_bases:
            known, bases = {}, 0
        new = list(
            dict.fromkeys(text for _, text in batch if text and text not in known)
        )
        if new:
            scores = predict(new)
            assert scores.shape == (len(new),), (
                f"{scores.shape} scores for {len(new)} sequences"
            )
            known.update(zip(new, scores.tolist(), strict=True))
            bases += sum(map(len, new))
        for row, text in batch:
            yield row._replace(score=known[text]) if text else row


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
    places: Places | None = None,
    numbers: range | None = None,
    batch_sequences: int = 64,
    chunk_bases: int = 1_000_000,
) -> Iterator[ScoredWindow]:
    """Yield the scores of the bins of every record, in file order; the strands of a bin are adjacent.

    Windows of `window` bp every `stride` bp are read with `margin` bp on both sides, and `predict` returns
    (N, K, T) for their K bins of `size` bp. Bases beyond the record are N, and always count as such.
    `columns` has the track of each strand. Where windows overlap, each scores the bins nearest to its center.
    The TSS of a bin is its center base (of an even number of bases the later one, in transcription order).
    A record too short to be scored has one window, without a score. Other arguments and errors are those of
    `scan_promoters`.
    """
    grid, read = _Grid(window, stride, places), window + 2 * margin
    tracks, nothing = [columns[strand] for strand in strands], [None] * len(strands)
    windows = _windows(fasta, contigs, grid, numbers, chunk_bases, margin)
    for batch in growing_batches(windows, lambda _: 1, 2, batch_sequences):
        texts = [filled(text, read).ljust(read, "N") for *_, text in batch]
        fractions = [fraction_n(text) for text in texts]
        kept = [
            text
            for text, fraction in zip(texts, fractions, strict=True)
            if fraction <= max_n
        ]
        predicted = iter(predict(kept)[..., tracks].tolist() if kept else ())
        for (contig, start, _), fraction in zip(batch, fractions, strict=True):
            length, scores, note = contigs[contig], None, f"n_fraction={fraction:.4g}"
            if fraction <= max_n:
                scores, note = next(predicted), ""
            elif length < window:
                notes = f"{SHORT};{note}"
                yield from (
                    ScoredWindow(contig, 0, length, strand, None, notes, None)
                    for strand in strands
                )
                continue
            first = start if length >= window else -((window - length) // 2)
            for number, begin in _own_bins(first, window, size, length):
                if places is None or places.overlaps(contig, begin, begin + size):
                    for strand, score in zip(
                        strands, scores[number] if scores else nothing, strict=True
                    ):
                        tss = tss_position(begin, begin + size, strand, size // 2)
                        yield ScoredWindow(
                            contig, begin, begin + size, strand, score, note, tss
                        )


def _own_bins(
    start: int, window: int, size: int, length: int
) -> Iterator[tuple[int, int]]:
    """Yield number and start of the bins that a window scores: inside the record, nearest to its center.

    Windows overlap in the center of a record, where the tilings from both ends meet.
    """
    before, after = neighboring_tiles(length, window, window, start)
    for number, begin in enumerate(range(start, start + window, size)):
        double = (
            2 * begin + size - start - window
        )  # twice the bin's center, less those of adjacent windows
        if before is not None and double <= before:
            continue
        if 0 <= begin <= length - size and (after is None or double <= after):
            yield number, begin


def best_of_records(rows: Iterable[ScoredWindow]) -> Iterator[ScoredWindow]:
    """Yield the row with the highest score of each record (the first of equal ones).

    A record without any score has its first row. The note counts windows without a score.
    """
    for _, windows in groupby(rows, key=attrgetter("contig")):
        best, unscored = next(windows), 0
        for row in chain((best,), windows):
            unscored += row.score is None
            if row.score is not None and (best.score is None or row.score > best.score):
                best = row
        if best.score is not None and unscored:
            best = best._replace(
                note=";".join(
                    filter(None, (best.note, f"not_scored={unscored}windows"))
                )
            )
        yield best


def growing_batches(
    items: Iterable[T],
    size: Callable[[T], int],
    first: int,
    most: int,
    longest: int | None = None,
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
    contigs: Mapping[str, int],
    places: Places | None = None,
    *,
    window: int,
    stride: int,
) -> int:
    """Return the number of windows per strand in a scan."""
    grid = _Grid(window, stride, places)
    return sum(grid.number(contig, length) for contig, length in contigs.items())


def count_records(contigs: Mapping[str, int], places: Places | None = None) -> int:
    """Return the number of records, or of those that `places` selects."""
    return sum(places is None or places.on(contig) for contig in contigs)


class _Grid(NamedTuple):
    """Positions of the windows of a scan."""

    size: int
    stride: int
    places: Places | None

    def starts(self, contig: str, length: int) -> Iterator[int]:
        """Yield the starts of the windows of a record of `length` bp."""
        starts = (
            centered_tiles(length, self.size, self.stride)
            if length >= self.size
            else iter((0,))
        )
        if self.places is None:
            return starts
        size, overlaps = min(self.size, length), self.places.overlaps
        return (start for start in starts if overlaps(contig, start, start + size))

    def number(self, contig: str, length: int) -> int:
        """Return the number of these windows."""
        if length < self.size:
            return int(self.places is None or self.places.overlaps(contig, 0, length))
        parts = (
            [(0, length)]
            if self.places is None
            else self.places.clipped(contig, 0, length)
        )
        below = partial(count_tiles, length, self.size, self.stride)
        count = counted = 0
        for start, end in parts:
            first = max(
                start - self.size + 1, counted
            )  # earlier windows are counted with earlier parts
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
    left = (
        None if places is None else {contig for contig in contigs if places.on(contig)}
    )  # still to read
    for contig, pieces in groupby(
        stream_fasta(fasta, chunk_bases), key=attrgetter("contig")
    ):
        length = contigs.get(contig)
        if length is None:
            raise DataError(
                f"{fasta}: changed while it was read: record {contig!r} is new"
            )
        if left is not None and contig not in left:
            continue
        starts = grid.starts(contig, length)
        if numbers is not None:
            if before >= numbers.stop:
                return
            starts = islice(
                starts, max(numbers.start - before, 0), max(numbers.stop - before, 0)
            )
            before += grid.number(contig, length)
            if before <= numbers.start:
                continue
        size = min(grid.size, length) + 2 * margin
        for start, sequence in _cut(chain(around, pieces, around), starts, size):
            if len(sequence) != size:
                raise DataError(
                    f"{fasta}: changed while it was read: record {contig!r} is shorter"
                )
            yield contig, start, sequence
        if left is not None:
            left.discard(contig)
            if not left:  # the rest of the file is not needed
                return


def _cut(
    chunks: Iterable[Chunk], starts: Iterable[int], size: int
) -> Iterator[tuple[int, str]]:
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
    stride: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
) -> Iterator[SignalSpan]:
    """Convert scored windows, ascending on each of `contigs` (bp), into non-overlapping spans.

    On each strand, the span of a window extends half-way to the TSS positions of the adjacent windows, at the
    ends by half a stride. Where both strands have a span, the larger score is used. Bounds between two bases
    are rounded away from the record's center, so that its reverse complement has the mirrored signal.
    """
    for contig, rows in groupby(windows, key=attrgetter("contig")):
        # The strands' TSSs differ by less than a window, which bounds the buffer of tee.
        segments = [
            _segments(copy, strand, contigs[contig], stride)
            for strand, copy in zip(strands, tee(rows, len(strands)), strict=True)
        ]
        yield from _larger(contig, segments)


def _segments(
    rows: Iterable[ScoredWindow], strand: Strand, length: int, stride: int
) -> Iterator[_Segment]:
    """Yield the spans of one strand of a contig."""
    before: int | None = None
    points = (
        (2 * row.tss + 1, row.score)
        for row in rows
        if row.strand == strand and row.tss is not None
    )
    for point, after in pairwise(chain(points, (None,))):
        assert point is not None
        here, score = point  # twice the center of the TSS's base
        left = here - 2 * stride if before is None else before
        right = here + 2 * stride if after is None else after[0]
        start, end = _bound(left + here, length), _bound(here + right, length)
        if start < end:
            yield start, end, score
        before = here


def _bound(quadruple: int, length: int) -> int:
    """Return a bound, given as four times its position, as an integer within `[0, length]`."""
    outward = quadruple // 4 if quadruple <= 2 * length else -(-quadruple // 4)
    return min(max(outward, 0), length)


def _larger(contig: str, strands: Iterable[Iterable[_Segment]]) -> Iterator[SignalSpan]:
    """Yield the larger score where at least one strand has one; merge adjacent spans of equal score."""

    def edges(
        strand: int, segments: Iterable[_Segment]
    ) -> Iterator[tuple[int, int, float | None]]:
        for start, end, score in segments:
            yield start, strand, score
            yield end, strand, None

    place = itemgetter(0)
    known: dict[int, float | None] = {}
    start, score = 0, None
    for here, changes in groupby(
        merge(*map(edges, count(), strands), key=place), place
    ):
        known.update((strand, value) for _, strand, value in changes)
        larger = max(
            (value for value in known.values() if value is not None), default=None
        )
        if larger != score:
            if score is not None:
                yield SignalSpan(contig, start, here, score)
            start, score = here, larger
