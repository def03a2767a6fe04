"""The sections `byte_lm` (causal models of images and text) and `long_range_arena` (generated tasks)."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from bigbird_dna.config.experiments import Seed
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.section import FileName, Section, field
from bigbird_dna.config.training import OptimizerConfig, TrainingConfig

ByteLmFormat = Literal["cifar10", "imagenet64", "wiki40b", "c4"]


class ByteLmConfig(Section):
    """A causal language model of bytes, with its training and test files."""

    format: ByteLmFormat = Field(
        description="file format: cifar10, imagenet64, wiki40b, c4"
    )
    train: tuple[FileName, ...] = Field(min_length=1, description="training files")
    test: tuple[FileName, ...] = Field(min_length=1, description="test files")
    sequence_bytes: int = field(
        2048, "bytes per input of text; an image is one input", ge=16, le=1 << 17
    )
    train_bytes: int = field(
        1 << 28, "maximum bytes read from `train`, held in memory", ge=1, le=1 << 33
    )
    test_bytes: int = field(1 << 22, "maximum bytes read from `test`", ge=1, le=1 << 33)
    encoder: EncoderConfig = EncoderConfig(causal=True)
    training: TrainingConfig = TrainingConfig()

    def _faults(self) -> Iterator[str]:
        if not self.encoder.causal:
            yield "encoder.causal must be true"
        if both := {*self.train} & {*self.test}:
            yield f"test: {min(both)!r} is also listed in train"


LongRangeTask = Literal["listops", "pathfinder"]
_SMALL = EncoderConfig(layers=4, hidden=256, heads=4, block_size=32, random_blocks=2)


class ExamplesConfig(Section):
    """Number of examples per split."""

    train: int = Field(ge=1, description="number of training examples")
    valid: int = Field(ge=1, description="number of validation examples")
    test: int = Field(ge=1, description="number of test examples")


class ListOpsConfig(Section):
    """Prediction of the value of nested operations on digits; defaults as published."""

    examples: ExamplesConfig = ExamplesConfig(train=96_000, valid=2_000, test=2_000)
    shortest: int = field(
        500, "minimum length, tokens, closing brackets included", ge=4
    )
    longest: int = field(2_000, "maximum length, tokens", ge=4, le=20_000)
    depth: int = field(10, "maximum nesting depth, digits included", ge=2, le=50)
    arguments: int = field(
        10, "maximum number of arguments of an operator; the minimum is 2", ge=2, le=50
    )
    training: TrainingConfig = TrainingConfig(
        steps=5_000, optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=500)
    )


class PathfinderConfig(Section):
    """Images of dashed paths, as pixel sequences: predict whether one path connects two circles."""

    examples: ExamplesConfig = ExamplesConfig(train=160_000, valid=20_000, test=20_000)
    size: int = field(
        32,
        "side length of an image, pixels; an input has its square",
        ge=12,
    )
    dashes: int = field(
        6, "number of dashes of each of the two long paths", ge=2, le=40
    )
    distractors: int = field(4, "maximum number of short paths", ge=0, le=40)
    training: TrainingConfig = TrainingConfig(
        steps=60_000,
        batch_size=128,
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=2_000),
    )


class LongRangeConfig(Section):
    """Classifiers of long sequences, one per task, attention and seed."""

    tasks: tuple[LongRangeTask, ...] = field(
        ("listops", "pathfinder"), "tasks: listops, pathfinder", min_length=1
    )
    encoders: dict[str, EncoderConfig] = field(
        {"full": _SMALL.model_copy(update={"attention": "full"}), "bigbird": _SMALL},
        "compared encoders by chosen name; the task sets vocabulary and max_length",
        min_length=1,
    )
    seeds: tuple[Seed, ...] = field(
        (1,), "random seeds of weights and order", min_length=1
    )
    data_seed: int = field(1, "random seed of the examples", ge=0, lt=2**32)
    pooling: Literal["cls", "mean"] = field(
        "mean",
        "input of the classifier; cls: the first token; mean: the mean over all tokens",
    )
    listops: ListOpsConfig = ListOpsConfig()
    pathfinder: PathfinderConfig = PathfinderConfig()

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("tasks", "seeds")
