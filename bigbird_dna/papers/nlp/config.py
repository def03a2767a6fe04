"""Configuration of tasks on text: a separate YAML file, `workflow/config/nlp.yaml`.

`tasks` maps names, such as `imdb`, to sections, each with its `kind` and the keys of that kind. The rules are
those of the configuration of a genome's run: no code, no unknown keys, and a one-line message for each error.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
)

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import apply_override, checked
from bigbird_dna.config.safe_yaml import read_values, shown
from bigbird_dna.config.section import (
    MONITORING,
    DirectoryName,
    FileName,
    Section,
    field,
)
from bigbird_dna.config.training import (
    PretrainingConfig,
    ShorterConfig,
    TrainingConfig,
    check_curriculum,
)
from bigbird_dna.errors import ConfigError, one_of

SPLITS = ("train", "valid", "test")
PART = re.compile(r"([\w.-]+)\[(-?\d+%?)?:(-?\d+%?)?\]")
"""A part of a split: name of the split, first row and row after the last, as numbers or percentages."""


def _split(name: str) -> str:
    if "[" in name and not PART.fullmatch(name):
        raise ValueError(
            "a part of a split must have the form train[:90%] or train[1000:]"
        )
    return name


SplitName = Annotated[str, AfterValidator(_split)]


class HubConfig(Section):
    """A public data set, downloaded by the library `datasets` (needs a network).

    Many data sets are sorted by class. A part of a split, such as `train[:90%]`, therefore has rows in a
    random order, which is the same for all parts.
    """

    name: str = Field(description="name of the data set")
    subset: str | None = field(None, "subset of the data set; null: the only one")
    train: SplitName = field(
        "train", "split for training, or a part of it such as train[:90%]"
    )
    valid: SplitName = field("validation", "split for validation")
    test: SplitName = field("test", "split for testing")


class GeneratedConfig(Section):
    """Generated records with known answers, which are farther from the question than the attention window."""

    train: int = field(2000, "number of training records", ge=1)
    valid: int = field(200, "number of validation records", ge=1)
    test: int = field(200, "number of test records", ge=1)
    words: int = field(400, "words per document", ge=20)
    seed: int = field(1, "random seed", ge=0, lt=2**32)


class FilesConfig(Section):
    """User-supplied files, in the format of docs/reference/text-tasks.md."""

    train: FileName = Field(description="file of training records")
    valid: FileName = Field(description="file of validation records")
    test: FileName = Field(description="file of test records")


class InstalledConfig(Section):
    """English text for pretraining that is on every machine: Python's own documentation."""

    valid: tuple[str, ...] = Field(min_length=1, description="topics for validation")
    test: tuple[str, ...] = Field(min_length=1, description="topics for testing")


class DataConfig(Section):
    """Source of the records: exactly one of the four keys."""

    files: FilesConfig | None = field(None, "user-supplied files")
    hub: HubConfig | None = field(None, "a public data set")
    generated: GeneratedConfig | None = field(None, "generated records")
    installed: InstalledConfig | None = field(None, "installed text, for pretraining")

    def _faults(self) -> Iterator[str]:
        sources = list(self.model_dump(exclude_none=True))
        if len(sources) != 1:
            yield f"give exactly one of files, hub, generated, installed, not {' and '.join(sources) or 'none'}"


class TextStartConfig(Section):
    """Initial weights and tokenizer."""

    model: FileName | None = field(
        None,
        "a model directory, or a HuggingFace checkpoint of RoBERTa or BigBird (BigBird-Pegasus, for summaries "
        "of the form pegasus); null: random weights",
    )
    vocabulary: int = field(
        2000,
        "vocabulary size of the tokenizer that is trained on the text without a model",
        ge=300,
    )

    def _faults(self) -> Iterator[str]:
        if self.model is not None and "vocabulary" in self.model_fields_set:
            yield f"vocabulary {self.vocabulary}: has no effect with a model"


class TextTrainingConfig(TrainingConfig):
    """Training on text; the paper specifies epochs and fractions of them."""

    epochs: float | None = field(
        None, "passes over the training records, instead of steps", gt=0
    )
    warmup_share: float | None = field(
        None, "warm-up steps as a fraction of all steps", ge=0, le=1
    )

    @property
    def steps_hold(self) -> bool:
        """Whether `steps` is used, because `epochs` is not set."""
        return self.epochs is None

    def for_records(self, count: int) -> Self:
        """Return the configuration with steps from `epochs` over `count` records, and their warm-up.

        `ConfigError` if another key is not compatible with this number of steps.
        """
        steps, optimizer = self.steps, self.optimizer
        if self.epochs is not None:
            steps = max(1, math.ceil(self.epochs * count / self.batch_size))
        if self.warmup_share is not None:
            optimizer = optimizer.model_copy(
                update={"warmup_steps": round(self.warmup_share * steps)}
            )
        config = self.model_copy(update={"steps": steps, "optimizer": optimizer})
        try:
            config.check_steps()
        except ValueError as error:
            raise ConfigError(
                f"training.{error} (epochs {self.epochs}, records {count})"
            ) from None
        return config


