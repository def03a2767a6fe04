"""What scans, regions and variants ask of a model."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.stored import Finish
from bigbird_dna.disk.outputs import Destination, LiveText

Predictor = Callable[[Sequence[str]], NDArray[np.float32]]
"""From N windows over A C G T N to probabilities, each a function of its sequence alone: (N,) of a promoter
model; (N, K, T) of a chromatin model, for K bins in the middle of a window and T tracks."""


def finished(predict: Predictor, finish: Finish | None) -> Predictor:
    """The same predictor, with its probabilities calibrated; None: as they are."""
    return predict if finish is None else lambda sequences: finish(predict(sequences))


def flushing(predict: Predictor, target: Destination) -> Predictor:
    """The same predictor; what was written goes out before each call, which may take long."""
    if not isinstance(target, LiveText):
        return predict

    def call(sequences: Sequence[str]) -> NDArray[np.float32]:
        target.flush()
        return predict(sequences)

    return call
