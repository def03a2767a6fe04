"""The configuration of tasks on text: a YAML file of its own, `workflow/config/nlp.yaml`.

`tasks` maps names, such as `imdb`, to sections, each with its `kind` and that kind's keys. It is read by the
same rules as the configuration of a genome's run: data alone, unknown keys refused, one line about a fault.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, field_serializer

from bigbird_dna.config import EncoderConfig, PretrainingConfig, Section, TrainingConfig
from bigbird_dna.config.reading import apply_override, checked, named, values_and_text
from bigbird_dna.config.safe_yaml import shown
from bigbird_dna.config.section import MONITORING, DirectoryName, FileName, field
from bigbird_dna.config.training import ShorterConfig, check_stages
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
    subset: str | None = field(None, "of the data set; none: it has one only")
    train: SplitName = field("train", "its split to learn from, or a part of it, as train[:90%]")
    valid: SplitName = field("validation", "its split to watch")
    test: SplitName = field("test", "its split to evaluate on")


class GeneratedConfig(Section):
    """Records made here, whose answer is known, further from its question than any window sees."""

    train: int = field(2000, "records to learn from", ge=1)
    valid: int = field(200, "records to watch", ge=1)
    test: int = field(200, "records to evaluate on", ge=1)
    words: int = field(400, "of a document", ge=20)
    seed: int = field(1, "of what is drawn", ge=0, lt=2**32)


class FilesConfig(Section):
    """Files of one's own, in the form of docs/files/text-records.md."""

    train: FileName = Field(description="records to learn from")
    valid: FileName = Field(description="records to watch")
    test: FileName = Field(description="records to evaluate on")


class InstalledConfig(Section):
    """English text to pretrain on that is on the machine already."""

    text: Literal["bible", "python"] = Field(
        description="bible: the King James Bible of Debian's bible-kjv; python: Python's own documentation"
    )
    valid: tuple[str, ...] = Field(min_length=1, description="books or topics to watch")
    test: tuple[str, ...] = Field(min_length=1, description="books or topics to evaluate on")


class DataConfig(Section):
    """Where records come from: exactly one of the four."""

    files: FilesConfig | None = field(None, "files of one's own")
    hub: HubConfig | None = field(None, "a public data set")
    generated: GeneratedConfig | None = field(None, "records made here")
    installed: InstalledConfig | None = field(None, "text on this machine, to pretrain on")

    def _faults(self) -> Iterator[str]:
        given = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(given) != 1:
            yield f"name one of files, hub, generated and installed, not {' and '.join(given) or 'none'}"


class TextStartConfig(Section):
    """Weights and tokenizer to begin with."""

    model: FileName | None = field(
        None,
        "a model directory, or a HuggingFace checkpoint of RoBERTa or BigBird (or Pegasus, for "
        "summaries); none: random weights",
    )
    tokenizer: FileName | None = field(
        None, "tokenizer.json or a SentencePiece model; none: the model's, or one learnt from the text"
    )
    vocabulary: int = field(2000, "pieces of a tokenizer that is learnt", ge=300)
    compatibility: Literal["huggingface", "none"] = field(
        "none", "of a checkpoint's attention; huggingface: as its evaluation computes it; none: the paper's"
    )


class TextTrainingConfig(TrainingConfig):
    """Training on text; the paper counts in epochs and shares of them."""

    epochs: float | None = field(None, "passes over the training records, in place of steps", gt=0)
    warmup_share: float | None = field(None, "of the steps, in place of optimizer.warmup_steps", ge=0, le=1)

    @property
    def steps_hold(self) -> bool:
        """Whether `epochs` doesn't stand in place of `steps`."""
        return self.epochs is None

    def for_records(self, count: int) -> Self:
        """The same with the steps that `epochs` of `count` records are, and their warm-up.

        `ConfigError` if another key doesn't go with so many steps.
        """
        steps, optimizer = self.steps, self.optimizer
        if self.epochs is not None:
            steps = max(1, math.ceil(self.epochs * count / self.batch_size))
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

    evaluation_records: Annotated[int, MONITORING] = field(
        1000, "of the valid split that are watched, at most; drawn, always the same", ge=1
    )


