"""The windows of a scan and their scores, from a promoter model or from a chromatin model of start sites.

A promoter model scores one position per window: each base is read again in every window that contains it. A
chromatin model with the tracks `TSS_TRACKS` scores all bins in the center of a window at once, on both
strands; the bin of a score has the place of a promoter model's window, with the TSS at its center base.
With `tss_offset`, one window is scored per record, around the base that is the record's TSS.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bigbird_dna.config.start_sites import CENTER
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.chromatin.tracks import TSS_TRACKS
from bigbird_dna.model.batching import centered_bins
from bigbird_dna.model.chromatin import LoadedChromatinModel, Predictor
from bigbird_dna.model.directory import load, load_promoter_model
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring.scan import (
    ScoredWindow,
    count_records,
    count_windows,
    scan_aligned,
    scan_bins,
    scan_promoters,
)
from bigbird_dna.scoring.scorer import calibrated_predictor

ScannedModel = LoadedPromoterModel | LoadedChromatinModel

STRIDE = 10  # bp between the windows of a promoter model


@dataclass(frozen=True)
class WindowSource:
    """The scores of a scan: one per strand of a promoter model's window, or of a bin."""

    read: int  # bp that the model reads for a score
    step: int  # distance of scores, bp
    together: int  # number of scores per window and strand
    scan: Callable[
        ..., Iterator[ScoredWindow]
    ]  # `scan_promoters`, `scan_aligned` or `scan_bins`
    count: Callable[
        ..., int
    ]  # of windows per strand, of contigs (bp by name) and places


def load_scanned_model(given: LoadedModel | Path | str) -> ScannedModel:
    """Load, or return, a promoter model or a chromatin model of start sites; `ModelError` for any other."""
    model = given if isinstance(given, LoadedModel) else load(given)
    if isinstance(model, LoadedChromatinModel):
        names = {track.name for track in model.tracks}
        if names.issuperset(TSS_TRACKS.values()):
            return model
    return load_promoter_model(model)


def scan_predictor(
    model: ScannedModel,
    calibrated: bool,
    prior: float | None = None,
    stride: int | None = None,
    tss_offset: int | None = None,
    pad: bool = False,
    **computing: Any,
) -> Predictor:
    """Return the predictor of a scan's windows; `UsageError` if an option is not for this kind of model."""
    if isinstance(model, LoadedPromoterModel):
        return calibrated_predictor(model, calibrated, prior, **computing)
    given = {"stride": stride, "prior": prior, "pad": pad or None}
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                f"{name} {value}: {model.name} scores bins of {model.settings.bin} bp"
            )
    if tss_offset is None:
        return calibrated_predictor(
            model, calibrated, center_fraction=scored_center(model), **computing
        )
    predict, track = (
        calibrated_predictor(model, calibrated, **computing),
        model.tss_columns["+"],
    )
    return lambda windows: predict(windows)[:, 0, track]


def window_source(
    model: ScannedModel,
    stride: int | None = None,
    *,
    tss_offset: int | None = None,
    pad: bool = False,
    beyond_is_n: bool = False,
) -> WindowSource:
    """Return the windows of a scan; `stride` is that of a promoter model's windows in bp, None: `STRIDE`.

    `tss_offset` is as in `scan_aligned`, `pad` and `beyond_is_n` as in `scan_promoters`.
    """
    if tss_offset is not None:
        upstream, downstream = tss_reach(model)
        aligned = partial(
            scan_aligned,
            tss_offset=tss_offset,
            upstream=upstream,
            downstream=downstream,
        )
        return WindowSource(
            model.settings.window, int(stride or STRIDE), 1, aligned, count_records
        )
    if isinstance(model, LoadedPromoterModel):
        own, step = model.settings, int(stride or STRIDE)
        sizes: dict[str, Any] = {"window": own.window, "stride": step}
        scan = partial(
            scan_promoters,
            **sizes,
            upstream=own.upstream,
            pad=pad,
            beyond_is_n=beyond_is_n,
        )
        return WindowSource(own.window, step, 1, scan, partial(count_windows, **sizes))
    size, read = model.settings.bin, model.settings.window
    span = size * model.bins_together(scored_center(model))
    sizes = {"window": span, "stride": span}
    scan = partial(
        scan_bins,
        **sizes,
        size=size,
        margin=(read - span) // 2,
        columns=model.tss_columns,
    )
    return WindowSource(read, size, span // size, scan, partial(count_windows, **sizes))


def tss_reach(model: ScannedModel) -> tuple[int, int]:
    """Return the bp of a window before its TSS position, and from it on; bins have it in the central one."""
    if isinstance(model, LoadedPromoterModel):
        return model.settings.upstream, model.settings.downstream
    window, size = model.settings.window, model.settings.bin
    before = int(centered_bins(window, size, 1)[0]) + size // 2
    return before, window - before


def scored_center(model: LoadedChromatinModel) -> float:
    """Return the fraction of a window, around its center, whose bins are scored; 0: the central bin."""
    return CENTER if model.settings.pooling == "bin" else 0.0
