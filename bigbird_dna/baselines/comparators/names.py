"""The names of the comparators, and what each is; nothing heavy is imported here."""

from bigbird_dna.errors import UsageError

KMERS, GC, GKM, MOTIFS = "k-mers", "gc", "gkm-svm", "motifs"
NETWORK_NAMES = ("cnnprom", "deepromoter", "deepsea", "danq", "residual-cnn")
NAMES = (*NETWORK_NAMES, KMERS, GC, GKM, MOTIFS)
TAXA = ("vertebrates", "plants", "insects", "nematodes", "fungi", "urochordates")
"""Of JASPAR's matrices."""


def check_name(name: str) -> None:
    """`UsageError` where no comparator has this name."""
    if name not in NAMES:
        raise UsageError(f"{name!r} is not a comparator: choose {', '.join(NAMES)}")
