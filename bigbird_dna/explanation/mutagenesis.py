"""In-silico saturation mutagenesis: the change of a score by every substitution of a base.

A substitution changes the tokens around it, in ways that depend on where tokens begin. Scores are therefore
read in several views of a window, which have other tokens of the same bases: without a few bases at its ends,
with additional token boundaries, and on both strands if the model reads both. A change is the mean over
views; its token-shift noise is the standard deviation. A change that is not larger than its noise may be due
to the tokens alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.explanation.targets import ExplainedWindow, Scored
from bigbird_dna.genome.sequence import base_codes, substitutions
from bigbird_dna.model.batching import View
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedClassifier, view_cuts
from bigbird_dna.model.start_sites import LoadedStartSiteModel
from bigbird_dna.tokens.interface import BASES, BREAKS

VIEWS = 4
CROPPED = 16  # bp that views leave out, for a model that was trained on whole windows
_AT_ONCE = 256  # windows

# Axes: V views, L explained bases, 4 bases A C G T, T outputs.
Floats = NDArray[np.float32]


class Mutations(NamedTuple):
    """Scores of the unchanged windows, and their changes by mutations of each base, in each view.

    Scores are log-odds, or the labels of a regression. A change to the same base, or of an N, is 0.
    """

    codes: NDArray[np.uint8]  # (L,) A C G T = 0 … 3, N = 4
    scores: Floats  # (V, T)
    substitutions: Floats  # (V, L, 4, T)

    @property
    def hypothetical(self) -> Floats:
        """Contributions (V, L, 4, T) that each base would have: its change, minus the mean of all four."""
        return np.asarray(
            self.substitutions - self.substitutions.mean(2, keepdims=True), np.float32
        )

    @property
    def importance(self) -> Floats:
        """Contribution (V, L, T) of each base: how much lower the mean score of all four bases is."""
        return np.asarray(-self.substitutions.mean(2), np.float32)

    @property
    def one_hot(self) -> NDArray[np.int8]:
        """The bases (L, 4); a row of zeros for N."""
        return np.asarray(self.codes[:, None] == np.arange(len(BASES)), np.int8)


def noise(values: Floats) -> Floats:
    """Standard deviation over the first axis, that of views; 0 for a single view."""
    return np.asarray(values.std(0, ddof=1 if len(values) > 1 else 0), np.float32)


def views_of(
    model: LoadedModel,
    length: int,
    offsets: int = VIEWS,
    tokenizations: int = VIEWS,
    ends: tuple[int, int] = (0, 0),
) -> list[View]:
    """The views of windows of `length` bp: `offsets` crop them at the ends, `tokenizations` add boundaries.

    A model that reads both strands has all of them on each strand. The first and last bases, `ends` bp, are
    beyond a contig: models of start sites do not read them, as in a scan.
    """
    strands: Sequence[bool] = (False, True)
    crop = CROPPED
    if isinstance(model, LoadedClassifier):
        crop = model.settings.jitter or CROPPED
        if not model.settings.both_strands:
            strands = (False,)

    crop = min(crop, length // 4)
    if isinstance(model, LoadedStartSiteModel):
        before, after = model.tss_reach  # the site must not be cropped
        crop = min(crop, before - ends[0], after - 1 - ends[1])
    else:
        ends = 0, 0

    cuts = view_cuts(offsets, crop) if offsets else []
    views = []
    for reverse in strands:
        left, right = ends[::-1] if reverse else ends
        views += [View(reverse, (left + a, right + b)) for a, b in cuts]
        for number in range(tokenizations):
            phase = round(BREAKS * (number + 1) / tokenizations)
            views.append(View(reverse, (left, right), phase))

    return views


def saturation_mutagenesis(
    model: Scored,
    target: ExplainedWindow,
    columns: Sequence[int],
    views: Sequence[View],
    *,
    batch_size: int = 32,
    device: str = "auto",
) -> Mutations:
    """Score every substitution of the bases of a target; each mutated window is read like any other.

    `columns` are the outputs that are returned.
    """
    mutants = list(substitutions(target.window, range(target.first, target.last)))
    texts = [target.window, *(text for *_, text in mutants)]
    batches = [
        model.view_scores(
            texts[first : first + _AT_ONCE],
            views,
            batch_size=batch_size,
            device=device,
        )
        for first in range(0, len(texts), _AT_ONCE)
    ]
    scores = np.concatenate(batches, axis=1)[..., list(columns)]  # (V, N, T)
    shape = (len(views), len(target.bases), len(BASES), len(columns))
    changes = np.zeros(shape, np.float32)
    for number, (position, base, _) in enumerate(mutants, 1):
        changes[:, position - target.first, base] = scores[:, number] - scores[:, 0]

    return Mutations(base_codes(target.bases), scores[:, 0], changes)
