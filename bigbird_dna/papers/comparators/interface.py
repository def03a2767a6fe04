"""What comparators have in common: they are found by name, fitted to windows with labels, and predict
windows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.windows import LabeledWindows, Probabilities, blocks
from bigbird_dna.calibration.maps import fit_line
from bigbird_dna.config import PRETRAINED, OptimizerConfig, TrainingConfig
from bigbird_dna.config.experiments import NetworkComparator as NetworkName
from bigbird_dna.errors import check_import

# Axes: N windows, T labels of each: its tracks, or one of promoters.

KMERS, POSITION, GC, GKM, MOTIFS, NEAREST = "k-mers", "position", "gc", "gkm-svm", "motifs", "nearest"
NETWORK_NAMES: tuple[str, ...] = get_args(NetworkName)
PROBE = "probe"  # the tables name it by the model that it reads

_MODULES = {
    **dict.fromkeys((GC, KMERS, POSITION, NEAREST, PROBE), "simple"),
    **dict.fromkeys(NETWORK_NAMES, "architectures"),
    **{GKM: "gkm_svm", MOTIFS: "motifs"},
}
"""The module whose `make` makes a comparator, by its name."""
_EVALUATIONS = 20  # of a network while it is trained, at most
_LEAST_SLOPE = 0.01  # in standard deviations of the scores: a higher score is never a lower probability


class Comparator(ABC):
    """A predictor of windows. Same windows and seed, same predictions."""

    @abstractmethod
    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        """Learn from windows; what is chosen is chosen on those held out. `DataError` where they can't be
        learnt from."""

    @abstractmethod
    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, T) of windows of the length that was learnt from; NaN where `covered` says no."""

    def covered(self, labels: int) -> NDArray[np.bool_]:
        """Which of the T labels can be predicted, (T,)."""
        return np.ones(labels, np.bool_)

    def chosen(self) -> dict[str, Any]:
        """What `fit` has chosen and found, for the files beside the predictions; values fit for JSON."""
        return {}

    def files(self) -> dict[str, Path]:
        """Files that `fit` has written and that are worth keeping, by the name they shall have."""
        return {}

    def finish(self) -> None:  # noqa: B027 (most have nothing to delete)
        """The predictions are stored: what a repeated `fit` would have gone on from is deleted."""


class Sigmoid(NamedTuple):
    """Probability 1 / (1 + exp(−slope · score − offset)), with a slope above 0."""

    slope: float
    offset: float

    def __call__(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        from scipy.special import expit

        return np.asarray(expit(self.slope * scores + self.offset))


def fit_sigmoid(scores: NDArray[np.float64], labels: NDArray[np.uint8]) -> Sigmoid:
    """Platt's scaling (1999) of scores and labels (N,), also of one class; the slope is kept above 0."""
    mean, spread = float(scores.mean()), max(float(scores.std()), 1e-12)
    slope, offset = fit_line((scores - mean) / spread, labels == 1, _LEAST_SLOPE)
    return Sigmoid(slope / spread, offset - slope * mean / spread)


class ScoringComparator(Comparator):
    """One whose scores of a label, if it has any, are made probabilities by what `fit` has found."""

    AT_ONCE: ClassVar = 1024  # windows

    def __init__(self) -> None:
        self.labels = 0
        self.sigmoids: dict[int, Sigmoid] = {}  # by label

    @abstractmethod
    def scores(self, sequences: Sequence[str]) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Labels that are covered, with scores (n,)."""

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        found = np.full((len(sequences), self.labels), np.nan, np.float32)
        for rows in blocks(len(sequences), self.AT_ONCE):
            for label, scores in self.scores([sequences[row] for row in rows]):
                found[rows, label] = self.sigmoids[label](scores)
        return found

    def covered(self, labels: int) -> NDArray[np.bool_]:
        return np.isin(np.arange(labels), [*self.sigmoids])


@dataclass(frozen=True)
class NetworkSettings:
    """How a network is trained.

    With `both_strands` windows have no direction: they are learnt from on either strand, and predicted by the
    mean of both, as DeepSEA does. With `balanced` classes weigh alike, however many windows they have.
    """

    steps: int = 2000
    batch_size: int = 64
    learning_rate: float = 1e-3
    seed: int = 1
    both_strands: bool = False
    balanced: bool = False

    def training(self, evaluated: int) -> TrainingConfig:
        """As the training loop has them; of a short training fewer of `judged` windows are evaluated than
        learnt from."""
        every = max(1, math.ceil(self.steps / _EVALUATIONS), evaluated // (2 * self.batch_size))
        optimizer = OptimizerConfig(
            learning_rate=self.learning_rate, warmup_steps=max(1, min(100, self.steps // 10))
        )
        return TrainingConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            optimizer=optimizer,
            evaluate_every=every,
            checkpoint_every=every,
            seed=self.seed,
        )


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
    """A comparator that is to be fitted, by its name or by `MODULE:FUNCTION`, which makes a user's own;
    `UsageError` where there is none."""
    module, own = _MODULES.get(request.name), "bigbird_dna.papers.comparators"
    make = resolve_name(f"{own}.{module}:make") if module else check_import("comparator", request.name)
    return make(request)  # type: ignore[no-any-return]
