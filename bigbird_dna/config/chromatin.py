"""The section `chromatin`: bins and tracks, the model, its training and evaluation (App. F.3)."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bigbird_dna.config.names import ContigName, FileName
from bigbird_dna.config.section import LONGEST_WINDOW, WATCHING, Section
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

    tracks: FileName | None = Field(
        default=None,
        description="track table or folder of peak files, in data_dir or from here; "
        '"simulated"; "deepsea": the published bundle; none: no chromatin',
    )
    track_names: str | None = Field(
        default=None, description="regular expression for file names in a folder of peaks"
    )
    group: str = Field(default="TF", description="of the tracks of a folder")
    bin: int = Field(default=200, ge=1, le=LONGEST_WINDOW, description="bp that one prediction stands for")
    window: int = Field(
        default=8000, ge=1, le=LONGEST_WINDOW, description="bp of sequence around a bin, bin included"
    )
    compare_window: int | None = Field(
        default=None, ge=1, le=LONGEST_WINDOW, description="bp; a second model that sees no more than this"
    )
    shift_bp: int = Field(default=0, ge=0, description="bp a training window is moved by, at random")
    label: Literal["half", "any", "centre"] | int = Field(
        default="half", description="how much of a bin peaks must cover; a number: so many bp"
    )
    widen: int = Field(default=0, ge=0, description="bp added to both ends of each peak")
    negative_fraction: float = Field(
        default=0.0, ge=0, le=1, description="of the bins without any positive track, kept"
    )
    min_positives_train: int = Field(
        default=50, ge=1, description="of a track in training; tracks below it are left out"
    )
    min_positives_heldout: int = Field(
        default=0, ge=0, description="of a track in validation and in test bins, likewise"
    )
    blacklist: FileName | None = Field(
        default=None, description="BED of regions left out, looked for likewise"
    )
    max_n: float = Field(default=0.25, ge=0, le=1, description="largest share of N in a window")
    valid_regions: tuple[ContigName, ...] = Field(
        default=(),
        description="contigs or regions (contig:first-last, 1-based) besides genome.valid, for bins; held "
        "out of pretraining and of the tokenizer too, not of promoters",
    )
    test_regions: tuple[ContigName, ...] = Field(default=(), description="likewise, besides genome.test")

    @property
    def windows(self) -> tuple[int, ...]:
        """bp of the windows that a model is trained for."""
        return tuple(size for size in (self.window, self.compare_window) if size is not None)

    @property
    def widest(self) -> int:
        """bp that the widest window of a bin reaches over, shifts included."""
        return max(self.windows) + 2 * self.shift_bp

    @model_validator(mode="after")
    def _windows_hold_their_bin(self) -> Self:
        for window in self.windows:
            if window < self.bin or (window - self.bin) % 2:
                raise ValueError(f"window {window} doesn't hold the bin of {self.bin} in its middle")
        return self

    @model_validator(mode="after")
    def _bundle_is_as_published(self) -> Self:
        if self.tracks == DEEPSEA:
            for key, value in _BUNDLE.items():
                if getattr(self, key) != value:
                    raise ValueError(
                        f"tracks {DEEPSEA} have the published bins, labels and splits: "
                        f"{key} can only be {json.dumps(value)}"
                    )
        return self


class ChromatinModelConfig(StartConfig):
    """What predicts the tracks of a bin."""

    pooling: Literal["cls", "bin"] = Field(
        default="cls",
        description="what predicts a bin: the first token, or mean and maximum over the bin's tokens",
    )
    bin_layers: int = Field(
        default=0, ge=0, description="pooling bin: layers of attention across the window's bins"
    )
    head: Literal["dense", "linear"] = Field(
        default="dense", description="linear: one layer, as in the paper; dense: another before it"
    )

    @model_validator(mode="after")
    def _layers_have_bins(self) -> Self:
        if self.head == "linear" and self.bin_layers:
            raise ValueError("bin_layers come after a dense layer: head must be dense")
        if self.pooling == "cls" and self.bin_layers:
            raise ValueError("pooling cls predicts one bin a window: bin_layers must be 0")
        return self


class ChromatinTrainingConfig(FinetuningConfig):
    """Fine-tuning on bins and tracks."""

    positive_weight: float = Field(default=8.0, gt=0, description="of a positive label in the loss")
    bins_per_window: int = Field(default=1, ge=1, description="odd; bins learnt from in each training window")
    evaluation_bins: Annotated[int, WATCHING] = Field(
        default=1000, ge=1, description="validation bins, while training"
    )

    @model_validator(mode="after")
    def _neighbours_have_a_middle(self) -> Self:
        if self.bins_per_window % 2 == 0:
            raise ValueError("neighbours must be odd")
        return self


class ChromatinEvaluationConfig(EvaluationConfig):
    """Predictions of the test bins."""

    test_bins: int = Field(default=0, ge=0, description="a sample of the test bins; 0: all")
    middle: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="pooling bin: the part of a window whose bins are predicted together; 0: one bin",
    )


class ChromatinCalibrationConfig(CalibrationConfig):
    """The correction of each track's probabilities."""

    bins: int = Field(default=4000, ge=0, description="a sample of the validation bins; 0: all")


class ChromatinPiecesConfig(Section):
    """Jobs that long work is divided into; the results are the same bytes for every number."""

    data: int = Field(default=1, ge=1, le=10_000, description="of labelling the bins of the data set")
    predictions: int = Field(default=1, ge=1, le=10_000, description="of predicting the test bins")
    variants: int = Field(default=1, ge=1, le=10_000, description="of scoring the variants")


class ChromatinConfig(Section):
    """Chromatin: what is made of its models, and a section a stage."""

    variants: FileName | None = Field(
        default=None,
        description="VCF whose effects are scored, in data_dir or from here; of a simulation its own",
    )
    models: int = Field(default=1, ge=1, le=1000, description="independently trained; their mean predicts")
    min_positives_report: int = Field(
        default=1, ge=1, description="test positives a track needs to count in the report's medians"
    )
    num_gpus: int = Field(
        default=1, ge=1, le=MOST_PROCESSES, description="torchrun processes for the training of a model"
    )
    shards: ChromatinPiecesConfig = ChromatinPiecesConfig()
    data: ChromatinDataConfig = ChromatinDataConfig()
    model: ChromatinModelConfig = ChromatinModelConfig()
    training: ChromatinTrainingConfig = ChromatinTrainingConfig()
    calibration: ChromatinCalibrationConfig = ChromatinCalibrationConfig()
    evaluation: ChromatinEvaluationConfig = ChromatinEvaluationConfig()

    @model_validator(mode="after")
    def _bundle_is_one_piece(self) -> Self:
        if self.data.tracks == DEEPSEA and self.shards.data > 1:
            raise ValueError(
                f"tracks {DEEPSEA} have published labels, not made in pieces: pieces.data must be 1"
            )
        return self

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        single = "pooling cls predicts one bin a window"
        # A stage's file may have no model: the default's pooling then says nothing of the others.
        if "model" in self.model_fields_set and self.model.pooling == "cls":
            if self.training.bins_per_window > 1:
                raise ValueError(f"model.{single}: training.bins_per_window must be 1")
            if self.evaluation.middle:
                raise ValueError(f"model.{single}: evaluation.middle must be 0")
        if self.data.window < self.data.bin * self.training.bins_per_window:
            raise ValueError("data.window is smaller than the bins of training.bins_per_window")
        return self
