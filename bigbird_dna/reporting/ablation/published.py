"""Published figures, for columns of their own: they are of English text, none of them is measured here."""

from __future__ import annotations

from collections.abc import Mapping

BUILDING_BLOCKS: Mapping[str, str] = {
    "full": "BERT",
    "random": "R",
    "window": "W",
    "random_window": "R + W",
    "bigbird": "",
}
"""What Table 1 of Zaheer et al. (2020) is made of, as it calls them; it has no row of all three kinds."""
# That table: accuracy on masked tokens of text, %, at 512 tokens.
MASKED_ACCURACY: Mapping[str, float] = {"full": 64.2, "random": 60.1, "window": 58.3, "random_window": 62.7}
# Ren et al. (2021): perplexity of masked tokens on C4, by tokens of an input.
PERPLEXITY: Mapping[str, Mapping[int, float]] = {
    "full": {2048: 4.552},
    "bigbird": {2048: 4.696, 8192: 4.542},
    "combiner_fixed": {8192: 4.139},
}
PUBLISHED = {*BUILDING_BLOCKS, *MASKED_ACCURACY, *PERPLEXITY}
NOTE = (
    "Published figures are of English text, whatever the genome of this run is: accuracy on masked tokens in "
    "percent (Zaheer et al. 2020, Table 1, 512 tokens; BERT stands for full attention), and perplexity of "
    "masked tokens on C4 (Ren et al. 2021; with axial spans, 8,192 tokens: 4.190)."
)
