"""Windows along the records of a FASTA file, their scores, and the signal track that the scores make.

A record is tiled symmetrically with windows of the model's size, so that the reverse complement of a record
is cut into the same windows. Memory holds one record and one batch of windows.

A promoter model scores a window for a TSS at a fixed position: `upstream` bp from the start of the window, in
the direction of transcription. The score belongs to that position, not to the center of the window. With the
paper's 5,000 + 3,000 bp, the position is 1 kb right of the center on "+" and 1 kb left of it on "-". Each
score therefore carries its position, and nothing that uses it has to know the window.

A chromatin model with the tracks `TSS_TRACKS` scores all bins in the center of a window at once, on both
strands; a bin is written like a promoter model's window, with the TSS at its center base.
"""

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar
from bigbird_dna.genome.chromatin.track import TSS_TRACKS
from bigbird_dna.genome.fasta import read_records
from bigbird_dna.genome.given_sequences import window_at_tss
from bigbird_dna.genome.intervals import Places
from bigbird_dna.genome.sequence import (
    Locus,
    Strand,
    centered_tiles,
    fraction_n,
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


def scan_records(
    fasta: Path,
    contigs: Collection[str],
    model: ScanModel,
    *,
    stride: int | None = None,
    strands: Sequence[Strand] = BOTH_STRANDS,
    tss_offset: int | None = None,
    max_n: float = 0.25,
    places: Places | None = None,
    calibrated: bool = False,
    batch_size: int = 32,
    device: str = "auto",
) -> Iterator[list[ScoredWindow]]:
    """Yield the scores of all windows, or bins, of the records `contigs` in batches, in file order.

    The strands of a window are adjacent. `stride` is for promoter models; None: `STRIDE`. With `tss_offset`,
    each record has one window (`aligned_inputs`). If `places` is given, only windows that overlap them are
    scored. Other arguments are those of `score_promoters`. `DataError` if the file cannot be read.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "device": device}
    first, most = 32, 512  # inputs of a batch: small first ones give first results soon
    if tss_offset is not None:
        inputs = aligned_inputs(fasta, contigs, model, tss_offset, strands, max_n)
    elif isinstance(model, LoadedPromoterModel):
        settings = model.settings
        inputs = window_inputs(
            fasta,
            contigs,
            settings.upstream,
            settings.downstream,
            stride or STRIDE,
            strands,
            max_n,
            places,
        )
    else:
        options["center_fraction"] = model.scored_center
        first, most = 2, 64
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
    predict = window_predictor(model, calibrated, **options)
    return score_inputs(inputs, predict, first, most)


def count_scores(
    lengths: Iterable[int], model: ScanModel, stride: int | None = None
) -> int:
    """Return about how many scores each strand has in a scan of whole records of these lengths."""
    if isinstance(model, LoadedPromoterModel):
        size, step = model.settings.window, stride or STRIDE
    else:
        size = step = model.settings.bin
    return sum(max(1, (length - size) // step + 1) for length in lengths)


def each_row(
    batches: Iterable[list[ScoredWindow]], bar: ProgressBar
) -> Iterator[ScoredWindow]:
    """Yield the rows of batches, and advance the bar by each batch."""
    for batch in batches:
        bar.advance(len(batch))
        yield from batch


def score_inputs(
    inputs: Iterable[ModelInput], predict: Predictor, first: int = 32, most: int = 512
) -> Iterator[list[ScoredWindow]]:
    """Predict inputs in batches, which grow from `first` inputs to `most`, and yield their scored rows."""
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


def window_inputs(
    fasta: Path,
    contigs: Collection[str],
    upstream: int,
    downstream: int,
    stride: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    places: Places | None = None,
) -> Iterator[ModelInput]:
    """Yield the windows of the records `contigs`, in file order; the strands of a window are adjacent.

    A score is about the TSS position of the window, `upstream` bp from its 5' end. A record shorter than the
    window has one row without a score.
    """
    window = upstream + downstream
    for contig, sequence in read_records(fasta, contigs):
        if len(sequence) < window:
            if places is not None and not places.overlaps(contig, 0, len(sequence)):
                continue
            for strand in strands:
                row = ScoredWindow(contig, 0, len(sequence), strand, SHORT, None)
                yield ModelInput("", [row], (0,))
            continue
        for start in centered_tiles(len(sequence), window, stride):
            end = start + window
            if places is not None and not places.overlaps(contig, start, end):
                continue
            text = sequence[start:end]
            n_fraction = fraction_n(text)
            note = f"n_fraction={n_fraction:.4g}" if n_fraction > max_n else ""
            for strand in strands:
                tss = tss_position(start, end, strand, upstream)
                row = ScoredWindow(contig, start, end, strand, note, tss)
                if note:
                    yield ModelInput("", [row], (0,))
                elif strand == "+":
                    yield ModelInput(text, [row], (0,))
                else:
                    yield ModelInput(reverse_complement(text), [row], (0,))


def aligned_inputs(
    fasta: Path,
    contigs: Collection[str],
    model: ScanModel,
    tss_offset: int,
    strands: Sequence[Strand] = ("+",),
    max_n: float = 0.25,
) -> Iterator[ModelInput]:
    """Yield one window per record and strand: that whose TSS is base `tss_offset` of the record.

    Bases of the window beyond the record are N, which `max_n` does not count.
    """
    upstream, downstream = model.tss_reach
    output = model.tss_columns["+"] if isinstance(model, LoadedChromatinModel) else 0
    for contig, sequence in read_records(fasta, contigs):
        length = len(sequence)
        for strand in strands:
            window = window_around(
                Locus(contig, tss_offset, strand, ""), upstream, downstream
            )
            start, end = max(window.start, 0), min(window.end, length)
            tss = tss_offset if tss_offset < length else None
            if start >= end:
                row = ScoredWindow(contig, 0, length, strand, OUTSIDE, tss)
                yield ModelInput("", [row], (output,))
                continue
            if strand == "+":
                text = window_at_tss(sequence, tss_offset, upstream, downstream)
            else:
                after = length - 1 - tss_offset
                reverse = reverse_complement(sequence)
                text = window_at_tss(reverse, after, upstream, downstream)
            missing = len(window) - (end - start)
            n_fraction = (text.count("N") - missing) / (end - start)
            notes = [f"{PADDED}={missing}"] if missing else []
            if n_fraction > max_n:
                notes.append(f"n_fraction={n_fraction:.4g}")
                text = ""
            row = ScoredWindow(contig, start, end, strand, ";".join(notes), tss)
            yield ModelInput(text, [row], (output,))


def bin_inputs(
    fasta: Path,
    contigs: Collection[str],
    *,
    window: int,
    bin_size: int,
    num_bins: int,
    columns: Mapping[Strand, int],
    num_tracks: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    places: Places | None = None,
) -> Iterator[ModelInput]:
    """Yield the windows whose bins are scored, in file order; the strands of a bin are adjacent.

    The model reads `window` bp, and predicts `num_tracks` in `num_bins` bins of `bin_size` bp at its center;
    `columns` has the track of each strand. Bases beyond the record are N, and always count as such. Where
    the centers of windows overlap, each scores the bins nearest to its center. The TSS of a bin is its center
    base (of an even number of bases the later one, in transcription order). A record too short to be scored
    has one row per strand, without a score.
    """
    span = num_bins * bin_size  # bp in the center of a window that are scored
    margin = (window - span) // 2
    for contig, sequence in read_records(fasta, contigs):
        length = len(sequence)
        if length < span:
            starts = [-((span - length) // 2)]
        else:
            starts = list(centered_tiles(length, span, span))
        for number, start in enumerate(starts):
            if places is not None and not places.overlaps(contig, start, start + span):
                continue
            left, right = start - margin, start - margin + window
            text = "N" * -left + sequence[max(left, 0) : right]
            text = text.ljust(window, "N")
            n_fraction = fraction_n(text)
            note = ""
            if n_fraction > max_n:
                text, note = "", f"n_fraction={n_fraction:.4g}"
                if length < span:
                    note = f"{SHORT};{note}"
                    rows = [
                        ScoredWindow(contig, 0, length, strand, note, None)
                        for strand in strands
                    ]
                    yield ModelInput("", rows, range(len(rows)))
                    continue
            rows, outputs = [], []
            for index in range(num_bins):
                begin = start + index * bin_size
                end = begin + bin_size
                # Twice the distances of the bin's center from the centers of adjacent windows.
                middle = begin + end - start - span
                if number > 0 and middle <= starts[number - 1]:
                    continue
                if number + 1 < len(starts) and middle > starts[number + 1]:
                    continue
                if begin < 0 or end > length:
                    continue
                if places is not None and not places.overlaps(contig, begin, end):
                    continue
                for strand in strands:
                    tss = tss_position(begin, end, strand, bin_size // 2)
                    rows.append(ScoredWindow(contig, begin, end, strand, note, tss))
                    outputs.append(index * num_tracks + columns[strand])
            yield ModelInput(text, rows, outputs)


def best_of_record(rows: Iterable[ScoredWindow]) -> ScoredWindow:
    """Return the first row with the highest score of a record, or its first row if none has a score.

    The note counts windows without a score.
    """
    best: ScoredWindow | None = None
    highest = -math.inf
    unscored = 0
    for row in rows:
        unscored += row.score is None
        rank = -1.0 if row.score is None else row.score
        if best is None or rank > highest:
            best, highest = row, rank
    if best is None:
        raise ValueError("a record has at least one row")
    if best.score is not None and unscored:
        note = f"not_scored={unscored}windows"
        best.note = f"{best.note};{note}" if best.note else note
    return best


def scores_by_strand(
    rows: Iterable[ScoredWindow], strands: Sequence[Strand] = BOTH_STRANDS
) -> dict[Strand, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return the TSS positions of a record's windows on each strand, ascending, and their scores.

    Windows without a TSS position are left out; a window without a score has NaN.
    """
    found = {strand: (array("q"), array("d")) for strand in strands}
    for row in rows:
        if row.tss is not None:
            positions, scores = found[row.strand]
            positions.append(row.tss)
            scores.append(np.nan if row.score is None else row.score)
    return {
        strand: (np.array(positions, np.int64), np.array(scores, np.float64))
        for strand, (positions, scores) in found.items()
    }


def signal_spans(
    contig: str,
    length: int,
    rows: Iterable[ScoredWindow],
    stride: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
    places: Places | None = None,
) -> Iterator[tuple[str, int, int, float]]:
    """Yield the signal track of a record of `length` bp as (contig, start, end, score), without overlap.

    On each strand, the span of a window extends half-way to the TSS positions of the adjacent windows, at the
    ends by half a stride. Where both strands have a span, the larger score is used. Bounds between two bases
    are rounded away from the record's center, so that its reverse complement has the mirrored signal. With
    `places`, only the signal in them.
    """
    tracks = []
    for positions, scores in scores_by_strand(rows, strands).values():
        if not len(positions):
            continue
        # Four times the bounds of spans: centers of bases are at half positions.
        centers = 2 * positions + 1
        quadruple = np.concatenate(
            [
                [2 * centers[0] - 2 * stride],
                centers[:-1] + centers[1:],
                [2 * centers[-1] + 2 * stride],
            ]
        )
        outward = np.where(quadruple <= 2 * length, quadruple // 4, -(-quadruple // 4))
        tracks.append((outward.clip(0, length), np.append(scores, np.nan)))
    if not tracks:
        return
    edges = np.unique(np.concatenate([bounds for bounds, _ in tracks]))
    signal = np.full(len(edges), np.nan)
    for bounds, scores in tracks:
        number = np.searchsorted(bounds, edges, side="right") - 1
        signal = np.fmax(signal, np.where(number >= 0, scores[number], np.nan))
    same = (signal[1:] == signal[:-1]) | (np.isnan(signal[1:]) & np.isnan(signal[:-1]))
    first = np.append(True, ~same)
    edges, signal = edges[first], signal[first]
    for start, end, score in zip(
        edges[:-1].tolist(), edges[1:].tolist(), signal[:-1].tolist(), strict=True
    ):
        if score == score:
            parts = [(start, end)]
            if places is not None:
                parts = list(places.clipped(contig, start, end))
            for left, right in parts:
                yield contig, left, right, score


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
