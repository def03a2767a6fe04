"""The sections `byte_lm`, of causal models of images and text, and `long_range_arena`, of generated data."""

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
"""Of an image, by format; documents have any number."""


class ByteLmConfig(Section):
    """A causal model of bytes, and the files that it learns from and is evaluated on."""

    format: ByteLmFormat = Field(description="of the files: cifar10, imagenet64, wiki40b, c4")
    train: tuple[FileName, ...] = Field(min_length=1, description="files to learn from")
    test: tuple[FileName, ...] = Field(min_length=1, description="files to evaluate on")
    sequence_bytes: int = field(2048, "of an input from text; an image is an input", ge=16, le=1 << 17)
    train_bytes: int = field(1 << 28, "read of `train` at most, in memory", ge=1, le=1 << 33)
    test_bytes: int = field(1 << 22, "read of `test` at most", ge=1, le=1 << 33)
    encoder: EncoderConfig = EncoderConfig()
    training: TrainingConfig = TrainingConfig()

    def _faults(self) -> Iterator[str]:
        if both := {*self.train} & {*self.test}:
            yield f"test: {min(both)!r} is in train as well"

    @property
    def input_bytes(self) -> int:
        """Of the longest input."""
        return IMAGE_BYTES.get(self.format, self.sequence_bytes)


LongRangeTask = Literal["listops", "pathfinder"]
LONG_RANGE_TASKS: tuple[LongRangeTask, ...] = get_args(LongRangeTask)
AttentionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,40}$")]

MOST_EXAMPLES = 1_000_000
"""Of a split."""
MOST_SIDE = 128
"""Pixels of an image's side."""


class ExamplesConfig(Section):
    """How many examples there are of each split."""

    train: int = Field(ge=1, le=MOST_EXAMPLES, description="to learn from")
    valid: int = Field(ge=1, le=MOST_EXAMPLES, description="measured on while training")
    test: int = Field(ge=1, le=MOST_EXAMPLES, description="evaluated on in the end")


class ListOpsConfig(Section):
    """Nested operations on digits, whose value is to be told; defaults as published."""

    examples: ExamplesConfig = ExamplesConfig(train=96_000, valid=2_000, test=2_000)
    shortest: int = field(500, "tokens, closing brackets included", ge=4)
    longest: int = field(2_000, "tokens", ge=4, le=20_000)
    depth: int = field(10, "of nesting, at most, digits included", ge=2, le=50)
    arguments: int = field(10, "of an operator, at most; at least 2", ge=2, le=50)
    training: TrainingConfig = TrainingConfig(
        steps=5_000, optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=500)
    )

    def _faults(self) -> Iterator[str]:
        if self.shortest > self.longest:
            yield f"shortest {self.shortest} is above longest {self.longest}"


class PathfinderConfig(Section):
    """Images of dashed paths: whether one path joins the two circles, pixel after pixel."""

    examples: ExamplesConfig = ExamplesConfig(train=160_000, valid=20_000, test=20_000)
    size: int = field(32, "pixels of a side; its square is an input", ge=12, le=MOST_SIDE)
    dashes: int = field(6, "of each of the two long paths", ge=2, le=40)
    distractors: int = field(4, "short paths, at most", ge=0, le=40)
    training: TrainingConfig = TrainingConfig(
        steps=60_000, batch_size=128, optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=2_000)
    )


class LongRangeConfig(Section):
    """Classifiers of long sequences, one for each task, attention and seed."""

    tasks: tuple[LongRangeTask, ...] = field(LONG_RANGE_TASKS, "listops, pathfinder", min_length=1)
    attentions: dict[AttentionName, dict[str, Any]] = field(
        {"full": {"attention": "full"}, "bigbird": {}},
        "what is compared: keys of the encoder that differ, by a name of your own",
        min_length=1,
        max_length=40,
    )
    seeds: tuple[Seed, ...] = field((1,), "of weights and order", min_length=1, max_length=20)
    data_seed: int = field(1, "of the examples", ge=0, lt=2**32)
    pooling: Literal["cls", "mean"] = field(
        "mean", "what is classified: the first token, or the mean over tokens"
    )
    encoder: EncoderConfig = EncoderConfig(layers=4, hidden=256, heads=4, block_size=32, random_blocks=2)
    listops: ListOpsConfig = ListOpsConfig()
    pathfinder: PathfinderConfig = PathfinderConfig()

    def _faults(self) -> Iterator[str]:
        for name in self.attentions:
            try:
                self.encoder_of(name, 1, 16).check_pooling(self.pooling, "long_range_arena")
            except (ValueError, ConfigError) as error:
                first = error.errors()[0]["msg"] if hasattr(error, "errors") else str(error)
                yield f"attentions.{name}: {first.removeprefix('Value error, ')}"
        yield from self._repeats("tasks", "seeds")

    def encoder_of(self, attention: str, vocabulary: int, longest: int) -> EncoderConfig:
        """The encoder with an attention of `attentions`, for inputs of so many kinds and tokens."""
        own, values = self.attentions[attention], self.encoder.model_dump()
        if own.get("attention", self.encoder.attention) != self.encoder.attention:
            values["attention_options"] = {}  # those of the encoder are of its own mechanism
        return EncoderConfig.model_validate(
            {**values, **own, "vocabulary": vocabulary, "max_length": max(16, longest)}
        )
