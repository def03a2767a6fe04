"""In-silico saturation mutagenesis: the change of a score by every substitution and deletion of a base.

A substitution changes the tokens around it, in ways that depend on where tokens begin. Scores are therefore
read in several views of a window, which have other tokens of the same bases: without a few bases at its ends,
with additional token boundaries, and on both strands if the model reads both. A change is the mean over
views; its token-shift noise is the standard deviation. A change that is not larger than its noise may be due
to the tokens alone.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.explanation.targets import Explainable, ExplainedWindow
from bigbird_dna.genome.sequence import UNKNOWN, base_codes, substitutions
from bigbird_dna.model.batching import View
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.promoter import view_cuts
from bigbird_dna.tokens.interface import BASES, BREAKS

OFFSETS, TOKENIZATIONS = 4, 4
SHORTEST, LONGEST = 4, 30  # bp of a seqlet
_JOINED = 2  # bp between bases of one seqlet that are themselves not certain
_CERTAIN = 2.0  # times the noise
_LARGE = 0.75  # fraction of bases with smaller contributions
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
    deletions: Floats | None = None  # (V, L, T)

    @property
    def hypothetical(self) -> Floats:
        """Contributions (V, L, 4, T) that each base would have: its change, minus the mean of all four."""
        return np.asarray(self.substitutions - self.substitutions.mean(2, keepdims=True), np.float32)

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
    model: Explainable, length: int, offsets: int = OFFSETS, tokenizations: int = TOKENIZATIONS
) -> list[View]:
    """The views of windows of `length` bp: `offsets` crop them at the ends, `tokenizations` add boundaries.

    A model that reads both strands has all of them on each strand.
    """
    settings: Any = model.settings
    chromatin = isinstance(model, LoadedChromatinModel)
    cropped = 0 if chromatin else settings.jitter
    cuts = view_cuts(offsets, min(cropped or CROPPED, length // 4)) if offsets else []
    phases = [round(BREAKS * (number + 1) / tokenizations) for number in range(tokenizations)]
    strands = (False, True) if chromatin or settings.both_strands else (False,)
    return [
        view
        for turned in strands
        for view in (*(View(turned, cut) for cut in cuts), *(View(turned, phase=phase) for phase in phases))
    ]


def saturation_mutagenesis(
    model: Explainable,
    target: ExplainedWindow,
    columns: Sequence[int],
    views: Sequence[View],
    *,
    deletions: bool = False,
    batch_size: int = 32,
    device: str = "auto",
) -> Mutations:
    """Score every substitution of the bases of a target and, if requested, every deletion of one.

    Each mutated window is read like any other. `columns` are the outputs that are kept. A deletion moves the
    bases between it and the nearer end of the window, so that the window's center stays in its place.
    """
    codes = base_codes(target.bases)
    changed = substitutions(target.window, range(target.first, target.last))
    mutants = [
        *((at - target.first, *new) for at, *new in changed),
        *(_deleted(target, codes) if deletions else ()),
    ]
    texts = [target.window, *(text for *_, text in mutants)]
    parts = [
        model.view_scores(texts[first : first + _AT_ONCE], views, batch_size=batch_size, device=device)
        for first in range(0, len(texts), _AT_ONCE)
    ]
    scores = np.concatenate(parts, axis=1)[..., list(columns)]
    changes = scores[:, 1:] - scores[:, :1]
    substituted = np.zeros((len(views), len(codes), len(BASES) + 1, len(columns)), np.float32)
    for number, (base, change, _) in enumerate(mutants):
        substituted[:, base, change] = changes[:, number]
    removed = substituted[:, :, len(BASES)] if deletions else None
    return Mutations(codes, scores[:, 0], substituted[:, :, : len(BASES)], removed)


_Mutant = tuple[int, int, str]  # the number of the base, that of the new one or 4 for none, and the window


def _deleted(target: ExplainedWindow, codes: NDArray[np.uint8]) -> Iterator[_Mutant]:
    window, (before, after) = target.window, target.sides
    for place, code in enumerate(codes.tolist()):
        if code == UNKNOWN:
            continue
        at = target.first + place
        rest = window[:at] + window[at + 1 :]
        yield place, len(BASES), before + rest if 2 * at < len(window) else rest + after


class Seqlet(NamedTuple):
    """Bases from `start` up to but excluding `end`, the sum of their contributions, and how many times larger
    than its noise the sum is."""

    start: int
    end: int
    contribution: float
    ratio: float


def find_seqlets(importance: Floats) -> list[Seqlet]:
    """Find seqlets: short runs of bases with large contributions (V, L) of one sign, such as motifs' sites.

    The contributions of a seqlet's first and last base have the seqlet's sign and are larger than twice their
    noise, and among the largest quarter; at most `_JOINED` bases in a row between such bases are not. The
    sum over the seqlet is also larger than twice its noise. Its length is from `SHORTEST` to `LONGEST` bp.
    The noise is the standard deviation over views.
    """
    mean, spread = importance.mean(0), noise(importance)
    enough = np.abs(mean) > np.maximum(_CERTAIN * spread, np.quantile(np.abs(mean), _LARGE))
    found = []
    for sign in (1, -1):
        for start, end in _runs(np.flatnonzero(enough & (np.sign(mean) == sign))):
            if SHORTEST <= end - start <= LONGEST:
                sums = importance[:, start:end].sum(1)
                total = float(sums.mean())
                ratio = abs(total) / max(float(noise(sums)), 1e-9)
                if sign * total > 0 and ratio > _CERTAIN:
                    found.append(Seqlet(start, end, total, ratio))
    return sorted(found)


def _runs(places: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Ranges of places of which no two adjacent ones have more than `_JOINED` bases between them."""
    parts = np.split(places, np.flatnonzero(np.diff(places) > _JOINED + 1) + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts if len(part)]
