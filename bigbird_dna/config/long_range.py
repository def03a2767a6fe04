"""The sections `byte_lm` (causal models of images and text) and `long_range_arena` (generated tasks)."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints

from bigbird_dna.config.experiments import Seed
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.section import FileName, Section, field
from bigbird_dna.config.training import OptimizerConfig, TrainingConfig
from bigbird_dna.errors import ConfigError

ByteLmFormat = Literal["cifar10", "imagenet64", "wiki40b", "c4"]
IMAGE_BYTES = {"cifar10": 3 * 32**2, "imagenet64": 3 * 64**2}
"""Bytes of an image by format; documents have any length."""


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
    encoder: EncoderConfig = EncoderConfig()
    training: TrainingConfig = TrainingConfig()

    def _faults(self) -> Iterator[str]:
        if both := {*self.train} & {*self.test}:
            yield f"test: {min(both)!r} is also listed in train"

    @property
    def input_bytes(self) -> int:
        """Bytes of the longest input."""
        return IMAGE_BYTES.get(self.format, self.sequence_bytes)


LongRangeTask = Literal["listops", "pathfinder"]
LONG_RANGE_TASKS: tuple[LongRangeTask, ...] = get_args(LongRangeTask)
AttentionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,40}$")]


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

    def _faults(self) -> Iterator[str]:
        if self.shortest > self.longest:
            yield f"shortest {self.shortest} must be at most longest {self.longest}"


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
        LONG_RANGE_TASKS, "tasks: listops, pathfinder", min_length=1
    )
    attentions: dict[AttentionName, dict[str, Any]] = field(
        {"full": {"attention": "full"}, "bigbird": {}},
        "compared encoders: chosen name and keys of `encoder` that differ",
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
    encoder: EncoderConfig = EncoderConfig(
        layers=4, hidden=256, heads=4, block_size=32, random_blocks=2
    )
    listops: ListOpsConfig = ListOpsConfig()
    pathfinder: PathfinderConfig = PathfinderConfig()

    def _faults(self) -> Iterator[str]:
        for name in self.attentions:
            try:
                encoder = self.encoder_of(name, 1, 16)
                encoder.check_no_bases()
                if encoder.causal and self.pooling == "cls":
                    raise ConfigError("pooling cls: a causal first token sees no other")
            except (ValueError, ConfigError) as error:
                first = (
                    error.errors()[0]["msg"] if hasattr(error, "errors") else str(error)
                )
                yield f"attentions.{name}: {first.removeprefix('Value error, ')}"
        yield from self._repeats("tasks", "seeds")

    def encoder_of(
        self, attention: str, vocabulary: int, longest: int
    ) -> EncoderConfig:
        """Return the encoder of an entry of `attentions` for a vocabulary size and maximum length."""
        own, values = self.attentions[attention], self.encoder.model_dump()
        if own.get("attention", self.encoder.attention) != self.encoder.attention:
            values[
                "attention_options"
            ] = {}  # options of the encoder belong to its own mechanism
        return EncoderConfig.model_validate(
            {**values, **own, "vocabulary": vocabulary, "max_length": max(16, longest)}
        )
