"""Published figures, for a column of their own: they are of other data, and none of them is measured here."""

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
NOTE = "Published figures (Zaheer et al. 2020) are of human data, whatever the genome of this run is."
