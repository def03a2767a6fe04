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
    """A comparator that is to be made, and the data that it is to be fitted to.

    Parameters
    ----------
    directed
        Whether windows have a direction and one label, as those of promoters; if not, both strands count as
        the same.
    sizes
        The parts of a window, bp around its middle, whose k-mers and GC content are looked at.
    settings
        Of networks; its seed is that of all comparators.
    checkpoints, identity
        Where those of a network's training lie, and what tells its windows from others.
    factors, factors_in
        The factor that each label is of, for a scan with known motifs; and the file that says it.
    motifs, taxon
        A file of matrices; without one those of JASPAR for a taxon, None: the first of `TAXA`.
    model, weights, anchor
        The language model that a probe reads, its weights, and where the TSS lies in a window.
    """

    name: str
    directed: bool
    sizes: Sequence[int]
    kmer: int
    settings: NetworkSettings
    checkpoints: Path
    identity: Mapping[str, Any]
    device: str = "auto"
    factors: Sequence[str] = ()
    factors_in: Path | None = None
    motifs: Path | None = None
    taxon: str | None = None
    model: Path | None = None
    weights: str = PRETRAINED
    anchor: float = 0.5


def make_comparator(request: ComparatorRequest) -> Comparator:
    """A comparator that is to be fitted.

    Raises
    ------
    UsageError
        No comparator has this name, or it is one of promoters alone and windows have no direction.
    """
    check_name(request.name)
    module = import_module(f"bigbird_dna.papers.comparators.{_MODULES[request.name]}")
    made: Comparator = module.make(request)
    return made
