"""The comparators by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bigbird_dna.baselines.comparators.cnnprom import CnnProm
from bigbird_dna.baselines.comparators.danq import DanQ
from bigbird_dna.baselines.comparators.deepromoter import DeePromoter
from bigbird_dna.baselines.comparators.deepsea import DeepSea
from bigbird_dna.baselines.comparators.encoder_probe import EncoderProbe
from bigbird_dna.baselines.comparators.gc import GcContent
from bigbird_dna.baselines.comparators.gkm_svm import GkmSvm
from bigbird_dna.baselines.comparators.interface import Comparator
from bigbird_dna.baselines.comparators.known_motifs import KnownMotif
from bigbird_dna.baselines.comparators.logistic import PromoterLogistic, TrackKmers
from bigbird_dna.baselines.comparators.motif_scan import MotifScan
from bigbird_dna.baselines.comparators.names import (
    GC,
    GKM,
    KMERS,
    MOTIFS,
    NEAREST,
    POSITION,
    PRETRAINED,
    PROBE,
    check_name,
)
from bigbird_dna.baselines.comparators.nearest import NearestWindow
from bigbird_dna.baselines.comparators.networks import Build, NetworkComparator, NetworkSettings
from bigbird_dna.baselines.comparators.residual import ResidualCnn
from bigbird_dna.baselines.kmers import KmerLogistic
from bigbird_dna.baselines.position import PositionLogistic
from bigbird_dna.errors import UsageError

NETWORKS: Mapping[str, Build] = {
    "cnnprom": CnnProm,
    "deepromoter": DeePromoter,
    "deepsea": DeepSea,
    "danq": DanQ,
    "residual-cnn": ResidualCnn,
}


def make_comparator(
    name: str,
    *,
    directed: bool,
    sizes: Sequence[int],
    kmer: int,
    settings: NetworkSettings,
    checkpoints: Path,
    identity: Mapping[str, Any],
    device: str = "auto",
    motifs: Sequence[Sequence[KnownMotif]] = (),
    model: Path | None = None,
    weights: str | None = None,
    anchor: float = 0.5,
) -> Comparator:
    """A comparator that is to be fitted.

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
    motifs
        The known matrices of each label's factor.
    model, weights, anchor
        The language model that a probe reads, its weights (None: pretrained), and where the TSS lies in a
        window.

    Raises
    ------
    UsageError
        No comparator has this name, or it is one of promoters alone and windows have no direction.
    """
    check_name(name)
    if name in NETWORKS:
        return NetworkComparator(
            NETWORKS[name], settings, name=name, checkpoints=checkpoints, identity=identity, device=device
        )
    if name == KMERS:
        return PromoterLogistic(KmerLogistic(kmer, settings.seed)) if directed else TrackKmers(kmer, sizes)
    if name == POSITION:
        if not directed:
            raise UsageError(f"{POSITION}: needs windows with a direction, such as those of promoters")
        return PromoterLogistic(PositionLogistic(settings.seed))
    if name == GC:
        return GcContent(sizes, balanced=directed)
    if name == GKM:
        return GkmSvm(both_strands=not directed, seed=settings.seed)
    if name == PROBE:
        assert model is not None
        size = None if directed else sizes[0]
        return EncoderProbe(
            model, weights or PRETRAINED, size=size, anchor=anchor, seed=settings.seed, device=device
        )
    if name == NEAREST:
        return NearestWindow(balanced=directed)
    assert name == MOTIFS
    return MotifScan(motifs)
