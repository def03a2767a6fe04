"""Which bins a chromatin model learns from: all of the training's, or a share of them for learning curves."""

import numpy as np
import numpy.typing as npt

from bigbird_dna.config import ChromatinTrainingConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.chromatin.dataset import ChromatinData
from bigbird_dna.tasks.examples import LEAST_EXAMPLES, draw_groups


def training_bins(data: ChromatinData, training: ChromatinTrainingConfig) -> npt.NDArray[np.intp]:
    """The numbers of the bins (n,) in the share `examples` of the training bins, drawn by its seed alone.

    Bins are drawn in stretches of as many places side by side on the genome as a training window is learnt
    from (`neighbours`): of bins drawn one by one, a window of a small share would hold little to learn from,
    and a peak's two halves would count as two examples.

    Raises
    ------
    ConfigError
        No track has five bins with and five without it among those that are left.
    """
    rows, share = data.rows("train"), training.examples
    if share >= 1:
        return rows
    codes = data.bins["contig"].cat.codes.to_numpy().astype(np.int64)[rows]
    stretches = data.bins["start"].to_numpy()[rows] // (data.bin_size * training.neighbours)
    groups = codes * (int(stretches.max()) + 1) + stretches
    kept = rows[draw_groups(groups, share, (training.seed, 6))]
    positives = data.labels.positives(kept)
    poor = np.minimum(positives, len(kept) - positives) < LEAST_EXAMPLES
    if poor.all():
        raise ConfigError(
            f"chromatin.training.examples: a share of {share:g} of {len(rows):,} training bins leaves "
            f"{len(kept):,}, and no track with at least {LEAST_EXAMPLES} bins of each class"
        )
    if poor.any():
        log(
            f"warning: {int(poor.sum()):,} of {len(poor):,} tracks have fewer than {LEAST_EXAMPLES} bins of "
            f"a class among the {len(kept):,} training bins that are kept"
        )
    return kept
