"""Common interface of comparators: they are made by name, fitted to labeled windows, and predict windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.windows import LabeledWindows, Probabilities, blocks
from bigbird_dna.calibration.maps import fit_line
from bigbird_dna.config import PRETRAINED
from bigbird_dna.config.experiments import NetworkComparator as NetworkName
from bigbird_dna.errors import check_import

if TYPE_CHECKING:  # plans are made without torch
    from bigbird_dna.baselines.networks import NetworkSettings

# Axes: N windows, T labels per window: tracks, or a single promoter label.

KMERS, GC, GKM, NEAREST = "k-mers", "gc", "gkm-svm", "nearest"
DYADS, MOTIFS = "dyads", "motifs"  # of bins only
DIRECTED = POSITION, ORF, COMPOSITION = (
    "position",
    "orf",
    "composition",
)  # of promoter windows only
NETWORK_NAMES: tuple[str, ...] = get_args(NetworkName)
DESCRIPTION = "comparator.json"
PROBE = "probe"  # in tables, a probe has the name of its language model

_MODULES = {
    **dict.fromkeys((GC, KMERS, DYADS, *DIRECTED, NEAREST, PROBE), "simple"),
    **dict.fromkeys(NETWORK_NAMES, "architectures"),
    **{GKM: "gkm_svm", MOTIFS: "motifs"},
}
"""Name of a comparator → module whose `make` makes it."""
_LEAST_SLOPE = 0.01  # in standard deviations of the scores; keeps probabilities increasing with scores


class Comparator(ABC):
    """A predictor of windows. The same windows and seed give the same predictions."""

    @abstractmethod
    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        """Fit to windows; choices are made on the held-out windows. `DataError` if the windows are not
        suitable."""

    @abstractmethod
    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Return probabilities (n, T) of windows of the trained length; NaN for labels not in `covered`."""

    def covered(self, labels: int) -> NDArray[np.bool_]:
        """Return which of the T labels can be predicted, (T,)."""
        return np.ones(labels, np.bool_)

    def chosen(self) -> dict[str, Any]:
        """Return the choices and results of `fit` as JSON values, which are stored with the predictions."""
        return {}

    def files(self) -> dict[str, Path]:
        """Return files of `fit` to keep, by the name under which they are stored."""
        return {}

    def finish(self) -> None:  # noqa: B027 (most have nothing to delete)
        """Delete the state for resuming `fit`; call this after the predictions were stored."""


class Sigmoid(NamedTuple):
    """Probability 1 / (1 + exp(−slope · score − offset)), with a slope above 0."""

    slope: float
    offset: float

    def __call__(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        from scipy.special import expit

        return np.asarray(expit(self.slope * scores + self.offset))


def fit_sigmoid(scores: NDArray[np.float64], labels: NDArray[np.uint8]) -> Sigmoid:
    """Fit Platt scaling (1999) to scores and labels (N,), also of one class; the slope is kept above 0."""
    mean, spread = float(scores.mean()), max(float(scores.std()), 1e-12)
    slope, offset = fit_line((scores - mean) / spread, labels == 1, _LEAST_SLOPE)
    return Sigmoid(slope / spread, offset - slope * mean / spread)


class ScoringComparator(Comparator):
    """A comparator with scores per covered label, which `fit` maps to probabilities."""

    AT_ONCE: ClassVar = 1024  # windows

    def __init__(self) -> None:
        self.labels = 0
        self.sigmoids: dict[int, Sigmoid] = {}  # label → its map to probabilities

    @abstractmethod
    def scores(
        self, sequences: Sequence[str]
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield each covered label with its scores (n,)."""

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        found = np.full((len(sequences), self.labels), np.nan, np.float32)
        for rows in blocks(len(sequences), self.AT_ONCE):
            for label, scores in self.scores([sequences[row] for row in rows]):
                found[rows, label] = self.sigmoids[label](scores)
        return found

    def covered(self, labels: int) -> NDArray[np.bool_]:
        return np.isin(np.arange(labels), [*self.sigmoids])


@dataclass(frozen=True)
class ComparatorRequest:
    """Request for a comparator, and facts on the data to which it is fitted."""

    name: str
    directed: bool  # windows have a direction and one label, like promoters; otherwise both strands are used
    sizes: Sequence[
        int
    ]  # central bp of a window from which k-mers and GC content are computed
    kmer: int
    dyads: int  # of a label
    seed: int
    settings: NetworkSettings  # of networks
    checkpoints: Path  # directory for the training of a network
    identity: Mapping[str, Any]  # facts that identify the windows
    device: str = "auto"
    factors: Sequence[str] = ()  # factor of each label, for a scan with known motifs
    factors_in: Path | None = None  # file with the factors, for messages
    motifs: Path | None = None  # file of matrices; None: JASPAR
    taxon: str | None = None  # taxonomic group in JASPAR; None: the first of `TAXA`
    model: Path | None = None  # language model of a probe
    weights: str = PRETRAINED  # weights of a probe: pretrained or random
    anchor: float = 0.5  # relative position of the TSS in a window


def make_comparator(request: ComparatorRequest) -> Comparator:
    """Make an unfitted comparator by name, or with the user's function `MODULE:FUNCTION`; `UsageError` if
    unknown."""
    module, own = _MODULES.get(request.name), "bigbird_dna.papers.comparators"
    make = (
        resolve_name(f"{own}.{module}:make")
        if module
        else check_import("comparator", request.name)
    )
    return make(request)  # type: ignore[no-any-return]
