"""In-silico saturation mutagenesis: the change of a score by every substitution and deletion of a base.

A substitution changes the tokens around it, in ways that depend on where tokens begin. Scores are therefore
read in several views of a window, which have other tokens of the same bases: without a few bases at its ends,
with additional token boundaries, and on both strands if the model reads both. A change is the mean over
views; its token-shift noise is the standard deviation. A change that is not larger than its noise may be due
to the tokens alone.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.explanation.targets import ExplainedWindow, Scored
from bigbird_dna.genome.sequence import base_codes, reverse_complement, substitutions
from bigbird_dna.model.batching import View
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedClassifier, view_cuts
from bigbird_dna.scoring.masked_likelihood import (
    MaskedHaplotype,
    mask_difference,
    masked_log_likelihoods,
)
from bigbird_dna.tokens.interface import BASES, BREAKS

OFFSETS, TOKENIZATIONS = 4, 4
OF_START_SITES = 1, 1  # for models of start sites, whose windows are long
MOST_VIEWS = 32
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


def view_counts(
    model: LoadedModel, offsets: int | None, tokenizations: int | None
) -> tuple[int, int]:
    """The numbers of offsets and of tokenizations, None: those of the kind of model."""
    of_sites = isinstance(model, LoadedChromatinModel) and model.predicts_tss
    usual = OF_START_SITES if of_sites else (OFFSETS, TOKENIZATIONS)
    found = (
        usual[0] if offsets is None else offsets,
        usual[1] if tokenizations is None else tokenizations,
    )
    check_views(*found)
    return found


def check_views(offsets: int | None, tokenizations: int | None) -> None:
    """`UsageError` if the numbers of views are out of range."""
    offsets, tokenizations = (
        1 if offsets is None else offsets,
        1 if tokenizations is None else tokenizations,
    )
    if (
        min(offsets, tokenizations) < 0
        or not 1 <= offsets + tokenizations <= MOST_VIEWS
    ):
        raise UsageError(
            f"offsets {offsets} and tokenizations {tokenizations}: their sum must be from 1 to {MOST_VIEWS}"
        )


def views_of(
    model: LoadedModel,
    length: int,
    offsets: int = OFFSETS,
    tokenizations: int = TOKENIZATIONS,
) -> list[View]:
    """The views of windows of `length` bp: `offsets` crop them at the ends, `tokenizations` add boundaries.

    A model that reads both strands has all of them on each strand.
    """
    one_way = isinstance(model, LoadedClassifier) and not model.settings.both_strands
    cropped = model.settings.jitter if isinstance(model, LoadedClassifier) else 0
    cuts = view_cuts(offsets, min(cropped or CROPPED, length // 4)) if offsets else []
    phases = [
        round(BREAKS * (number + 1) / tokenizations) for number in range(tokenizations)
    ]
    strands = (False,) if one_way else (False, True)
    return [
        view
        for turned in strands
        for view in (
            *(View(turned, cut) for cut in cuts),
            *(View(turned, phase=phase) for phase in phases),
        )
    ]


def saturation_mutagenesis(
    model: Scored,
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
    mutants = [*_substituted(target), *(_deleted(target) if deletions else ())]
    texts = [target.window, *(text for *_, text in mutants)]
    scores = window_scores(
        model, texts, columns, views, batch_size=batch_size, device=device
    )
    changes = scores[:, 1:] - scores[:, :1]
    found = _by_base(target, mutants, changes)
    removed = found[:, :, len(BASES)] if deletions else None
    return Mutations(
        base_codes(target.bases), scores[:, 0], found[:, :, : len(BASES)], removed
    )


def window_scores(
    model: Scored,
    windows: Sequence[str],
    columns: Sequence[int],
    views: Sequence[View],
    *,
    batch_size: int = 32,
    device: str = "auto",
) -> Floats:
    """Scores (V, N, T) of windows in each view, some hundred windows at a time; `columns` are the outputs."""
    parts = [
        model.view_scores(
            windows[first : first + _AT_ONCE],
            views,
            batch_size=batch_size,
            device=device,
        )
        for first in range(0, len(windows), _AT_ONCE)
    ]
    return np.concatenate(parts, axis=1)[..., list(columns)]


_Mutant = tuple[
    int, int, str
]  # the place in the window, the number of the new base or 4 for none, the window


def _by_base(
    target: ExplainedWindow, mutants: Sequence[_Mutant], changes: Floats
) -> Floats:
    """Changes (V, L, 5, T) of each base of a target, from those of mutants (V, N, T)."""
    found = np.zeros(
        (len(changes), len(target.bases), len(BASES) + 1, changes.shape[2]), np.float32
    )
    for number, (at, other, _) in enumerate(mutants):
        found[:, at - target.first, other] = changes[:, number]
    return found


def _substituted(target: ExplainedWindow) -> Iterator[_Mutant]:
    return substitutions(target.window, range(target.first, target.last))


def _deleted(target: ExplainedWindow) -> Iterator[_Mutant]:
    window, (before, after) = target.window, target.sides
    for at in range(target.first, target.last):
        if window[at] in BASES:
            rest = window[:at] + window[at + 1 :]
            yield (
                at,
                len(BASES),
                before + rest if 2 * at < len(window) else rest + after,
            )


def likelihood_mutations(
    model: LoadedModel,
    target: ExplainedWindow,
    views: Sequence[View],
    *,
    batch_size: int = 32,
    device: str = "auto",
) -> Mutations:
    """The change of the log-likelihood by every substitution, under a pretrained masked-token model.

    As in `score-variants`: in each view, the tokens that differ are masked together, and a change is the
    difference of their log-probabilities. The unchanged window has the score 0. `ModelError` if more tokens
    differ than the model reads.
    """
    mutants, inputs = list(_substituted(target)), list[MaskedHaplotype]()
    for turned, (left, right), phase in views:
        for *_, text in mutants:
            texts = [one[left : len(one) - right] for one in (target.window, text)]
            if turned:
                texts = [reverse_complement(one) for one in texts]
            room = model.config.max_length - 2
            pair = mask_difference(model.tokenizer, texts[0], texts[1], room, phase)
            if pair is None:
                raise ModelError(
                    f"{model.name}: a substitution changes more tokens than the model reads"
                )
            inputs += pair
    values = masked_log_likelihoods(model, inputs, batch_size=batch_size, device=device)
    before, after = values.reshape(len(views), len(mutants), 2, 1).transpose(2, 0, 1, 3)
    found = _by_base(target, mutants, after - before)[:, :, : len(BASES)]
    return Mutations(
        base_codes(target.bases), np.zeros((len(views), 1), np.float32), found
    )


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
    enough = np.abs(mean) > np.maximum(
        _CERTAIN * spread, np.quantile(np.abs(mean), _LARGE)
    )
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
