"""The configuration of a task on text: what all kinds have in common, then the keys of each; see `config`."""

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, field_serializer, model_validator

from bigbird_dna.config import EncoderConfig, PretrainingConfig, Section, TrainingConfig
from bigbird_dna.config.names import FileName
from bigbird_dna.config.section import WATCHING
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


class TextTaskConfig(Section):
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


class TextPretrainingConfig(PretrainingConfig, TextTrainingConfig):
    """Masked-token training; the keys of both."""


class PretrainingTaskConfig(TextTaskConfig):
    """Masked-language modelling in bits per character (Table 10)."""

    kind: Literal["pretraining"]
    training: TextPretrainingConfig = TextPretrainingConfig()
    character_order: int = Field(
        default=8, ge=1, le=12, description="longest character n-gram that the model is compared with"
    )


ClassMetric = Literal["accuracy", "micro_f1", "f1", "matthews", "pearson", "spearman"]


class ClassificationTaskConfig(TextTaskConfig):
    """One head on [CLS], for the classes of the training records or for a score."""

    kind: Literal["classification"]
    length: int = Field(default=4096, ge=16, description="tokens of an input; what is further on isn't seen")
    regression: bool = Field(default=False, description="predict a score, not a class (STS-B)")
    positive: str | None = Field(
        default=None, description="class whose F1 is f1; none: the last by name, of two classes"
    )
    head: Literal["linear", "dense"] = Field(
        default="linear",
        description="linear: one layer on [CLS], as in the paper; dense: another before it, as HuggingFace's",
    )
    metric: ClassMetric = Field(default="accuracy", description="the one that the report shows first")
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
    form: AnswerForm = Field(
        default="span",
        description="what is asked for and how it is judged: span (an answer that stands in the text), or as "
        "one of the data sets",
    )
    public: bool = Field(
        default=False, description="data.files are the data set's own files, not files of records"
    )
    length: int = Field(default=4096, ge=32, description="tokens of an input, the question included")
    stride: int = Field(default=2048, ge=1, description="tokens from an input to the next, of long documents")
    question_tokens: int = Field(default=64, ge=1, description="of a question; what is further on isn't read")
    answer_words: int = Field(default=30, ge=1, description="longest answer")
    unanswerable: bool = Field(
        default=False, description="form span: a document may have no answer, which is then the empty one"
    )
    hops: Literal[1, 2] = Field(
        default=1, description="generated documents: facts from the question to the answer"
    )
    facts_weight: float = Field(
        default=1.0, ge=0, description="of the supporting facts' loss, beside that of the answer"
    )
    training: RecordsTrainingConfig = RecordsTrainingConfig()

    @model_validator(mode="after")
    def _a_question_leaves_room(self) -> Self:
        if self.length > self.encoder.max_length:
            raise ValueError(f"length {self.length} is above encoder.max_length {self.encoder.max_length}")
        if self.question_tokens + LEAST_CONTEXT > self.length:
            raise ValueError(f"question_tokens {self.question_tokens} leave no room in length {self.length}")
        if self.encoder.num_global_tokens and self.question_tokens + 8 > self.encoder.num_global_tokens:
            raise ValueError(
                f"question_tokens {self.question_tokens} leave none of the encoder.num_global_tokens "
                f"{self.encoder.num_global_tokens} for paragraphs"
            )
        if self.public and (self.form == "span" or self.data.files is None):
            raise ValueError("public needs data.files, and the form of a data set")
        if self.unanswerable and self.form != "span":
            raise ValueError(f"unanswerable goes with form span, not {self.form}")
        return self


SummaryForm = Literal["base", "pegasus"]


class DecoderShape(Section):
    """A decoder of its own, of the Pegasus form."""

    layers: int = Field(ge=1, description="of the decoder")
    heads: int = Field(ge=1, description="attention heads of a layer")
    intermediate: int = Field(ge=1, description="width between the two feed-forward layers")


class SearchConfig(Section):
    """How a summary is found. Lengths count the token that summaries begin with."""

    beams: int = Field(default=5, ge=1, le=100, description="1: the likeliest token each time")
    length_penalty: float = Field(
        default=0.8, description="a summary's log-probability is divided by its length to this power"
    )
    early_stopping: bool | Literal["never"] = Field(
        default=True,
        description="true: end with as many whole summaries as beams; false: when none that is open scores "
        "better at its present length; never: when none can at any length",
    )
    min_length: int = Field(default=0, ge=0, description="tokens before a summary may end")
    max_length: int = Field(default=256, ge=2, description="tokens of the longest summary")
    no_repeat: int = Field(default=0, ge=0, description="no sequence of so many tokens occurs twice; 0: any")


class SpecialIds(Section):
    """Ids that mean something to a decoder."""

    start: int = Field(ge=0, description="what every summary begins with, and is not part of")
    end: int = Field(ge=0, description="what ends one")
    pad: int = Field(ge=0, description="what fills rows up")
    forced_first: int | None = Field(default=None, ge=0, description="what a summary's first token must be")
    forced_last: int | None = Field(
        default=None, ge=0, description="what the last token of a summary of max_length must be"
    )


class SummariesTrainingConfig(RecordsTrainingConfig):
    """Training of a summarizer."""

    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of a token's probability that is spread over all tokens"
    )
    length_curriculum: tuple[ShorterConfig, ...] = Field(
        default=(), description="first steps on shorter documents, one stage after the other"
    )
    initial_cross: Literal["matching", "random"] = Field(
        default="random",
        description="of fresh attention to the document; matching: it begins by looking where the document "
        "has the token that the summary ends with so far; random: as other weights, as published",
    )

    @model_validator(mode="after")
    def _stages_leave_some_steps(self) -> Self:
        if self.steps_hold:
            self.check_steps()
        return self

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
    form: SummaryForm = Field(
        default="base",
        description="base: the decoder shares the encoder's weights but for its attention to the document; "
        "pegasus: LayerNorm before each part and a decoder of its own, as BigBird-Pegasus",
    )
    decoder: DecoderShape | None = Field(
        default=None, description="of the form pegasus; none: as the encoder, or as the checkpoint has it"
    )
    document_tokens: int = Field(default=3072, ge=16, description="of a document, the rest isn't seen")
    keep: Literal["first", "last"] = Field(
        default="first", description="which part of a longer document is seen"
    )
    search: SearchConfig = SearchConfig()
    training: SummariesTrainingConfig = SummariesTrainingConfig()

    @model_validator(mode="after")
    def _decoder_is_of_the_pegasus_form(self) -> Self:
        if self.decoder is not None and self.form != "pegasus":
            raise ValueError("decoder: only the form pegasus has a decoder of its own")
        if self.search.min_length >= self.search.max_length:
            lengths = f"min_length {self.search.min_length}, max_length {self.search.max_length}"
            raise ValueError(f"search: {lengths}: no summary has such a length")
        return self