class RecordsTrainingConfig(TextTrainingConfig):
    """Training on records, with validation records for monitoring."""

    evaluation_records: Annotated[int, MONITORING] = field(
        1000,
        "most validation records for monitoring, in a fixed random selection",
        ge=1,
    )


class TextTaskConfig(Section):
    """Configuration common to all kinds of tasks."""

    data: DataConfig = Field(description="records, in three splits")
    start: TextStartConfig = TextStartConfig()
    encoder: EncoderConfig = EncoderConfig()
    training: TextTrainingConfig = TextTrainingConfig()
    published: dict[str, float] = field(
        {}, "published values by metric, which the report marks as published"
    )

    @field_serializer("start", "encoder", mode="wrap")
    def _set_keys(
        self, section: Section, dump: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        # With a model, only the keys that were set count, and a copy must not contain more. With random
        # weights, all keys of the encoder are stored with their current defaults.
        values: dict[str, Any] = dump(section)
        if isinstance(section, EncoderConfig) and self.start.model is None:
            return values
        return {key: values[key] for key in values if key in section.model_fields_set}


class TextPretrainingConfig(PretrainingConfig, TextTrainingConfig):
    """Masked-token training, with the keys of both base classes."""


class PretrainingTaskConfig(TextTaskConfig):
    """Masked-language modeling in bits per character (Table 10)."""

    kind: Literal["pretraining"]
    training: TextPretrainingConfig = TextPretrainingConfig()


class ClassificationTaskConfig(TextTaskConfig):
    """A head on [CLS] for the classes of the training records, or for a score."""

    kind: Literal["classification"]
    length: int = field(
        4096, "most tokens per input; longer inputs are truncated", ge=16
    )
    regression: bool = field(False, "predict a score instead of a class (STS-B)")
    training: RecordsTrainingConfig = RecordsTrainingConfig()


LEAST_CONTEXT = 16
"""Least number of input tokens left by a question and its candidates; three of them are [CLS] and [SEP]."""
AnswerForm = Literal["span", "hotpotqa", "natural_questions", "triviaqa", "wikihop"]


class AnswersTaskConfig(TextTaskConfig):
    """Answers, supporting facts or candidates, in long documents.

    With `encoder.num_global_tokens`, the extended construction (ETC) is used: extra globals represent
    question tokens, paragraphs, sentences and candidates. Without it, tokens of the sequence are global.
    """

    kind: Literal["qa"]
    form: AnswerForm = field(
        "span",
        "expected output and its metrics: span (an answer in the text), or those of one of the data sets",
    )
    public: bool = field(
        False,
        "data.files are the original files of Natural Questions or WikiHop, not files of records",
    )
    length: int = field(4096, "tokens per input, including the question", ge=32)
    stride: int = field(
        2048, "distance in tokens between inputs of a long document", ge=1
    )
    question_tokens: int = field(
        64, "most tokens of a question; longer questions are truncated", ge=1
    )
    answer_words: int = field(30, "most words of an answer", ge=1)
    training: RecordsTrainingConfig = RecordsTrainingConfig()

    def _faults(self) -> Iterator[str]:
        question = f"question_tokens {self.question_tokens}"
        extra = self.encoder.num_global_tokens
        if self.length > self.encoder.max_length:
            yield f"length {self.length}: must be at most encoder.max_length {self.encoder.max_length}"
        if self.question_tokens + LEAST_CONTEXT > self.length:
            yield f"{question}: leaves no room in length {self.length}"
        if extra and self.question_tokens + 8 > extra:
            yield f"{question}: leaves none of the encoder.num_global_tokens {extra} for paragraphs"
        is_file = self.form in ("natural_questions", "wikihop")
        if self.public and (not is_file or self.data.files is None):
            yield "public needs data.files, and form natural_questions or wikihop"


class SearchConfig(Section):
    """Search for summaries. Lengths include the start token."""

    beams: int = field(5, "number of beams; 1: greedy search", ge=1, le=100)
    length_penalty: float = field(
        0.8, "exponent of the length that divides a summary's log-probability"
    )
    max_length: int = field(256, "most tokens of a summary", ge=2)


class SummariesTrainingConfig(RecordsTrainingConfig):
    """Training of a summarizer."""

    length_curriculum: tuple[ShorterConfig, ...] = field(
        (), "initial steps on shorter documents, in consecutive stages"
    )
    initial_cross: Literal["matching", "random"] = field(
        "random",
        "initialization of new cross-attention; matching: attends to document tokens equal to the last "
        "token of the summary; random: like other weights, as published",
    )

    def _faults(self) -> Iterator[str]:
        if self.steps_hold:
            self.check_steps()
        yield from ()

    def check_steps(self) -> None:
        """Raise `ValueError` if the stages on shorter documents take all steps."""
        check_curriculum(self.length_curriculum, self.steps)

    def tokens_at(self, step: int, final: int) -> int:
        """Return the document tokens at a step (from 0), if documents have `final` tokens in the end."""
        for stage in self.length_curriculum:
            if step < stage.steps:
                return min(stage.tokens, final)
            step -= stage.steps
        return final


SummaryForm = Literal["base", "pegasus"]


class SummariesTaskConfig(TextTaskConfig):
    """Summaries by a decoder with full attention."""

    kind: Literal["summaries"]
    form: SummaryForm = field(
        "base",
        "base: the decoder uses the encoder's weights except for attention to the document; "
        "pegasus: LayerNorm before each part and a separate decoder, as in BigBird-Pegasus",
    )
    document_tokens: int = field(
        3072, "most tokens of a document; longer documents are truncated", ge=16
    )
    keep: Literal["first", "last"] = field(
        "first", "part of a longer document that is kept"
    )
    search: SearchConfig = SearchConfig()
    training: SummariesTrainingConfig = SummariesTrainingConfig()


AnyTask = (
    PretrainingTaskConfig
    | ClassificationTaskConfig
    | AnswersTaskConfig
    | SummariesTaskConfig
)


class TextPaths:
    """Paths of a task's files, below `results` and the task's name."""

    def __init__(self, results: Path, name: str) -> None:
        directory = results / name
        self.data = directory / "data"
        self.model = directory / "model"
        self.checkpoints = directory / "checkpoints"
        self.predictions = directory / "predictions.jsonl"
        self.evaluation = directory / "evaluation.json"

    def split(self, split: str) -> Path:
        return self.data / f"{split}.jsonl"


TaskName = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Tasks = dict[
    TaskName,
    Annotated[AnyTask, Field(discriminator="kind")],
]


class NlpConfig(Section):
    """All tasks, by name."""

    KINDS: ClassVar = {
        "pretraining": PretrainingTaskConfig,
        "classification": ClassificationTaskConfig,
        "qa": AnswersTaskConfig,
        "summaries": SummariesTaskConfig,
    }
    """Kind of a task → class of its section."""

    results: DirectoryName = field("results/nlp", "directory of all outputs")
    tasks: Tasks = field({}, "sections by task name")
    demo: tuple[str, ...] = field((), "tasks of the workflow target nlp_demo")

    def _faults(self) -> Iterator[str]:
        for name in self.demo:
            self.task(name)
        yield from ()

    def task(self, name: str) -> AnyTask:
        """Return a task's section; `ConfigError` with the known names if there is none."""
        if name not in self.tasks:
            raise ConfigError(f"task {shown(name)}: {one_of(name, self.tasks)}")
        return self.tasks[name]

    def task_text(self, name: str) -> str:
        """Return a task's section with all keys, as the text of a configuration file (JSON is YAML)."""
        values = {
            "results": self.results,
            "tasks": {name: self.task(name).model_dump(mode="json")},
        }
        return json.dumps(values, indent=1, ensure_ascii=False)

    def paths(self, name: str) -> TextPaths:
        return TextPaths(Path(self.results), name)


def read_config(path: Path, overrides: Sequence[str] = ()) -> NlpConfig:
    """Read a file, with overrides such as `tasks.imdb.training.steps=10`; `ConfigError` as in `checked`."""
    values = read_values(path)
    for override in overrides:
        apply_override(values, override)
    return parse_config(values, str(path))


def parse_config(values: Mapping[str, Any], source: str = "configuration") -> NlpConfig:
    """Validate a mapping of keys; `ConfigError` as in `checked`."""
    return checked(NlpConfig, values, source)
