"""The true grammar as a scorer: what a perfect model of the demo's promoters would know.

`grammar_scores` is the log likelihood ratio of "a promoter has its TSS here" against background
sequence, from the weights, distances and frequencies that the promoters were drawn with. It bounds what
training can reach.
"""

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.simulate.motifs import COMPLEMENT, CORE, Codes, Motif, Parameters, weights
from bigbird_dna.simulate.promoters import OFFSETS, PRESENCE, jitter

Scores = NDArray[np.float32]

_BACKGROUND = np.array([0.28, 0.22, 0.22, 0.28])


def grammar_scores(codes: Codes, parameters: Parameters, reverse: bool = False) -> Scores:
    """(length,) scores in bits of every position as the TSS of a promoter on the strand asked for.

    Elements that would leave the sequence count as absent.
    """
    if reverse:
        return grammar_scores(COMPLEMENT[codes[::-1]], parameters)[::-1]
    ratios = [
        _placed(_ratios(codes, motif, parameters), int(offset), int(spread))
        for motif, offset, spread in zip(CORE, OFFSETS, jitter(parameters), strict=True)
    ]
    classes = (parameters.tata_fraction, 1 - parameters.tata_fraction)
    total = np.zeros(len(codes))
    for share, presence in zip(classes, PRESENCE.values(), strict=True):
        product = np.full(len(codes), share)
        for chance, ratio in zip(presence, ratios, strict=True):
            product *= 1 - chance + chance * ratio
        total += product
    return np.log2(np.maximum(total, 1e-30)).astype(np.float32)


def _ratios(codes: Codes, motif: Motif, parameters: Parameters) -> NDArray[np.float64]:
    """(length,) likelihood ratio of the motif starting at each position; 0 at N and where it doesn't fit."""
    table = np.zeros((motif.width, 5))
    table[:, :4] = weights(motif, parameters) / _BACKGROUND
    ratio = np.zeros(len(codes))
    starts = len(codes) - motif.width + 1
    if starts > 0:
        ratio[:starts] = 1.0
        for column in range(motif.width):
            ratio[:starts] *= table[column][codes[column : column + starts]]
    return ratio


def _placed(ratio: NDArray[np.float64], offset: int, spread: int) -> NDArray[np.float64]:
    """(length,) mean of `ratio` over the starts that the grammar allows for a TSS at each position."""
    reach = abs(offset) + spread
    padded = np.pad(ratio, reach)
    total = np.zeros(len(ratio))
    for shift in range(offset - spread, offset + spread + 1):
        total += padded[reach + shift : reach + shift + len(ratio)]
    mean: NDArray[np.float64] = total / (2 * spread + 1)
    return mean
