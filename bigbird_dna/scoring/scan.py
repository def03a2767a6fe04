"""Windows along the records of a FASTA file, their scores, and the signal track that the scores make.

A record is tiled symmetrically with windows of the model's size, so that the reverse complement of a record
is cut into the same windows. Memory does not grow with the length of the records: it holds one chunk of
sequence and one batch of windows.

A promoter model scores a window for a TSS at a fixed position: `upstream` bp from the start of the window, in
the direction of transcription. The score belongs to that position, not to the center of the window. With the
paper's 5,000 + 3,000 bp, the position is 1 kb right of the center on "+" and 1 kb left of it on "-". Each
score therefore carries its position, and nothing that uses it has to know the window.

A chromatin model with the tracks `TSS_TRACKS` scores all bins in the center of a window at once, on both
strands; the bin of a score has the place of a promoter model's window, with the TSS at its center base.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import TSS_TRACKS
from bigbird_dna.genome.fasta import stream_fasta
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
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load, load_promoter_model
from bigbird_dna.model.model import LoadedModel, Predictor, window_predictor
from bigbird_dna.model.promoter import LoadedPromoterModel

BOTH_STRANDS: tuple[Strand, ...] = ("+", "-")
STRIDE = 10
"""Distance of a promoter model's windows in bp, if none is given."""
SHORT, PADDED, OUTSIDE = "short", "padded", "outside"  # notes

ScanModel = LoadedPromoterModel | LoadedChromatinModel
T = TypeVar("T")


def load_scan_model(model: LoadedModel | Path | str) -> ScanModel:
    """Load, or return, a promoter model or a chromatin model of start sites; `ModelError` for any other."""
    loaded = model if isinstance(model, LoadedModel) else load(model)
    if isinstance(loaded, LoadedChromatinModel):
        names = {track.name for track in loaded.tracks}
        if names.issuperset(TSS_TRACKS.values()):
            return loaded
    return load_promoter_model(loaded)


def scan_predictor(
    model: ScanModel,
    calibrated: bool = False,
    prior: float | None = None,
    *,
    aligned: bool = False,
    **options: Any,
) -> Predictor:
    """Return the predictor of the windows of a scan; `aligned`: of those of `aligned_inputs`.

    `options` are the batch size and the device.
    """
    if isinstance(model, LoadedChromatinModel) and not aligned:
        options["center_fraction"] = model.scored_center
    return window_predictor(model, calibrated, prior, **options)


@dataclass(slots=True)
class ScoredWindow:
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
    note: str
    tss: int | None
    score: float | None = None

    @property
    def name(self) -> str:
        """`contig:start-end(strand)`, unique within a scan."""
        return f"{self.contig}:{self.start}-{self.end}({self.strand})"

    @property
    def is_short(self) -> bool:
        """Whether the record does not fill the window."""
        return self.note.startswith((SHORT, PADDED, OUTSIDE))


class ModelInput(NamedTuple):
    """A sequence that the model reads at once, and the windows or bins that get their scores from it.

    `text` is "" if nothing is read, and nothing is scored. `outputs` are the indices of the scores, one per
    row, in the flattened predictions for the sequence.
    """

    text: str
    rows: list[ScoredWindow]
    outputs: Sequence[int]


def score_inputs(
    inputs: Iterable[ModelInput],
    predict: Predictor,
    first: int = 32,
    most: int = 512,
) -> Iterator[list[ScoredWindow]]:
    """Predict inputs in batches, and yield the scored rows of each batch.

    Batches grow from `first` inputs to `most`: small first ones give first results soon.
    """
    upcoming, size = iter(inputs), first
    while batch := list(islice(upcoming, size)):
        read = [one for one in batch if one.text]
        if read:
            predictions = predict([one.text for one in read])
            values = predictions.reshape(len(read), -1).tolist()
            for one, scores in zip(read, values, strict=True):
                for row, output in zip(one.rows, one.outputs, strict=True):
                    row.score = scores[output]
        yield [row for one in batch for row in one.rows]
        size = min(2 * size, most)


