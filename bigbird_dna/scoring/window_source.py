"""The windows of a scan and their scores, from a promoter model or from a chromatin model of start sites.

A promoter model scores one position per window: each base is read again in every window that contains it. A
chromatin model with the tracks `TSS_TRACKS` scores all bins in the center of a window at once, on both
strands; the bin of a score has the place of a promoter model's window, with the TSS at its center base.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bigbird_dna.errors import UsageError
from bigbird_dna.genome.chromatin.tracks import TSS_TRACKS
from bigbird_dna.genome.intervals import Places
from bigbird_dna.model.chromatin import LoadedChromatinModel, Predictor
from bigbird_dna.model.directory import load, load_promoter_model
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring.scan import ScoredWindow, count_windows, scan_bins, scan_promoters
from bigbird_dna.scoring.scorer import calibrated_predictor

ScannedModel = LoadedPromoterModel | LoadedChromatinModel

STRIDE = 10  # bp between the windows of a promoter model
CENTER = 0.9  # fraction of a window whose bins are scored; the others have little context on one side


@dataclass(frozen=True)
class WindowSource:
    """The scores of a scan: one per strand of a promoter model's window, or of a bin."""

    read: int  # bp that the model reads for a score
    window: int  # of one prediction, bp; promoter model: `read`; chromatin model: the bins in its center
    stride: int  # of these windows, bp
    upstream: int  # bp before the TSS in the window or bin of a score
    downstream: int
    step: int  # distance of scores, bp
    scan: Callable[..., Iterator[ScoredWindow]]  # `scan_promoters`, or `scan_bins` of the model

    def count(self, contigs: Mapping[str, int], places: Places | None = None) -> int:
        """Return the number of windows per strand."""
        return count_windows(contigs, window=self.window, stride=self.stride, places=places)


def load_scanned_model(given: LoadedModel | Path | str) -> ScannedModel:
    """Load, or return, a promoter model or a chromatin model of start sites; `ModelError` for any other."""
    model = given if isinstance(given, LoadedModel) else load(given)
    if isinstance(model, LoadedChromatinModel):
        names = {track.name for track in model.tracks}
        if names.issuperset(TSS_TRACKS.values()):
            return model
    return load_promoter_model(model)


def scan_predictor(
    model: ScannedModel, calibrated: bool, prior: float | None, stride: int | None, **computing: Any
) -> Predictor:
    """Return the predictor of a scan's windows; `UsageError` if an option is not for this kind of model."""
    if isinstance(model, LoadedPromoterModel):
        return calibrated_predictor(model, calibrated, prior, **computing)
    for name, value in (("stride", stride), ("prior", prior)):
        if value is not None:
            raise UsageError(f"{name} {value}: {model.name} scores bins of {model.settings.bin} bp")
    return calibrated_predictor(model, calibrated, center_fraction=_center(model), **computing)


def window_source(model: ScannedModel, stride: int | None = None) -> WindowSource:
    """Return the windows of a scan; `stride` is that of a promoter model's windows in bp, None: `STRIDE`."""
    if isinstance(model, LoadedPromoterModel):
        own, step = model.settings, int(stride or STRIDE)
        return WindowSource(own.window, own.window, step, own.upstream, own.downstream, step, scan_promoters)
    size, read = model.settings.bin, model.settings.window
    span = size * model.bins_together(_center(model))
    names = [track.name for track in model.tracks]
    columns = {strand: names.index(name) for strand, name in TSS_TRACKS.items()}
    scan = partial(scan_bins, size=size, margin=(read - span) // 2, columns=columns)
    return WindowSource(read, span, span, size // 2, size - size // 2, size, scan)


def _center(model: LoadedChromatinModel) -> float:
    return CENTER if model.settings.pooling == "bin" else 0.0
