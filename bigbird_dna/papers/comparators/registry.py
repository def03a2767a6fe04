"""The comparators by name; nothing heavy is imported before one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from bigbird_dna.config import PRETRAINED
from bigbird_dna.config.experiments import NetworkComparator as NetworkName
from bigbird_dna.config.experiments import PromoterComparator, TrackComparator
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.papers.comparators.interface import Comparator
    from bigbird_dna.papers.comparators.networks import NetworkSettings

KMERS, POSITION, GC, GKM, MOTIFS, NEAREST = "k-mers", "position", "gc", "gkm-svm", "motifs", "nearest"
NETWORK_NAMES: tuple[str, ...] = get_args(NetworkName)
PROBE = "probe"
"""A regression on what a frozen language model makes of a window; the tables name it by its model."""
NAMES: tuple[str, ...] = (*dict.fromkeys((*get_args(PromoterComparator), *get_args(TrackComparator))), PROBE)

_MODULES = {
    **dict.fromkeys((GC, KMERS, POSITION, NEAREST), "simple"),
    **dict.fromkeys(NETWORK_NAMES, "architectures"),
    **{GKM: "gkm_svm", MOTIFS: "motifs", PROBE: "probe"},
}
"""The module whose `make` makes a comparator, by its name."""


def check_name(name: str) -> None:
    """`UsageError` where no comparator has this name."""
    if name not in NAMES:
        raise UsageError(f"{name!r} is not a comparator: choose {', '.join(NAMES)}")


@dataclass(frozen=True)
class ComparatorRequest:
    """A comparator that is to be made, and the data that it is to be fitted to."""

    name: str
    directed: bool  # windows have a direction and one label, as promoters; if not, both strands count alike
    sizes: Sequence[int]  # bp around a window's middle whose k-mers and GC content are looked at
    kmer: int
    settings: NetworkSettings  # of networks; its seed is that of all comparators
    checkpoints: Path  # of a network's training
    identity: Mapping[str, Any]  # what tells its windows from others
    device: str = "auto"
    factors: Sequence[str] = ()  # the factor that each label is of, for a scan with known motifs
    factors_in: Path | None = None  # the file that says it
    motifs: Path | None = None  # a file of matrices; None: JASPAR's
    taxon: str | None = None  # of JASPAR's; None: the first of `TAXA`
    model: Path | None = None  # that a probe reads
    weights: str = PRETRAINED  # its weights
    anchor: float = 0.5  # where the TSS lies in a window


def make_comparator(request: ComparatorRequest) -> Comparator:
    """A comparator that is to be fitted.

    `UsageError`: no comparator has this name, or it is one of promoters alone and windows have no direction.
    """
    check_name(request.name)
    module = import_module(f"bigbird_dna.papers.comparators.{_MODULES[request.name]}")
    made: Comparator = module.make(request)
    return made