class TextTaskConfig(Section):
    """What the configuration says of a task, whatever its kind."""

    data: DataConfig = Field(description="records, in three splits")
    start: TextStartConfig = TextStartConfig()
    encoder: EncoderConfig = EncoderConfig()
    training: TextTrainingConfig = TextTrainingConfig()
    published: dict[str, float] = field(
        {}, "the paper's figures by metric, which the report marks as published"
    )

    @field_serializer("start", "encoder", mode="wrap")
    def _as_given(self, section: Section, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Beside a model it is what these sections give that counts: a copy must give no more. Random weights
        # have every key of the encoder, at its default of today.
        values: dict[str, Any] = dump(section)
        if isinstance(section, EncoderConfig) and self.start.model is None:
            return values
        return {key: value for key, value in values.items() if key in section.model_fields_set}


class TextPretrainingConfig(PretrainingConfig, TextTrainingConfig):
    """Masked-token training; the keys of both."""


class PretrainingTaskConfig(TextTaskConfig):
    """Masked-language modelling in bits per character (Table 10)."""

    kind: Literal["pretraining"]
    training: TextPretrainingConfig = TextPretrainingConfig()
    character_order: int = field(8, "longest character n-gram that the model is compared with", ge=1, le=12)


ClassMetric = Literal["accuracy", "micro_f1", "f1", "matthews", "pearson", "spearman"]


class ClassificationTaskConfig(TextTaskConfig):
    """One head on [CLS], for the classes of the training records or for a score."""

    kind: Literal["classification"]
    length: int = field(4096, "tokens of an input; what is further on isn't seen", ge=16)
    regression: bool = field(False, "predict a score, not a class (STS-B)")
    positive: str | None = field(None, "class whose F1 is f1; none: the last by name, of two classes")
    head: Literal["linear", "dense"] = field(
        "linear", "linear: one layer on [CLS], as in the paper; dense: another before it, as HuggingFace's"
    )
    metric: ClassMetric = field("accuracy", "the one that the report shows first")
    training: RecordsTrainingConfig = RecordsTrainingConfig()


LEAST_CONTEXT = 16
"""Tokens of an input that a question and its candidates leave, at least; three are [CLS] and [SEP]."""
AnswerForm = Literal["span", "hotpotqa", "natural_questions", "triviaqa", "wikihop"]


class AnswersTaskConfig(TextTaskConfig):
    """Answers, supporting facts or candidates, in long documents.

    With `encoder.num_global_tokens` it is the extended construction (ETC): the extra globals stand for the
    question's tokens, paragraphs, sentences and candidates. Without, some of the sequence's own tokens do.
    """

    kind: Literal["qa"]
    form: AnswerForm = field(
        "span",
        "what is asked for and how it is judged: span (an answer that stands in the text), or as "
        "one of the data sets",
    )
    public: bool = field(False, "data.files are the data set's own files, not files of records")
    length: int = field(4096, "tokens of an input, the question included", ge=32)
    stride: int = field(2048, "tokens from an input to the next, of long documents", ge=1)
    question_tokens: int = field(64, "of a question; what is further on isn't read", ge=1)
    answer_words: int = field(30, "longest answer", ge=1)
    unanswerable: bool = field(False, "form span: a document may have no answer, which is then the empty one")
    hops: Literal[1, 2] = field(1, "generated documents: facts from the question to the answer")
    facts_weight: float = field(1.0, "of the supporting facts' loss, beside that of the answer", ge=0)
    training: RecordsTrainingConfig = RecordsTrainingConfig()

    def _faults(self) -> Iterator[str]:
        given, extra = f"question_tokens {self.question_tokens}", self.encoder.num_global_tokens
        if self.length > self.encoder.max_length:
            yield f"length {self.length} is above encoder.max_length {self.encoder.max_length}"
        if self.question_tokens + LEAST_CONTEXT > self.length:
            yield f"{given} leave no room in length {self.length}"
        if extra and self.question_tokens + 8 > extra:
            yield f"{given} leave none of the encoder.num_global_tokens {extra} for paragraphs"
        if self.public and (self.form == "span" or self.data.files is None):
            yield "public needs data.files, and the form of a data set"
        if self.unanswerable and self.form != "span":
            yield f"unanswerable goes with form span, not {self.form}"


SummaryForm = Literal["base", "pegasus"]


class DecoderShape(Section):
    """A decoder of its own, of the Pegasus form."""

    layers: int = Field(ge=1, description="of the decoder")
    heads: int = Field(ge=1, description="attention heads of a layer")
    intermediate: int = Field(ge=1, description="width between the two feed-forward layers")


class SearchConfig(Section):
    """How a summary is found. Lengths count the token that summaries begin with."""

    beams: int = field(5, "1: the likeliest token each time", ge=1, le=100)
    length_penalty: float = field(0.8, "a summary's log-probability is divided by its length to this power")
    early_stopping: bool | Literal["never"] = field(
        True,
        "true: end with as many whole summaries as beams; false: when none that is open scores "
        "better at its present length; never: when none can at any length",
    )
    min_length: int = field(0, "tokens before a summary may end", ge=0)
    max_length: int = field(256, "tokens of the longest summary", ge=2)
    no_repeat: int = field(0, "no sequence of so many tokens occurs twice; 0: any", ge=0)


class SpecialIds(Section):
    """Ids that mean something to a decoder."""

    start: int = Field(ge=0, description="what every summary begins with, and is not part of")
    end: int = Field(ge=0, description="what ends one")
    pad: int = Field(ge=0, description="what fills rows up")
    forced_first: int | None = field(None, "what a summary's first token must be", ge=0)
    forced_last: int | None = field(None, "what the last token of a summary of max_length must be", ge=0)


class SummariesTrainingConfig(RecordsTrainingConfig):
    """Training of a summarizer."""

    label_smoothing: float = field(
        0.0, "share of a token's probability that is spread over all tokens", ge=0, lt=1
    )
    length_curriculum: tuple[ShorterConfig, ...] = field(
        (), "first steps on shorter documents, one stage after the other"
    )
    initial_cross: Literal["matching", "random"] = field(
        "random",
        "of fresh attention to the document; matching: it begins by looking where the document "
        "has the token that the summary ends with so far; random: as other weights, as published",
    )

    def _faults(self) -> Iterator[str]:
        if self.steps_hold:
            self.check_steps()
        yield from ()

    def check_steps(self) -> None:
        """`ValueError` if shorter documents take all steps."""
        check_stages(self.length_curriculum, self.steps)

    def tokens_at(self, step: int, whole: int) -> int:
        """Tokens of a document at a step, counted from 0, where it has `whole` of them in the end."""
        for stage in self.length_curriculum:
            if step < stage.steps:
                return min(stage.tokens, whole)
            step -= stage.steps
        return whole


class SummariesTaskConfig(TextTaskConfig):
    """Summaries by a decoder with full attention."""

    kind: Literal["summaries"]
    form: SummaryForm = field(
        "base",
        "base: the decoder shares the encoder's weights but for its attention to the document; "
        "pegasus: LayerNorm before each part and a decoder of its own, as BigBird-Pegasus",
    )
    decoder: DecoderShape | None = field(
        None, "of the form pegasus; none: as the encoder, or as the checkpoint has it"
    )
    document_tokens: int = field(3072, "of a document, the rest isn't seen", ge=16)
    keep: Literal["first", "last"] = field("first", "which part of a longer document is seen")
    search: SearchConfig = SearchConfig()
    training: SummariesTrainingConfig = SummariesTrainingConfig()

    def _faults(self) -> Iterator[str]:
        if self.decoder is not None and self.form != "pegasus":
            yield "decoder: only the form pegasus has a decoder of its own"
        if self.search.min_length >= self.search.max_length:
            lengths = f"min_length {self.search.min_length}, max_length {self.search.max_length}"
            yield f"search: {lengths}: no summary has such a length"


AnyTask = PretrainingTaskConfig | ClassificationTaskConfig | AnswersTaskConfig | SummariesTaskConfig


class TextPaths:
    """The names of a task's files, under `results` and the task's name."""

    def __init__(self, results: Path, name: str) -> None:
        home = results / name
        self.data, self.model, self.checkpoints = home / "data", home / "model", home / "checkpoints"
        self.predictions, self.evaluation = home / "predictions.jsonl", home / "evaluation.json"

    def split(self, split: str) -> Path:
        return self.data / f"{split}.jsonl"


def _name(text: str) -> str:
    if not text.replace("-", "").replace("_", "").isalnum() or not text.isascii() or text[0] in "-_":
        raise ValueError("a task's name has letters, digits, '-' and '_', and begins with a letter or digit")
    return text


Tasks = dict[Annotated[str, AfterValidator(_name)], Annotated[AnyTask, Field(discriminator="kind")]]


class NlpConfig(Section):
    """All tasks, by name."""

    KINDS: ClassVar = {get_args(one.model_fields["kind"].annotation)[0]: one for one in get_args(AnyTask)}
    """Kind of a task → its section."""

    results: DirectoryName = field("results/nlp", "directory of every output")
    tasks: Tasks = field({}, "sections by a name of one's own")
    demo: tuple[str, ...] = field((), "tasks that the target nlp_demo runs")

    def _faults(self) -> Iterator[str]:
        for name in self.demo:
            self.task(name)
        yield from ()

    def task(self, name: str) -> AnyTask:
        """A task's section; `ConfigError` with the names that there are."""
        if name not in self.tasks:
            raise ConfigError(f"task {shown(name)} is not one of {', '.join(self.tasks) or '(none)'}")
        return self.tasks[name]

    def task_text(self, name: str) -> str:
        """A task's section with every key, as the text of a configuration file (JSON, which is YAML)."""
        values = {"results": self.results, "tasks": {name: self.task(name).model_dump(mode="json")}}
        return json.dumps(values, indent=1, ensure_ascii=False)

    def paths(self, name: str) -> TextPaths:
        return TextPaths(Path(self.results), name)


def read_config(path: Path, overrides: Sequence[str] = ()) -> NlpConfig:
    """Read a file, with overrides as `tasks.imdb.training.steps=10`; `ConfigError` as of `checked`."""
    values, text = values_and_text(path)
    for one in overrides:
        apply_override(values, one)
    return parse_config(values, named(path), text)


def parse_config(values: Mapping[str, Any], source: str = "configuration", text: str = "") -> NlpConfig:
    """Check a mapping of keys; `ConfigError` as of `checked`."""
    return checked(NlpConfig, values, source, text)
