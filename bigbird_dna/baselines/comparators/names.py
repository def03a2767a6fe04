"""The names of the comparators, and what each is; nothing heavy is imported here."""

from typing import get_args

from bigbird_dna.config.tables import (
    NetworkComparator,
    PromoterComparator,
    TableStart,
    Taxon,
    TrackComparator,
)
from bigbird_dna.errors import UsageError

KMERS, POSITION, GC, GKM, MOTIFS, NEAREST = "k-mers", "position", "gc", "gkm-svm", "motifs", "nearest"
NETWORK_NAMES: tuple[str, ...] = get_args(NetworkComparator)
PROBE = "probe"
"""A regression on what a frozen language model makes of a window; the tables name it by its model."""
NAMES: tuple[str, ...] = (*dict.fromkeys((*get_args(PromoterComparator), *get_args(TrackComparator))), PROBE)
PRETRAINED, WEIGHTS = "pretrained", get_args(TableStart)
"""Of the language model that a probe reads."""
TAXA: tuple[str, ...] = get_args(Taxon)
"""Of JASPAR's matrices."""


def check_name(name: str) -> None:
    """`UsageError` where no comparator has this name."""
    if name not in NAMES:
        raise UsageError(f"{name!r} is not a comparator: choose {', '.join(NAMES)}")
