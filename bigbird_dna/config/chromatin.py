"""The section `chromatin`: bins and tracks, the model, its training and evaluation (App. F.3)."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from bigbird_dna.config.section import LONGEST_WINDOW, MONITORING, ContigName, FileName, Section, field
from bigbird_dna.config.training import (
    MOST_PROCESSES,
    CalibrationConfig,
    EvaluationConfig,
    FinetuningConfig,
    StartConfig,
)

# Values of chromatin.data.tracks that are no file.
SIMULATED = "simulated"
DEEPSEA = "deepsea"
# What the bundle has decided about bins, labels and splits: another value would have no effect.
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
        'track table or folder of peak files, in data_dir or from here; "simulated"; "deepsea": the '
        "published bundle; none: no chromatin",
    )
    track_names: str | None = field(None, "regular expression for file names in a folder of peaks")
    group: str = field("TF", "of the tracks of a folder")
    bin: int = field(200, "bp that one prediction stands for", ge=1, le=LONGEST_WINDOW)
    window: int = field(8000, "bp of sequence around a bin, bin included", ge=1, le=LONGEST_WINDOW)
    compare_window: int | None = field(
        None, "bp; a second model that sees no more than this", ge=1, le=LONGEST_WINDOW
    )
    shift_bp: int = field(0, "bp a training window is moved by, at random", ge=0)
    label: Literal["half", "any", "centre"] | int = field(
        "half", "how much of a bin peaks must cover; a number: so many bp"
    )
    widen: int = field(0, "bp added to both ends of each peak", ge=0)
    negative_fraction: float = field(0.0, "of the bins without any positive track, kept", ge=0, le=1)
    min_positives_train: int = field(50, "of a track in training; tracks below it are left out", ge=1)
    min_positives_heldout: int = field(0, "of a track in validation and in test bins, likewise", ge=0)
    blacklist: FileName | None = field(None, "BED of regions left out, looked for likewise")
    max_n: float = field(0.25, "largest share of N in a window", ge=0, le=1)
    valid_regions: tuple[ContigName, ...] = field(
        (),
        "contigs or regions (contig:first-last, 1-based) besides genome.valid, for bins; held out of "
        "pretraining and of the tokenizer too, not of promoters",
    )
    test_regions: tuple[ContigName, ...] = field((), "likewise, besides genome.test")

    @property
    def windows(self) -> tuple[int, ...]:
        """bp of the windows that a model is trained for."""
        return tuple(size for size in (self.window, self.compare_window) if size is not None)

    @property
    def widest(self) -> int:
        """bp that the widest window of a bin reaches over, shifts included."""
        return max(self.windows) + 2 * self.shift_bp

    def _faults(self) -> Iterator[str]:
        for window in self.windows:
            if window < self.bin or (window - self.bin) % 2:
                yield f"window {window} doesn't hold the bin of {self.bin} in its middle"
        if self.tracks == DEEPSEA:
            for key, value in _BUNDLE.items():
                if getattr(self, key) != value:
                    yield (
                        f"tracks {DEEPSEA} have the published bins, labels and splits: "
                        f"{key} can only be {json.dumps(value)}"
                    )


class ChromatinModelConfig(StartConfig):
    """What predicts the tracks of a bin."""

    pooling: Literal["cls", "bin"] = field(
        "cls", "what predicts a bin: the first token, or mean and maximum over the bin's tokens"
    )
    bin_layers: int = field(0, "pooling bin: layers of attention across the window's bins", ge=0)
    head: Literal["dense", "linear"] = field(
        "dense", "linear: one layer, as in the paper; dense: another before it"
    )

    def _faults(self) -> Iterator[str]:
        if self.head == "linear" and self.bin_layers:
            yield "bin_layers come after a dense layer: head must be dense"
        if self.pooling == "cls" and self.bin_layers:
            yield "pooling cls predicts one bin a window: bin_layers must be 0"


class ChromatinTrainingConfig(FinetuningConfig):
    """Fine-tuning on bins and tracks."""

    positive_weight: float = field(8.0, "of a positive label in the loss", gt=0)
    bins_per_window: int = field(1, "odd; bins learnt from in each training window", ge=1)
    evaluation_bins: Annotated[int, MONITORING] = field(1000, "validation bins, while training", ge=1)

    def _faults(self) -> Iterator[str]:
        if self.bins_per_window % 2 == 0:
            yield "bins_per_window must be odd"


class ChromatinEvaluationConfig(EvaluationConfig):
    """Predictions of the test bins."""

    test_bins: int = field(0, "a sample of the test bins; 0: all", ge=0)
    middle: float = field(
        0.0, "pooling bin: the part of a window whose bins are predicted together; 0: one bin", ge=0, le=1
    )


class ChromatinCalibrationConfig(CalibrationConfig):
    """The correction of each track's probabilities."""

    bins: int = field(4000, "a sample of the validation bins; 0: all", ge=0)


class ChromatinShardsConfig(Section):
    """Jobs that long work is divided into; the results are the same bytes for every number."""

    data: int = field(1, "of labelling the bins of the data set", ge=1, le=10_000)
    predictions: int = field(1, "of predicting the test bins", ge=1, le=10_000)
    variants: int = field(1, "of scoring the variants", ge=1, le=10_000)


class ChromatinConfig(Section):
    """Chromatin: what is made of its models, and a section a stage."""

    variants: FileName | None = field(
        None, "VCF whose effects are scored, in data_dir or from here; of a simulation its own"
    )
    models: int = field(1, "independently trained; their mean predicts", ge=1, le=1000)
    min_positives_report: int = field(
        1, "test positives a track needs to count in the report's medians", ge=1
    )
    num_gpus: int = field(1, "torchrun processes for the training of a model", ge=1, le=MOST_PROCESSES)
    shards: ChromatinShardsConfig = ChromatinShardsConfig()
    data: ChromatinDataConfig = ChromatinDataConfig()
    model: ChromatinModelConfig = ChromatinModelConfig()
    training: ChromatinTrainingConfig = ChromatinTrainingConfig()
    calibration: ChromatinCalibrationConfig = ChromatinCalibrationConfig()
    evaluation: ChromatinEvaluationConfig = ChromatinEvaluationConfig()

    def _faults(self) -> Iterator[str]:
        if self.data.tracks == DEEPSEA and self.shards.data > 1:
            yield f"tracks {DEEPSEA} have published labels, not made in shards: shards.data must be 1"
        single = "pooling cls predicts one bin a window"
        # A stage's file may have no model: the default's pooling then says nothing of the others.
        if "model" in self.model_fields_set and self.model.pooling == "cls":
            if self.training.bins_per_window > 1:
                yield f"model.{single}: training.bins_per_window must be 1"
            if self.evaluation.middle:
                yield f"model.{single}: evaluation.middle must be 0"
        if self.data.window < self.data.bin * self.training.bins_per_window:
            yield "data.window is smaller than the bins of training.bins_per_window"
