"""Published figures, for columns of their own: they are of other data, and none of them is measured here."""

from __future__ import annotations

from collections.abc import Mapping

# Zaheer et al. (2020), Table 5: bits per base of GRCh37's held-out sequence, by the row that is alike here.
BITS: Mapping[str, tuple[str, float]] = {
    "token n-gram, from the left": ("SRILM n-gram", 1.57),
    "model": ("BigBird, 4,096 tokens", 1.12),
}
# Their Table 6: F1 on human promoters of 8,000 bp, `substituted` negatives.
PROMOTERS: Mapping[str, float] = {"cnnprom": 0.697, "deepromoter": 0.956, "bigbird": 0.999}
# Their Table 7: median AUROC over DeepSEA's tracks, by group.
CHROMATIN: Mapping[str, Mapping[str, float]] = {
    "gkm-svm": {"TF": 0.896},
    "deepsea": {"TF": 0.958, "HM": 0.856, "DHS": 0.923},
    "bigbird": {"TF": 0.961, "HM": 0.887, "DHS": 0.921},
}
TABLES_NOTE = "Published figures (Zaheer et al. 2020) are of human data, whatever the genome of this run is."


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
ABLATION_NOTE = (
    "Published figures are of English text, whatever the genome of this run is: accuracy on masked tokens in "
    "percent (Zaheer et al. 2020, Table 1, 512 tokens; BERT stands for full attention), and perplexity of "
    "masked tokens on C4 (Ren et al. 2021; with axial spans, 8,192 tokens: 4.190)."
)
# Accuracy of the tasks of Long-Range Arena.
LONG_RANGE: Mapping[str, float] = {"Transformer": 0.5787, "BigBird": 0.5759, "Combiner-Fixed": 0.5834}
LONG_RANGE_SOURCE = "published (Ren et al. 2021): mean of all five tasks, not comparable with one"