def scan_records(
    fasta: Path,
    contigs: Mapping[str, int],
    model: ScanModel,
    predict: Predictor,
    *,
    stride: int | None = None,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    pad: bool = False,
    beyond_is_n: bool = False,
    places: Places | None = None,
) -> Iterator[list[ScoredWindow]]:
    """Yield the scores of all windows, or bins, of every record in batches, in file order.

    The strands of a window are adjacent. `contigs` are the lengths of the file's records; `predict` returns
    the probabilities of windows that the model reads, see `window_predictor`. `stride`, `pad` and
    `beyond_is_n` are for promoter models (see `promoter_inputs`); a stride of None is `STRIDE`. If `places`
    is given, only windows that overlap them are scored. `DataError` if the file cannot be read, or no longer
    matches `contigs`.
    """
    if isinstance(model, LoadedPromoterModel):
        inputs = promoter_inputs(
            fasta,
            contigs,
            upstream=model.settings.upstream,
            downstream=model.settings.downstream,
            stride=stride or STRIDE,
            strands=strands,
            max_n=max_n,
            pad=pad,
            beyond_is_n=beyond_is_n,
            places=places,
        )
        return score_inputs(inputs, predict)
    inputs = bin_inputs(
        fasta,
        contigs,
        window=model.settings.window,
        bin_size=model.settings.bin,
        num_bins=model.bins_together(model.scored_center),
        columns=model.tss_columns,
        num_tracks=len(model.tracks),
        strands=strands,
        max_n=max_n,
        places=places,
    )
    return score_inputs(inputs, predict, 2, 64)


def count_scores(
    contigs: Mapping[str, int], model: ScanModel, stride: int | None = None
) -> int:
    """Return about how many scores each strand has in a scan of whole records."""
    if isinstance(model, LoadedPromoterModel):
        window = model.settings.window
        step = stride or STRIDE
    else:
        window = step = model.settings.bin
    return sum(
        count_tiles(length, window, step) if length >= window else 1
        for length in contigs.values()
    )


def promoter_inputs(
    fasta: Path,
    contigs: Mapping[str, int],
    *,
    upstream: int,
    downstream: int,
    stride: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    pad: bool = False,
    beyond_is_n: bool = False,
    places: Places | None = None,
    chunk_bases: int = 1_000_000,
) -> Iterator[ModelInput]:
    """Yield the windows of every record, in file order; the strands of a window are adjacent.

    A score is about the TSS position of the window, `upstream` bp from its 5' end. A record shorter than the
    window has one row without a score; with `pad`, it is scored once, in the center of a window of N
    (`filled`), and with `beyond_is_n`, this padding counts as N.
    """
    window = upstream + downstream
    tiles = record_tiles(fasta, contigs, window, stride, places, chunk_bases)
    for contig, start, sequence in tiles:
        end, missing = start + len(sequence), window - len(sequence)
        if missing and not pad:
            for strand in strands:
                row = ScoredWindow(contig, start, end, strand, SHORT, None)
                yield ModelInput("", [row], (0,))
            continue
        beyond = missing if beyond_is_n else 0
        n_fraction = (sequence.count("N") + beyond) / (len(sequence) + beyond)
        note = _window_note(missing, n_fraction, max_n)
        forward = filled(sequence, window) if missing else sequence
        side = missing // 2
        for strand in strands:
            tss = tss_position(start - side, end + side, strand, upstream)
            within = tss if start <= tss < end else None
            row = ScoredWindow(contig, start, end, strand, note, within)
            if n_fraction > max_n:
                text = ""
            else:
                text = forward if strand == "+" else reverse_complement(forward)
            yield ModelInput(text, [row], (0,))


