"""Configuration of tasks on text: a separate YAML file, `workflow/config/nlp.yaml`.

`tasks` maps names, such as `imdb`, to sections, each with its `kind` and the keys of that kind. The key
`training` has arguments of transformers' `TrainingArguments`, which are checked when a training begins.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import apply_override, checked
from bigbird_dna.config.safe_yaml import read_values, shown
from bigbird_dna.config.section import DirectoryName, FileName, Section, field
from bigbird_dna.errors import ConfigError, one_of

SPLITS = ("train", "valid", "test")
# Files of a task, in `NlpConfig.home`.
TRAIN, VALID = "data/train.jsonl", "data/valid.jsonl"
MODEL, CHECKPOINTS = "model", "checkpoints"


class HubConfig(Section):
    """A public data set, downloaded by the library `datasets` (needs a network)."""

    name: str = Field(description="name of the data set")
    subset: str | None = field(None, "subset of the data set; null: the only one")
    valid: float | str = field(
        "validation",
        "split for validation, or the fraction of the training split to hold out at random",
    )
    test: float | str = field("test", "split for testing, or a fraction likewise")


class GeneratedConfig(Section):
    """Generated records with known answers, which are farther from the question than the attention window."""

    train: int = field(2000, "number of training records", ge=1)
    valid: int = field(200, "number of validation records", ge=1)
    test: int = field(200, "number of test records", ge=1)
    words: int = field(400, "words per document", ge=24)


class FilesConfig(Section):
    """User-supplied files, in the format of docs/reference/text-tasks.md."""

    train: FileName = Field(description="file of training records")
    valid: FileName = Field(description="file of validation records")
    test: FileName = Field(description="file of test records")


class DataConfig(Section):
    """Source of the records: exactly one of the four keys."""

    files: FilesConfig | None = field(None, "user-supplied files")
    hub: HubConfig | None = field(None, "a public data set")
    generated: GeneratedConfig | None = field(None, "generated records")
    installed: bool = field(
        False, "Python's own documentation, English text for pretraining"
    )

    def _faults(self) -> Iterator[str]:
        sources = [name for name, value in self if value]
        if len(sources) != 1:
            yield "give exactly one of files, hub, generated, installed"


class TextStartConfig(Section):
    """Initial weights and tokenizer."""

    model: FileName | None = field(
        None,
        "a model directory, or a HuggingFace checkpoint of RoBERTa or BigBird (BigBird-Pegasus, for "
        "summaries); null: random weights",
    )
    vocabulary: int = field(
        2000,
        "vocabulary size of the tokenizer that is trained on the text without a model",
        ge=300,
    )


class TextTaskConfig(Section):
    """Configuration common to all kinds of tasks."""

    data: DataConfig = Field(description="records, in three splits")
    start: TextStartConfig = TextStartConfig()
    encoder: EncoderConfig = EncoderConfig()
    training: dict[str, Any] = field(
        {}, "arguments of transformers' TrainingArguments, such as max_steps"
    )
    published: dict[str, float] = field(
        {}, "published values by metric, which the report marks as published"
    )

    @property
    def seed(self) -> int:
        """Random seed of weights, order and dropout."""
        return int(self.training.get("seed", 1))


class PretrainingTaskConfig(TextTaskConfig):
    """Masked-language modeling in bits per character (Table 10)."""

    kind: Literal["pretraining"]
    length: int = field(512, "tokens per input, including [CLS] and [SEP]", ge=16)
    stride: int = field(
        0, "tokens that consecutive training inputs of a document share", ge=0
    )


class ClassificationTaskConfig(TextTaskConfig):
    """A head on [CLS] for the classes of the training records, or for a score."""

    kind: Literal["classification"]
    length: int = field(
        4096, "most tokens per input; longer inputs are truncated", ge=16
    )
    regression: bool = field(False, "predict a score instead of a class (STS-B)")


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
        False, "data.files are the data set's own files, not files of records"
    )
    length: int = field(4096, "tokens per input, including the question", ge=32)
    stride: int = field(
        2048, "tokens that consecutive inputs of a long document have in common", ge=0
    )
    answer_words: int = field(30, "most words of an answer", ge=1)


class SummariesTaskConfig(TextTaskConfig):
    """Summaries by a decoder with full attention."""

    kind: Literal["summaries"]
    document_tokens: int = field(
        3072, "most tokens of a document; longer documents are truncated", ge=16
    )
    summary_tokens: int = field(
        256, "most tokens of a summary, including [CLS] and [SEP]", ge=2
    )
    generation: dict[str, Any] = field(
        {"num_beams": 5, "length_penalty": 0.8},
        "arguments of transformers' `generate`, such as num_beams",
    )


AnyTask = (
    PretrainingTaskConfig
    | ClassificationTaskConfig
    | AnswersTaskConfig
    | SummariesTaskConfig
)
TaskName = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Tasks = dict[TaskName, Annotated[AnyTask, Field(discriminator="kind")]]


class NlpConfig(Section):
    """All tasks, by name."""

    results: DirectoryName = field("results/nlp", "directory of all outputs")
    tasks: Tasks = field({}, "sections by task name")
    demo: tuple[str, ...] = field((), "tasks of the workflow target nlp_demo")

    def task(self, name: str) -> AnyTask:
        """Return a task's section; `ConfigError` with the known names if there is none."""
        if name not in self.tasks:
            raise ConfigError(f"task {shown(name)}: {one_of(name, self.tasks)}")
        return self.tasks[name]

    def task_text(self, name: str) -> str:
        """Return the keys that are set for a task, as the text of a configuration file (JSON is YAML)."""
        section = self.task(name).model_dump(mode="json", exclude_unset=True)
        values = {"results": self.results, "tasks": {name: section}}
        return json.dumps(values, indent=1, ensure_ascii=False)

    def home(self, name: str) -> Path:
        """Return the directory of a task's files."""
        return Path(self.results, name)


def read_config(path: Path, overrides: Sequence[str] = ()) -> NlpConfig:
    """Read a file, with overrides such as `tasks.imdb.length=512`; `ConfigError` as in `checked`."""
    values = read_values(path)
    for override in overrides:
        apply_override(values, override)
    return parse_config(values, str(path))


def parse_config(values: Mapping[str, Any], source: str = "configuration") -> NlpConfig:
    """Validate a mapping of keys; `ConfigError` as in `checked`."""
    return checked(NlpConfig, values, source)
