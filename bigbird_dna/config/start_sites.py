"""The section `promoters.dense`: a model of the start sites at every base along a genome."""

from collections.abc import Iterator
from typing import Annotated

from bigbird_dna.config.section import LONGEST_WINDOW, MONITORING, field
from bigbird_dna.config.training import (
    MOST_PROCESSES,
    FinetuningConfig,
    OptimizerConfig,
    StartConfig,
)


class DenseOptimizerConfig(OptimizerConfig):
    """The optimizer, with defaults for start sites."""

    learning_rate: float = field(
        2e-3, "peak learning rate, after warm-up; decays linearly to 0", gt=0
    )


class DenseTrainingConfig(FinetuningConfig):
    """Training on every base of the training contigs."""

    steps: int = field(1500, "number of optimizer steps", ge=1)
    batch_size: int = field(8, "windows per step, over all processes", ge=1)
    optimizer: DenseOptimizerConfig = DenseOptimizerConfig()
    near_sites: float = field(
        0.25,
        "fraction of training windows that contain a start site chosen at random; the others begin anywhere",
        ge=0,
        le=1,
    )
    short: float = field(
        0.1,
        "fraction of training windows cut to a random length, so that the model also reads short sequences",
        ge=0,
        le=1,
    )
    evaluation_windows: Annotated[int, MONITORING] = field(
        64, "validation windows evaluated in training, at most", ge=1
    )


class DenseConfig(StartConfig):
    """A model that predicts start sites at every base of a window, on both strands."""

    window: int = field(4000, "length of the input, bp", ge=1, le=LONGEST_WINDOW)
    margin: int = field(
        500,
        "bp at each end of a window that are only context; adjacent windows overlap by twice as much",
        ge=0,
    )
    smoothing_bp: int = field(
        30,
        "distance from a start site at which labels have fallen from 1 to 0, bp",
        ge=0,
    )
    bin: int = field(20, "bp whose tokens are read together, before single bases", ge=1)
    bin_layers: int = field(1, "attention layers across the bins of a window", ge=0)
    kmers: int = field(
        6,
        "k of the k-mers around each base of a token, as encoder.kmers, also of an encoder that was "
        "pretrained without them; 0: none",
        ge=0,
        le=8,
    )
    channels: int = field(48, "channels of the convolutions over bases", ge=1)
    layers_before: int = field(
        3, "convolutions before the encoder, after the first one", ge=0, le=10
    )
    layers_after: int = field(2, "convolutions after the encoder", ge=0, le=10)
    num_gpus: int = field(
        1, "torchrun processes for the training", ge=1, le=MOST_PROCESSES
    )
    training: DenseTrainingConfig = DenseTrainingConfig()

    def _faults(self) -> Iterator[str]:
        if self.window <= 2 * self.margin:
            yield f"window {self.window} must be longer than two margins of {self.margin}"