def aligned_inputs(
    fasta: Path,
    contigs: Mapping[str, int],
    model: ScanModel,
    *,
    tss_offset: int,
    strands: Sequence[Strand] = ("+",),
    max_n: float = 0.25,
    places: Places | None = None,
    chunk_bases: int = 1_000_000,
) -> Iterator[ModelInput]:
    """Yield one window per record and strand: that whose TSS is base `tss_offset` of the record.

    Bases of the window beyond the record are N, which `max_n` does not count. `places` selects records.
    """
    upstream, downstream = model.tss_reach
    output = model.tss_columns["+"] if isinstance(model, LoadedChromatinModel) else 0
    reach = max(upstream, downstream - 1)
    first = max(0, tss_offset - reach)
    stop = tss_offset + reach + 1
    for contig, chunks in groupby(
        stream_fasta(fasta, chunk_bases), key=attrgetter("contig")
    ):
        if places is not None and not places.on(contig):
            continue
        if contig not in contigs:
            raise _changed(fasta, contig, "is new")
        text = ""
        for chunk in chunks:
            begin, end = max(first - chunk.start, 0), max(stop - chunk.start, 0)
            text += chunk.sequence[begin:end]
        for strand in strands:
            locus = Locus(contig, tss_offset, strand, "")
            window = window_around(locus, upstream, downstream)
            start, end = max(window.start, 0), min(window.end, contigs[contig])
            tss = tss_offset if tss_offset < contigs[contig] else None
            if start >= end:
                row = ScoredWindow(contig, 0, contigs[contig], strand, OUTSIDE, tss)
                yield ModelInput("", [row], (output,))
                continue
            if strand == "+":
                sequence, offset = text, tss_offset - first
            else:
                sequence = reverse_complement(text)
                offset = len(text) - 1 - (tss_offset - first)
            read = window_at_tss(sequence, offset, upstream, downstream)
            missing = len(window) - (end - start)
            n_fraction = (read.count("N") - missing) / (end - start)
            note = _window_note(missing, n_fraction, max_n)
            row = ScoredWindow(contig, start, end, strand, note, tss)
            yield ModelInput("" if n_fraction > max_n else read, [row], (output,))


def _window_note(missing: int, n_fraction: float, max_n: float) -> str:
    """Return the note of a window that lacks `missing` bases, or has too many N to be scored."""
    padded = f"{PADDED}={missing}" if missing else ""
    unknown = f"n_fraction={n_fraction:.4g}" if n_fraction > max_n else ""
    return ";".join(filter(None, (padded, unknown)))


