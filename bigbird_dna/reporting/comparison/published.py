"""Published figures, for a column of their own: they are of other data, and none of them is measured here."""

from __future__ import annotations

from collections.abc import Mapping

# Zaheer et al. (2020), Table 5: bits per base of GRCh37's held-out sequence, by the row that is alike here.
BITS: Mapping[str, tuple[str, float]] = {
    "token n-gram, from the left": ("SRILM n-gram", 1.57),
    "model": ("BigBird, 4,096 tokens", 1.12),
}
# Their Table 6: F1 in percent on human promoters of 8,000 bp, `substituted` negatives.
PROMOTERS: Mapping[str, float] = {"cnnprom": 69.7, "deepromoter": 95.6, "bigbird": 99.9}
# Their Table 7: median AUROC in percent over DeepSEA's tracks, by group.
CHROMATIN: Mapping[str, Mapping[str, float]] = {
    "gkm-svm": {"TF": 89.6},
    "deepsea": {"TF": 95.8, "HM": 85.6, "DHS": 92.3},
    "bigbird": {"TF": 96.1, "HM": 88.7, "DHS": 92.1},
}
NOTE = "Published figures (Zaheer et al. 2020) are of human data, whatever the genome of this run is."
