"""The section `start_sites`: a dense model that scores the start sites of promoters along a genome.

It is a chromatin model with one track per strand, so its commands are those of chromatin models
(`prepare chromatin`, `finetune-chromatin`, `model calibrate`).
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from bigbird_dna.config.chromatin import TSS, ChromatinConfig
from bigbird_dna.config.section import (
    LONGEST_WINDOW,
    MONITORING,
    SCORED_CENTER,
    Section,
    field,
)
from bigbird_dna.config.training import (
    MOST_PROCESSES,
    FinetuningConfig,
    OptimizerConfig,
)


class StartSitesOptimizerConfig(OptimizerConfig):
    """The optimizer, with defaults for start sites."""

    learning_rate: float = field(
        1e-3, "peak learning rate, after warm-up; decays linearly to 0", gt=0
    )


class StartSitesTrainingConfig(FinetuningConfig):
    """Fine-tuning on bins with start sites."""

    steps: int = field(1500, "number of optimizer steps", ge=1)
    batch_size: int = field(8, "windows per step, over all processes", ge=1)
    optimizer: StartSitesOptimizerConfig = StartSitesOptimizerConfig()
    evaluation_bins: Annotated[int, MONITORING] = field(
        40_000, "validation bins evaluated in training, at most", ge=1
    )


class StartSitesConfig(Section):
    """A model that predicts the start sites of promoters in all bins of a window, on both strands."""

    bin: int = field(
        20, "bin size, bp: the interval of one score", ge=1, le=LONGEST_WINDOW
    )
    window: int = field(3000, "length of the input, bp", ge=1, le=LONGEST_WINDOW)
    widen: int = field(
        20,
        "a bin is positive if a start site is in it, or within this distance, bp",
        ge=0,
    )
    shift_bp: int = field(25, "largest random shift of a training window, bp", ge=0)
    initial: Literal["pretrained", "random"] = field(
        "pretrained", "initialization: the pretrained encoder, or random weights"
    )
    kmers: int = field(
        6,
        "k of the k-mers around each base of a token, as encoder.kmers, also of an encoder that was "
        "pretrained without them; 0: none",
        ge=0,
        le=8,
    )
    bin_layers: int = field(1, "attention layers across the bins of a window", ge=0)
    dropout: float | None = field(
        0.1, "dropout in fine-tuning; none: the encoder's", ge=0, lt=1
    )
    positive_weight: float = field(8.0, "weight of a positive label in the loss", gt=0)
    num_gpus: int = field(
        1, "torchrun processes for the training", ge=1, le=MOST_PROCESSES
    )
    training: StartSitesTrainingConfig = StartSitesTrainingConfig()

    def _faults(self) -> Iterator[str]:
        if self.window < self.bin or (self.window - self.bin) % 2:
            yield f"window {self.window} must be at least bin {self.bin} and differ from it by an even number"

    @property
    def chromatin(self) -> ChromatinConfig:
        """The section `chromatin` of this model: all bins of a window are trained and scored together."""
        bins = 2 * ((self.window - self.bin) // 2 // self.bin) + 1
        return ChromatinConfig.model_validate(
            {
                "num_gpus": self.num_gpus,
                "data": {
                    "tracks": TSS,
                    "label": "any",
                    "negative_fraction": 1.0,
                    **self.model_dump(include={"bin", "window", "widen", "shift_bp"}),
                },
                "model": {
                    "pooling": "bin",
                    "ensemble": False,
                    **self.model_dump(include={"initial", "bin_layers", "dropout"}),
                },
                "training": {
                    "positive_weight": self.positive_weight,
                    "bins_per_window": bins,
                    **self.training.model_dump(),
                },
                "calibration": {"bins": 0},
                "evaluation": {"center_fraction": SCORED_CENTER},
            }
        )
