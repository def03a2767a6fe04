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

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar
from bigbird_dna.genome.chromatin.track import TSS_TRACKS
from bigbird_dna.genome.fasta import read_records
from bigbird_dna.genome.intervals import Places
from bigbird_dna.genome.sequence import (
    Strand,
    centered_tiles,
    fraction_n,
    reverse_complement,
    tss_position,
)
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load, load_promoter_model
from bigbird_dna.model.model import LoadedModel, Predictor, window_predictor
from bigbird_dna.model.promoter import LoadedPromoterModel

BOTH_STRANDS: tuple[Strand, ...] = ("+", "-")
STRIDE = 10
"""Distance of a promoter model's windows in bp, if none is given."""

WINDOWS_AT_ONCE, DENSE_WINDOWS_AT_ONCE = 512, 64

ScanModel = LoadedPromoterModel | LoadedChromatinModel


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
    is a probability, or None if the window was not scored. `note` is "" or the reason why it was not scored:
    `short` (the record is shorter than the window), `n_fraction=F`, or both, joined by ";". `tss` is the
    position that the score is about, 0-based; None if the record is shorter.
    """

    contig: str
    start: int
    end: int
    strand: Strand
    note: str
    tss: int | None
    score: float | None = None


class ModelInput(NamedTuple):
    """A sequence that the model reads at once, and the windows or bins that get their scores from it.

    `text` is "" if nothing is read, and nothing is scored. `outputs` are the indices of the scores, one per
    row, in the flattened predictions for the sequence.
    """

    text: str
    rows: list[ScoredWindow]
    outputs: Sequence[int] = (0,)


def scan_records(
    fasta: Path,
    contigs: Collection[str],
    model: ScanModel,
    *,
    stride: int | None = None,
    strands: Sequence[Strand] = BOTH_STRANDS,
    max_n: float = 0.25,
    places: Places | None = None,
    calibrated: bool = False,
    batch_size: int = 32,
    device: str = "auto",
) -> Iterator[list[ScoredWindow]]:
    """Yield the scores of all windows, or bins, of the records `contigs` in batches, in file order.

    The strands of a window are adjacent. `stride` is for promoter models; None: `STRIDE`. If `places` is
    given, only windows that overlap them are scored. Other arguments are those of `score_promoters`.
    `DataError` if the file cannot be read.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "device": device}
    if isinstance(model, LoadedPromoterModel):
        inputs = window_inputs(
            fasta,
            contigs,
            *(model.settings.upstream, model.settings.downstream),
            stride or STRIDE,
            strands,
            max_n,
            places,
        )
        return score_inputs(
            inputs, window_predictor(model, calibrated, **options), WINDOWS_AT_ONCE
        )

    options["center_fraction"] = model.scored_center
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
    return score_inputs(
        inputs, window_predictor(model, calibrated, **options), DENSE_WINDOWS_AT_ONCE
    )


def count_scores(
    lengths: Iterable[int], model: ScanModel, stride: int | None = None
) -> int:
    """Return about how many scores each strand has in a scan of whole records of these lengths."""
    size = step = model.settings.bin if isinstance(model, LoadedChromatinModel) else 0
    if isinstance(model, LoadedPromoterModel):
        size, step = model.settings.window, stride or STRIDE
    return sum(max(1, (length - size) // step + 1) for length in lengths)


def each_row(
    batches: Iterable[list[ScoredWindow]], bar: ProgressBar
) -> Iterator[ScoredWindow]:
    """Yield the rows of batches, and advance the bar by each batch."""
    for batch in batches:
        bar.advance(len(batch))
        yield from batch


def score_inputs(
    inputs: Iterator[ModelInput], predict: Predictor, size: int
) -> Iterator[list[ScoredWindow]]:
    """Predict inputs in batches of `size`, and yield their scored rows."""
    while batch := list(islice(inputs, size)):
        read = [item for item in batch if item.text]
        if read:
            predictions = predict([item.text for item in read])
            values = predictions.reshape(len(read), -1).tolist()
            for item, scores in zip(read, values, strict=True):
                for row, output in zip(item.rows, item.outputs, strict=True):
                    row.score = scores[output]
        yield [row for item in batch for row in item.rows]


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
        length = len(sequence)
        for start in centered_tiles(length, window, stride):
            first, end = max(start, 0), min(start + window, length)
            if places is not None and not places.overlaps(contig, first, end):
                continue

            text = sequence[first:end]
            note = "short" if length < window else _n_note(text, max_n)
            for strand in strands:
                tss = tss_position(first, end, strand, upstream)
                is_short = length < window
                row = ScoredWindow(
                    contig, first, end, strand, note, None if is_short else tss
                )
                if note:
                    yield ModelInput("", [row])
                elif strand == "+":
                    yield ModelInput(text, [row])
                else:
                    yield ModelInput(reverse_complement(text), [row])


def _n_note(text: str, max_n: float) -> str:
    """Return the note of a window with too large a fraction of N; "" for other windows."""
    n_fraction = fraction_n(text)
    return f"n_fraction={n_fraction:.4g}" if n_fraction > max_n else ""


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
            note = _n_note(text, max_n)
            if note:
                text = ""
                if length < span:
                    note = f"short;{note}"
                    rows = [
                        ScoredWindow(contig, 0, length, strand, note, None)
                        for strand in strands
                    ]
                    yield ModelInput("", rows)
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
    unscored = 0

    def rank(row: ScoredWindow) -> float:
        nonlocal unscored
        unscored += row.score is None
        return -1.0 if row.score is None else row.score

    best = max(rows, key=rank)
    if best.score is not None and unscored:
        best.note = f"not_scored={unscored}windows"

    return best


def scores_by_strand(
    rows: Iterable[ScoredWindow], strands: Sequence[Strand] = BOTH_STRANDS
) -> dict[Strand, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return the TSS positions of a record's windows on each strand, ascending, and their scores.

    Windows without a TSS position are left out; a window without a score has NaN.
    """
    positions = {strand: array("q") for strand in strands}
    scores = {strand: array("d") for strand in strands}
    for row in rows:
        if row.tss is not None:
            positions[row.strand].append(row.tss)
            scores[row.strand].append(np.nan if row.score is None else row.score)

    return {
        strand: (np.array(positions[strand], np.int64), np.array(scores[strand]))
        for strand in strands
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
        if score != score:
            continue

        if places is None:
            yield contig, start, end, score
            continue

        for left, right in places.clipped(contig, start, end):
            yield contig, left, right, score
