"""The section `density`: causal models of images and text."""

from typing import Literal, Self

from pydantic import Field, model_validator

from bigbird_dna.config.names import FileName
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.section import Section, field
from bigbird_dna.config.training import TrainingConfig

DensityFormat = Literal["cifar10", "imagenet64", "wiki40b", "c4"]
IMAGE_BYTES = {"cifar10": 3 * 32**2, "imagenet64": 3 * 64**2}
"""Of an image, by format; documents have any number."""


class DensityConfig(Section):
    """A causal model of bytes, and the files that it learns from and is judged on."""

    format: DensityFormat = Field(description="of the files: cifar10, imagenet64, wiki40b, c4")
    train: tuple[FileName, ...] = Field(min_length=1, description="files to learn from")
    test: tuple[FileName, ...] = Field(min_length=1, description="files to judge on")
    sequence_bytes: int = field(2048, "of an input from text; an image is an input", ge=16, le=1 << 17)
    train_bytes: int = field(1 << 28, "read of `train` at most, in memory", ge=1, le=1 << 33)
    test_bytes: int = field(1 << 22, "read of `test` at most", ge=1, le=1 << 33)
    encoder: EncoderConfig = EncoderConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _no_file_is_in_both(self) -> Self:
        if both := {*self.train} & {*self.test}:
            raise ValueError(f"test: {min(both)!r} is in train as well")
        return self

    @property
    def input_bytes(self) -> int:
        """Of the longest input."""
        return IMAGE_BYTES.get(self.format, self.sequence_bytes)
