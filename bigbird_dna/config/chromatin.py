"""The section `chromatin`: bins and tracks, model, training and evaluation (App. F.3)."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from bigbird_dna.config.section import (
    LONGEST_WINDOW,
    MONITORING,
    ContigName,
    FileName,
    Section,
    field,
)
from bigbird_dna.config.training import (
    MOST_PROCESSES,
    CalibrationConfig,
    EvaluationConfig,
    FinetuningConfig,
    StartConfig,
)

# Values of chromatin.data.tracks that do not name a file.
SIMULATED = "simulated"
DEEPSEA = "deepsea"
NOT_FILES = (SIMULATED, DEEPSEA)
# Fixed by the bins, labels and splits of the DeepSEA data: another value would have no effect.
_BUNDLE: Mapping[str, Any] = {
    "bin": 200,
    "label": "half",
    "widen": 0,
    "negative_fraction": 0.0,
    "blacklist": None,
    "valid_regions": (),
    "test_regions": (),
}


class ChromatinDataConfig(Section):
    """The data set of bins and tracks."""

    tracks: FileName | None = field(
        None,
        'track table or directory of peak files, in data_dir or the working directory; or "simulated"; or '
        '"deepsea": the published DeepSEA data; none: no chromatin models',
    )
    track_names: str | None = field(
        None, "regular expression for file names in a directory of peak files"
    )
    group: str = field("TF", "group of the tracks in a directory of peak files")
    bin: int = field(
        200, "bin size, bp: the interval of one prediction", ge=1, le=LONGEST_WINDOW
    )
    window: int = field(
        8000,
        "length of the input around a bin, bin included, bp",
        ge=1,
        le=LONGEST_WINDOW,
    )
    shift_bp: int = field(0, "largest random shift of a training window, bp", ge=0)
    label: Literal["half", "any"] = field(
        "half", "minimum overlap of a bin with peaks: more than half of the bin, or any"
    )
    widen: int = field(0, "extension of each peak at both ends, bp", ge=0)
    negative_fraction: float = field(
        0.0, "fraction of bins without positive tracks to keep", ge=0, le=1
    )
    min_positives_train: int = field(
        50, "minimum positive training bins of a track, else excluded", ge=1
    )
    min_positives_heldout: int = field(
        0, "the same for validation bins, and for test bins", ge=0
    )
    blacklist: FileName | None = field(
        None, "BED of excluded regions, in data_dir or the working directory"
    )
    max_n: float = field(0.25, "maximum fraction of N in a window", ge=0, le=1)
    valid_regions: tuple[ContigName, ...] = field(
        (),
        "validation contigs or regions (contig:first-last, 1-based) in addition to genome.valid, for bins; "
        "also held out of pretraining and tokenizer training, but not of promoters",
    )
    test_regions: tuple[ContigName, ...] = field(
        (), "the same for the test, in addition to genome.test"
    )

    @property
    def widest(self) -> int:
        """Length of a window with its largest shifts, in bp."""
        return self.window + 2 * self.shift_bp

    def _faults(self) -> Iterator[str]:
        if self.window < self.bin or (self.window - self.bin) % 2:
            yield f"window {self.window} must be at least bin {self.bin} and differ from it by an even number"
        if self.tracks == DEEPSEA:
            for key, value in _BUNDLE.items():
                if getattr(self, key) != value:
                    yield (
                        f"tracks {DEEPSEA} have published bins, labels and splits: "
                        f"{key} must be {json.dumps(value)}"
                    )


class ChromatinModelConfig(StartConfig):
    """The model that predicts the tracks of a bin."""

    pooling: Literal["cls", "bin"] = field(
        "cls",
        "input of the head: cls: the first token; bin: mean and maximum over the tokens of the bin",
    )
    bin_layers: int = field(
        0, "attention layers across the bins of a window (pooling bin only)", ge=0
    )
    head: Literal["dense", "linear"] = field(
        "dense",
        "linear: one linear layer, as in the paper; dense: with a hidden layer before it",
    )
    ensemble: bool = field(
        True,
        "add the log-odds of the k-mer and dyad baseline (see evaluation) to those of the network, with "
        "weights fitted to validation bins",
    )

    def _faults(self) -> Iterator[str]:
        if self.head == "linear" and self.bin_layers:
            yield "bin_layers need a dense layer: head must be dense"
        if self.pooling == "cls" and self.bin_layers:
            yield "pooling cls predicts one bin per window: bin_layers must be 0"


class ChromatinTrainingConfig(FinetuningConfig):
    """Fine-tuning on bins and tracks."""

    positive_weight: float = field(8.0, "weight of a positive label in the loss", gt=0)
    bins_per_window: int = field(1, "number of trained bins per window; odd", ge=1)
    evaluation_bins: Annotated[int, MONITORING] = field(
        1000, "validation bins evaluated in training", ge=1
    )

    def _faults(self) -> Iterator[str]:
        if self.bins_per_window % 2 == 0:
            yield "bins_per_window must be odd"


class ChromatinEvaluationConfig(EvaluationConfig):
    """Predictions of the test bins."""

    test_bins: int = field(0, "size of a sample of test bins to evaluate; 0: all", ge=0)
    center_fraction: float = field(
        0.0,
        "pooling bin: central fraction of a window to predict at once; 0: one bin",
        ge=0,
        le=1,
    )
    baseline_dyads: int = field(
        16,
        "spaced dyads per track (two trinucleotides with up to 12 bases between them) that are added to the "
        "k-mer baseline; 0: none",
        ge=0,
        le=256,
    )


class ChromatinCalibrationConfig(CalibrationConfig):
    """The calibration of each track's probabilities."""

    bins: int = field(
        4000, "size of a sample of validation bins to calibrate on; 0: all", ge=0
    )


class ChromatinConfig(Section):
    """Chromatin models: variants, ensemble and report, and one section per stage."""

    variants: FileName | None = field(
        None,
        "VCF to score, in data_dir or the working directory; a simulation has its own VCF",
    )
    models: int = field(
        1, "independently trained models, whose mean probability is used", ge=1, le=1000
    )
    min_positives_report: int = field(
        1, "minimum positive test bins of a track in the medians of the report", ge=1
    )
    num_gpus: int = field(
        1, "torchrun processes for the training of a model", ge=1, le=MOST_PROCESSES
    )
    data: ChromatinDataConfig = ChromatinDataConfig()
    model: ChromatinModelConfig = ChromatinModelConfig()
    training: ChromatinTrainingConfig = ChromatinTrainingConfig()
    calibration: ChromatinCalibrationConfig = ChromatinCalibrationConfig()
    evaluation: ChromatinEvaluationConfig = ChromatinEvaluationConfig()

    def _faults(self) -> Iterator[str]:
        single = "pooling cls predicts one bin per window"
        # A stage's file may omit the model: its default pooling must not constrain other sections.
        if "model" in self.model_fields_set and self.model.pooling == "cls":
            if self.training.bins_per_window > 1:
                yield f"model.{single}: training.bins_per_window must be 1"
            if self.evaluation.center_fraction:
                yield f"model.{single}: evaluation.center_fraction must be 0"
        if self.data.window < self.data.bin * self.training.bins_per_window:
            yield "data.window must be at least training.bins_per_window bins long"
