"""Sections that the configurations of all tasks on text have in common; see `config`."""

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, field_serializer, model_validator

from bigbird_dna.config import EncoderConfig, Section, TrainingConfig
from bigbird_dna.config.names import FileName
from bigbird_dna.config.section import WATCHING
from bigbird_dna.errors import ConfigError

SPLITS = ("train", "valid", "test")
PART = re.compile(r"([\w.-]+)\[(-?\d+%?)?:(-?\d+%?)?\]")
"""A part of a split: the split, and the first row and the one behind the last, by number or per cent."""


def _split(name: str) -> str:
    if "[" in name and not PART.fullmatch(name):
        raise ValueError("a part of a split is written as train[:90%] or train[1000:]")
    return name


SplitName = Annotated[str, AfterValidator(_split)]


class HubConfig(Section):
    """A public data set that the library `datasets` fetches, where there is a network.

    Many are sorted by class: a part of a split, as `train[:90%]`, is of its rows in an order that is drawn,
    the same for all parts.
    """

    name: str = Field(description="of the data set")
    subset: str | None = Field(default=None, description="of the data set; none: it has one only")
    train: SplitName = Field(
        default="train", description="its split to learn from, or a part of it, as train[:90%]"
    )
    valid: SplitName = Field(default="validation", description="its split to watch")
    test: SplitName = Field(default="test", description="its split to judge on")


class GeneratedConfig(Section):
    """Records made here, whose answer is known, further from its question than any window sees."""

    train: int = Field(default=2000, ge=1, description="records to learn from")
    valid: int = Field(default=200, ge=1, description="records to watch")
    test: int = Field(default=200, ge=1, description="records to judge on")
    words: int = Field(default=400, ge=20, description="of a document")
    seed: int = Field(default=1, ge=0, lt=2**32, description="of what is drawn")


class FilesConfig(Section):
    """Files of one's own, in the form of docs/formats.md."""

    train: FileName = Field(description="records to learn from")
    valid: FileName = Field(description="records to watch")
    test: FileName = Field(description="records to judge on")


class InstalledConfig(Section):
    """English text to pretrain on that is on the machine already."""

    text: Literal["bible", "python"] = Field(
        description="bible: the King James Bible of Debian's bible-kjv; python: Python's own documentation"
    )
    valid: tuple[str, ...] = Field(min_length=1, description="books or topics to watch")
    test: tuple[str, ...] = Field(min_length=1, description="books or topics to judge on")


class DataConfig(Section):
    """Where records come from: exactly one of the four."""

    files: FilesConfig | None = Field(default=None, description="files of one's own")
    hub: HubConfig | None = Field(default=None, description="a public data set")
    generated: GeneratedConfig | None = Field(default=None, description="records made here")
    installed: InstalledConfig | None = Field(
        default=None, description="text on this machine, to pretrain on"
    )

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        given = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"name one of files, hub, generated and installed, not {' and '.join(given) or 'none'}"
            )
        return self


class TextStartConfig(Section):
    """Weights and tokenizer to begin with."""

    model: FileName | None = Field(
        default=None,
        description="a model directory, or a HuggingFace checkpoint of RoBERTa or BigBird (or Pegasus, for "
        "summaries); none: random weights",
    )
    tokenizer: FileName | None = Field(
        default=None,
        description="tokenizer.json or a SentencePiece model; none: the model's, or one learnt from the text",
    )
    vocabulary: int = Field(default=2000, ge=300, description="pieces of a tokenizer that is learnt")
    compatibility: Literal["huggingface", "none"] = Field(
        default="none",
        description="of a checkpoint's attention; huggingface: as its evaluation computes it; none: the "
        "paper's",
    )


class TextTrainingConfig(TrainingConfig):
    """Training on text; the paper counts in epochs and shares of them."""

    epochs: float | None = Field(
        default=None, gt=0, description="passes over the training records, in place of steps"
    )
    warmup_share: float | None = Field(
        default=None, ge=0, le=1, description="of the steps, in place of optimizer.warmup_steps"
    )

    @property
    def steps_hold(self) -> bool:
        """Whether `epochs` doesn't stand in place of `steps`."""
        return self.epochs is None

    def for_records(self, count: int) -> Self:
        """The same with the steps that `epochs` of `count` records are, and their warm-up.

        `ConfigError` if another key doesn't go with so many steps.
        """
        steps = (
            self.steps if self.epochs is None else max(1, math.ceil(self.epochs * count / self.batch_size))
        )
        optimizer = self.optimizer
        if self.warmup_share is not None:
            optimizer = optimizer.model_copy(update={"warmup_steps": round(self.warmup_share * steps)})
        found = self.model_copy(update={"steps": steps, "optimizer": optimizer})
        try:
            found.check_steps()
        except ValueError as error:
            raise ConfigError(f"training.{error} (epochs {self.epochs}, records {count})") from None
        return found


class RecordsTrainingConfig(TextTrainingConfig):
    """Training on records of which some are watched."""

    evaluation_records: Annotated[int, WATCHING] = Field(
        default=1000, ge=1, description="of the valid split that are watched, at most; drawn, always the same"
    )


class TextTask(Section):
    """What the configuration says of a task, whatever its kind."""

    data: DataConfig = Field(description="records, in three splits")
    start: TextStartConfig = TextStartConfig()
    encoder: EncoderConfig = EncoderConfig()
    training: TextTrainingConfig = TextTrainingConfig()
    published: dict[str, float] = Field(
        default={}, description="the paper's figures by metric, which the report marks as published"
    )

    @field_serializer("start", "encoder", mode="wrap")
    def _as_given(self, section: Section, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Beside a model it is what these sections give that counts: a copy must give no more. Random weights
        # have every key of the encoder, at its default of today.
        values: dict[str, Any] = dump(section)
        if isinstance(section, EncoderConfig) and self.start.model is None:
            return values
        return {key: value for key, value in values.items() if key in section.model_fields_set}


class TextPaths:
    """The names of a task's files, under `results` and the task's name."""

    def __init__(self, results: Path, name: str) -> None:
        self.directory = results / name
        self.data = self.directory / "data"
        self.model = self.directory / "model"
        self.predictions = self.directory / "predictions.jsonl"
        self.evaluation = self.directory / "evaluation.json"
        self.checkpoints = self.directory / "checkpoints"

    def split(self, split: str) -> Path:
        """The records of a split."""
        return self.data / f"{split}.jsonl"