def bin_inputs(
    fasta: Path,
    contigs: Mapping[str, int],
    *,
    window: int,
    bin_size: int,
    num_bins: int,
    columns: Mapping[Strand, int],
    num_tracks: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    places: Places | None = None,
    chunk_bases: int = 1_000_000,
) -> Iterator[ModelInput]:
    """Yield the windows whose bins are scored, in file order; the strands of a bin are adjacent.

    The model reads `window` bp, and predicts `num_tracks` in `num_bins` bins of `bin_size` bp at its center;
    `columns` has the track of each strand. Bases beyond the record are N, and always count as such. Where
    the centers of windows overlap, each scores the bins nearest to its center. The TSS of a bin is its center
    base (of an even number of bases the later one, in transcription order). A record too short to be scored
    has one row per strand, without a score.
    """
    span = num_bins * bin_size
    margin = (window - span) // 2
    tiles = record_tiles(fasta, contigs, span, span, places, chunk_bases, margin)
    for contig, start, sequence in tiles:
        length = contigs[contig]
        text = filled(sequence, window).ljust(window, "N")
        n_fraction = fraction_n(text)
        note = ""
        if n_fraction > max_n:
            text = ""
            note = f"n_fraction={n_fraction:.4g}"
            if length < span:
                note = f"{SHORT};{note}"
                rows = [
                    ScoredWindow(contig, 0, length, strand, note, None)
                    for strand in strands
                ]
                yield ModelInput("", rows, range(len(rows)))
                continue
        rows, outputs = [], []
        first = start if length >= span else -((span - length) // 2)
        for number, begin in _own_bins(first, span, bin_size, length):
            end = begin + bin_size
            if places is None or places.overlaps(contig, begin, end):
                for strand in strands:
                    tss = tss_position(begin, end, strand, bin_size // 2)
                    rows.append(ScoredWindow(contig, begin, end, strand, note, tss))
                    outputs.append(number * num_tracks + columns[strand])
        yield ModelInput(text, rows, outputs)


def _own_bins(
    start: int, span: int, size: int, length: int
) -> Iterator[tuple[int, int]]:
    """Yield number and start of the bins that a window scores: inside the record, nearest to its center.

    Windows overlap in the center of a record, where the tilings from both ends meet.
    """
    before, after = neighboring_tiles(length, span, span, start)
    for number, begin in enumerate(range(start, start + span, size)):
        # Twice the distance of the bin's center from the starts of the adjacent windows' centers.
        double = 2 * begin + size - start - span
        if before is not None and double <= before:
            continue
        if 0 <= begin <= length - size and (after is None or double <= after):
            yield number, begin


def record_tiles(
    fasta: Path,
    contigs: Mapping[str, int],
    size: int,
    stride: int,
    places: Places | None = None,
    chunk_bases: int = 1_000_000,
    margin: int = 0,
) -> Iterator[tuple[str, int, str]]:
    """Yield contig, start and sequence of the tiles of every record; a record shorter than one is one tile.

    The sequence has `margin` more bases at both ends of the tile, N beyond the record. With `places`, only
    tiles that overlap them; the rest of the file is not read.
    """
    unread = None
    if places is not None:
        unread = {contig for contig in contigs if places.on(contig)}
    for contig, chunks in groupby(
        stream_fasta(fasta, chunk_bases), key=attrgetter("contig")
    ):
        length = contigs.get(contig)
        if length is None:
            raise _changed(fasta, contig, "is new")
        if unread is not None and contig not in unread:
            continue
        tile = min(size, length)
        starts = centered_tiles(length, size, stride) if length >= size else iter((0,))
        start = _next_start(starts, contig, tile, places)
        text, offset = "N" * margin, -margin  # the text begins at base `offset`
        for chunk in chunks:
            text += chunk.sequence + "N" * margin * chunk.last
            while start is not None and start + tile + margin <= offset + len(text):
                begin = start - margin - offset
                yield contig, start, text[begin : begin + tile + 2 * margin]
                start = _next_start(starts, contig, tile, places)
            if start is None:
                text, offset = "", offset + len(text)
            else:
                done = min(max(start - margin - offset, 0), len(text))
                text, offset = text[done:], offset + done
        if start is not None:
            raise _changed(fasta, contig, "is shorter")
        if unread is not None:
            unread.discard(contig)
            if not unread:
                return


def _next_start(
    starts: Iterator[int], contig: str, size: int, places: Places | None
) -> int | None:
    """Return the start of the next tile that overlaps the places."""
    for start in starts:
        if places is None or places.overlaps(contig, start, start + size):
            return start
    return None


def _changed(fasta: Path, contig: str, how: str) -> DataError:
    return DataError(f"{fasta}: changed while it was read: record {contig!r} {how}")


class BestOfRecord:
    """The row with the highest score of each record (the first of equal ones).

    A record without any score has its first row. The note counts windows without a score.
    """

    def __init__(self) -> None:
        self._best: ScoredWindow | None = None
        self._unscored = 0

    def add(self, rows: Iterable[ScoredWindow]) -> list[ScoredWindow]:
        """Add rows in file order; return those of the records that are complete."""
        complete = []
        for row in rows:
            if self._best is not None and self._best.contig != row.contig:
                complete += self.finish()
            if row.score is None:
                self._unscored += 1
            if self._best is None or _rank(row) > _rank(self._best):
                self._best = row
        return complete

    def finish(self) -> list[ScoredWindow]:
        """Return the row of the last record."""
        best, unscored = self._best, self._unscored
        self._best, self._unscored = None, 0
        if best is None:
            return []
        if best.score is not None and unscored:
            note = f"not_scored={unscored}windows"
            best.note = f"{best.note};{note}" if best.note else note
        return [best]


def _rank(row: ScoredWindow) -> float:
    return -1.0 if row.score is None else row.score


class SignalSpan(NamedTuple):
    """A span of a signal track: `[start, end)` of a contig, 0-based, and its probability."""

    contig: str
    start: int
    end: int
    score: float


class Signal:
    """Converts scored windows, ascending on each contig, into non-overlapping spans of a signal track.

    On each strand, the span of a window extends half-way to the TSS positions of the adjacent windows, at the
    ends by half a stride. Where both strands have a span, the larger score is used. Bounds between two bases
    are rounded away from the record's center, so that its reverse complement has the mirrored signal.
    `contigs` are lengths in bp. With `places`, only the signal in them.
    """

    def __init__(
        self,
        contigs: Mapping[str, int],
        stride: int,
        strands: Sequence[Strand] = BOTH_STRANDS,
        places: Places | None = None,
    ) -> None:
        self._contigs = contigs
        self._stride = stride
        self._strands = strands
        self._places = places
        self._begin("", 0)

    def _begin(self, contig: str, length: int) -> None:
        self._contig = contig
        self._length = length
        # The last window of each strand: twice the center of its TSS's base, the left end of its span (four
        # times its position), and its score.
        self._last: dict[Strand, tuple[int, int, float | None]] = {}
        # Positions where the score of a strand changes, ascending; None: no score.
        self._changes: dict[Strand, list[tuple[int, float | None]]] = {
            strand: [] for strand in self._strands
        }
        self._current: dict[Strand, float | None] = {}
        self._span: tuple[int, float] | None = None  # start and score, still open

    def add(self, rows: Iterable[ScoredWindow]) -> list[SignalSpan]:
        """Add windows; return the spans that no later window changes."""
        spans = []
        for row in rows:
            if row.contig != self._contig:
                spans += self.finish()
                self._begin(row.contig, self._contigs[row.contig])
            if row.tss is None:
                continue
            center = 2 * row.tss + 1
            if row.strand in self._last:
                middle = self._last[row.strand][0] + center
                self._close(row.strand, middle)
            else:
                middle = 2 * center - 2 * self._stride
            self._last[row.strand] = (center, middle, row.score)
        ends = [changes[-1][0] if changes else 0 for changes in self._changes.values()]
        return spans + self._merge(min(ends))

    def finish(self) -> list[SignalSpan]:
        """Return the last spans of the contig."""
        for strand, (center, _, _) in list(self._last.items()):
            self._close(strand, 2 * center + 2 * self._stride)
        self._last = {}
        return self._merge(self._length + 1)

    def _close(self, strand: Strand, right: int) -> None:
        """End the span of the last window of a strand at `right`, four times its position."""
        _, left, score = self._last[strand]
        start, end = self._bound(left), self._bound(right)
        if start < end:
            self._changes[strand] += [(start, score), (end, None)]

    def _bound(self, quadruple: int) -> int:
        """Return a bound, given as four times its position, as an integer within the record."""
        outward = (
            quadruple // 4 if quadruple <= 2 * self._length else -(-quadruple // 4)
        )
        return min(max(outward, 0), self._length)

    def _merge(self, limit: int) -> list[SignalSpan]:
        """Return the spans of the larger score up to `limit`, from which on changes may be unknown."""
        due: list[tuple[int, Strand, float | None]] = []
        for strand, changes in self._changes.items():
            count = 0
            while count < len(changes) and changes[count][0] < limit:
                due.append((changes[count][0], strand, changes[count][1]))
                count += 1
            del changes[:count]
        due.sort(key=itemgetter(0))  # keeps the order of changes at one position
        spans: list[SignalSpan] = []
        for position, changed in groupby(due, key=itemgetter(0)):
            for _, strand, score in changed:
                self._current[strand] = score
            scores = [one for one in self._current.values() if one is not None]
            largest = max(scores, default=None)
            if self._span is not None and self._span[1] != largest:
                spans += self._clipped(self._span[0], position, self._span[1])
                self._span = None
            if self._span is None and largest is not None:
                self._span = (position, largest)
        return spans

    def _clipped(self, start: int, end: int, score: float) -> list[SignalSpan]:
        if self._places is None:
            return [SignalSpan(self._contig, start, end, score)]
        parts = self._places.clipped(self._contig, start, end)
        return [SignalSpan(self._contig, *part, score) for part in parts]


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
