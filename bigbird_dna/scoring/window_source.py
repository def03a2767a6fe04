"""Names of properties of models, until their users are rewritten."""

from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.scoring.scan import ScanModel, scan_predictor

__all__ = ["scan_predictor", "scored_center", "tss_reach"]


def scored_center(model: LoadedChromatinModel) -> float:
    """Return the fraction of a window, around its center, whose bins are scored; 0: the central bin."""
    return model.scored_center


def tss_reach(model: ScanModel) -> tuple[int, int]:
    """Return the bp of a window before its TSS position, and from it on; bins have it in the central one."""
    return model.tss_reach
