"""Windows along the records of a FASTA file, their scores, and the signal track that the scores make.

A record is tiled symmetrically with windows of the model's size, so that the reverse complement of a record
is cut into the same windows. Memory holds one record and one batch of windows.

A promoter model scores a window for a TSS at a fixed position: `upstream` bp from the start of the window, in
the direction of transcription. The score belongs to that position, not to the center of the window. With the
paper's 5,000 + 3,000 bp, the position is 1 kb right of the center on "+" and 1 kb left of it on "-". Each
score therefore carries its position, and nothing that uses it has to know the window.

A model of start sites has a score at every base. Its windows and rows are counted from the record's start, so
that a reverse complement is cut into others. A row is the highest score of a strand in an interval of `stride`
bp; its position is that of this score.
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
from bigbird_dna.genome.fasta import read_records
from bigbird_dna.genome.intervals import Places
from bigbird_dna.genome.sequence import (
    STRANDS,
    Strand,
    centered_tiles,
    fraction_n,
    reverse_complement,
    tss_position,
)
from bigbird_dna.model.directory import load, load_promoter_model
from bigbird_dna.model.model import LoadedModel, Predictor, window_predictor
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.start_sites import (
    SHORTEST,
    LoadedStartSiteModel,
    SiteWindow,
)
from bigbird_dna.model.start_sites import WINDOWS_AT_ONCE as DENSE_AT_ONCE

STRAND_ROWS: Mapping[Strand, int] = {"+": 0, "-": 1}
STRIDE = 10
"""Distance of a promoter model's windows in bp, if none is given."""

WINDOWS_AT_ONCE = 512

ScanModel = LoadedPromoterModel | LoadedStartSiteModel


def load_scan_model(model: LoadedModel | Path | str) -> ScanModel:
    """Load, or return, a model of start sites or of promoter windows; `ModelError` for any other."""
    loaded = model if isinstance(model, LoadedModel) else load(model)
    if isinstance(loaded, LoadedStartSiteModel):
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
    """The text of a window, in transcription order, and its row; "" if it is not scored."""

    text: str
    row: ScoredWindow


def scan_records(
    fasta: Path,
    contigs: Collection[str],
    model: ScanModel,
    *,
    stride: int | None = None,
    strands: Sequence[Strand] = STRANDS,
    max_n: float = 0.25,
    places: Places | None = None,
    calibrated: bool = False,
    batch_size: int = 32,
    device: str = "auto",
) -> Iterator[list[ScoredWindow]]:
    """Yield the scores of the records `contigs` in batches, in file order.

    The strands of a window are adjacent. None as `stride`: `STRIDE`. If `places` is
    given, only windows that overlap them are scored. Other arguments are those of `score_promoters`.
    `DataError` if the file cannot be read.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "device": device}
    if isinstance(model, LoadedStartSiteModel):
        records = read_records(fasta, contigs)
        step = stride or STRIDE
        return scan_bases(records, model, step, strands, max_n, places, **options)

    sides = model.settings.upstream, model.settings.downstream
    step = stride or STRIDE
    inputs = window_inputs(fasta, contigs, *sides, step, strands, max_n, places)
    predict = window_predictor(model, calibrated, **options)
    return score_inputs(inputs, predict, WINDOWS_AT_ONCE)


def count_scores(
    lengths: Iterable[int], model: ScanModel, stride: int | None = None
) -> int:
    """Return about how many scores each strand has in a scan of whole records of these lengths."""
    step = stride or STRIDE
    size = model.settings.window if isinstance(model, LoadedPromoterModel) else step
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
    """Predict windows in batches of `size`, and yield their scored rows."""
    while batch := list(islice(inputs, size)):
        read = [item for item in batch if item.text]
        if read:
            predictions = predict([item.text for item in read])
            for item, score in zip(read, predictions.tolist(), strict=True):
                item.row.score = score

        yield [item.row for item in batch]


def window_inputs(
    fasta: Path,
    contigs: Collection[str],
    upstream: int,
    downstream: int,
    stride: int,
    strands: Sequence[Strand] = STRANDS,
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
                    yield ModelInput("", row)
                elif strand == "+":
                    yield ModelInput(text, row)
                else:
                    yield ModelInput(reverse_complement(text), row)


def _n_note(text: str, max_n: float) -> str:
    """Return the note of a window with too large a fraction of N; "" for other windows."""
    n_fraction = fraction_n(text)
    return f"n_fraction={n_fraction:.4g}" if n_fraction > max_n else ""


def selected_records(
    lengths: Mapping[str, int], places: Places | None
) -> Mapping[str, int]:
    """Return the lengths of the records on these contigs or regions; None: of all."""
    if places is None:
        return lengths
    return {name: length for name, length in lengths.items() if places.on(name)}


def scan_bases(
    records: Iterable[tuple[str, str]],
    model: LoadedStartSiteModel,
    stride: int,
    strands: Sequence[Strand],
    max_n: float,
    places: Places | None,
    **options: Any,
) -> Iterator[list[ScoredWindow]]:
    """Yield the rows of records by a model of start sites, a batch of windows at a time, see `scan_records`.

    Rows of windows with a larger fraction of N than `max_n` have no score.
    """

    def windows() -> Iterator[tuple[str, SiteWindow | None, int]]:
        for contig, text in records:
            if len(text) < SHORTEST:
                yield contig, None, len(text)
            for window in model.windows([text], stride):
                size = window.scored.stop - window.scored.start
                if places is None or places.overlaps(
                    contig, window.start, window.start + size
                ):
                    yield contig, window, len(text)

    every = windows()
    while batch := list(islice(every, DENSE_AT_ONCE)):
        notes = ["" if w is None else _n_note(w.text, max_n) for _, w, _ in batch]
        read = [
            w for (_, w, _), note in zip(batch, notes, strict=True) if w and not note
        ]
        texts = [window.text for window in read]
        values = iter(model.window_probabilities(texts, **options))
        rows = []
        for (contig, window, length), note in zip(batch, notes, strict=True):
            if window is None:
                rows += [
                    ScoredWindow(contig, 0, length, strand, "short", None)
                    for strand in strands
                ]
                continue

            size = window.scored.stop - window.scored.start
            starts = np.arange(0, size, stride)
            scores = np.full((2, len(starts)), np.nan, np.float32)
            offsets = np.zeros((2, len(starts)), np.int64)
            if not note:
                probs = next(values)[:, window.scored]
                filled = np.pad(
                    probs, ((0, 0), (0, -size % stride)), constant_values=-1
                )
                steps = filled.reshape(2, -1, stride)
                scores, offsets = steps.max(2), steps.argmax(2)

            for number, start in enumerate(starts.tolist()):
                begin, end = (
                    window.start + start,
                    window.start + min(start + stride, size),
                )
                if places is not None and not places.overlaps(contig, begin, end):
                    continue

                for strand in strands:
                    row = STRAND_ROWS[strand]
                    score = None if note else float(scores[row, number])
                    tss = begin + int(offsets[row, number])
                    rows.append(
                        ScoredWindow(contig, begin, end, strand, note, tss, score)
                    )

        yield rows


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
    rows: Iterable[ScoredWindow], strands: Sequence[Strand] = STRANDS
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
    strands: Sequence[Strand] = STRANDS,
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
