"""The sections `study`, `tables` and `ablation`: the experiments that train and compare models.

Without their targets of the workflow nothing of them is run.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, field_validator

from bigbird_dna.config.mechanisms import Option
from bigbird_dna.config.promoters import NegativeSet
from bigbird_dna.config.section import DEFAULT_OMITTED, FileName, Section, field

# At most: a wrong list would start thousands of trainings.
_MOST, _MOST_MECHANISMS = 20, 100

Seed = Annotated[int, Field(ge=0, lt=2**32)]
StudyTask = Literal["promoters", "chromatin"]
StudyStart = Literal["pretrained", "random", "random_long"]
STUDY_TASKS: tuple[StudyTask, ...] = get_args(StudyTask)
STUDY_STARTS: tuple[StudyStart, ...] = get_args(StudyStart)
PRETRAINED, RANDOM, LONGER = STUDY_STARTS

NetworkComparator = Literal["cnnprom", "deepromoter", "deepsea", "danq", "residual-cnn"]
_CommonComparator = Literal[NetworkComparator, "k-mers", "gc", "gkm-svm", "nearest"]
PromoterComparator = Literal[_CommonComparator, "position"]
TrackComparator = Literal[_CommonComparator, "motifs"]
Taxon = Literal["vertebrates", "plants", "insects", "nematodes", "fungi", "urochordates"]
TableStart = Literal["pretrained", "random"]
TAXA: tuple[Taxon, ...] = get_args(Taxon)
"""Of JASPAR's matrices."""

OWN_MODEL = "own"
"""What the run's own language model is called among those of the tables, in names of files."""


class StudyConfig(Section):
    """What pretraining buys: a fine-tuned model for every start, share of the examples and seed."""

    tasks: tuple[StudyTask, ...] = field(
        ("promoters",), "what is fine-tuned: promoters, chromatin", min_length=1
    )
    train_fractions: tuple[Annotated[float, Field(ge=1e-4, le=1)], ...] = field(
        (0.05, 0.2, 1.0),
        "of the training examples; a smaller one is part of a larger one",
        min_length=1,
        max_length=_MOST,
    )
    seeds: tuple[Seed, ...] = field(
        (1, 2, 3),
        "of weights, order and the choice of examples; each start has a model for each",
        min_length=1,
        max_length=_MOST,
    )
    initializations: tuple[StudyStart, ...] = field(
        ("pretrained", "random"),
        "weights that fine-tuning starts from; random_long: random, for random_long_steps",
        min_length=1,
    )
    random_long_steps: int | None = field(
        None, "of the start longer: so many that it takes the time of pretraining and fine-tuning", ge=1
    )
    negative_set: NegativeSet = field("genomic", "what promoters are told from")
    steps: int | None = field(None, "of fine-tuning; none: the task's own", ge=1)
    evaluate_every: int | None = field(
        None, "steps between two points of a curve; none: the task's own", ge=1
    )
    min_positives_report: Annotated[int, DEFAULT_OMITTED] = field(
        1, "tracks with fewer positive test bins have no part in the medians", ge=1
    )

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("tasks", "train_fractions", "seeds", "initializations")
        if len(set(map(share_name, self.train_fractions))) < len(self.train_fractions):
            yield "train_fractions are too much alike: six digits of each count"
        if ("random_long" in self.initializations) != (self.random_long_steps is not None):
            yield "the start 'random_long' and random_long_steps go together: give both or neither"


def share_name(share: float) -> str:
    """A share of the examples as names of files have it: 0.05."""
    return f"{share:g}"


def _model_name(text: str) -> str:
    if not re.fullmatch("[a-z0-9][a-z0-9.-]{0,29}", text):
        raise ValueError(
            "a model's name has small letters, digits, '.' and '-', at most 30 of them, and begins with a "
            "letter or digit"
        )
    if text == OWN_MODEL:
        raise ValueError(f"{text!r} is what the run's own model is called")
    return text


class TableModel(Section):
    """A language model beside the run's own, otherwise like it."""

    name: Annotated[str, AfterValidator(_model_name)] = Field(description="in files and in Table 5")
    attention: Literal["bigbird", "full"] = field("bigbird", "encoder.attention")
    tokens: int = Field(
        ge=16,
        le=1_000_000,
        description="of an input of its pretraining; a step has as many in all as the run's",
    )
    window: int | None = field(
        None, "bp that it sees in Tables 6 and 7; none: not in them", ge=20, le=1_000_000
    )


class TaskSteps(Section):
    """Steps of the trainings for either table."""

    promoters: int | None = field(None, "for Table 6", ge=1)
    chromatin: int | None = field(None, "for Table 7", ge=1)


class TablesConfig(Section):
    """Tables 5 to 7, which `snakemake table5 table6 table7` makes; without these targets nothing is run."""

    promoters: tuple[PromoterComparator, ...] = field(
        ("gc", "k-mers", "position", "cnnprom", "deepromoter", "residual-cnn"), "comparators of Table 6"
    )
    chromatin: tuple[TrackComparator, ...] = field(
        ("gc", "k-mers", "deepsea", "danq", "residual-cnn"),
        "comparators of Table 7; motifs need the extra `motifs`",
    )
    models: tuple[TableModel, ...] = field(
        (), "language models beside the run's own, such as BERT at 512 tokens", max_length=_MOST
    )
    initializations: tuple[TableStart, ...] = field(
        ("pretrained", "random"), "weights that language models are fine-tuned from"
    )
    linear_probes: bool = field(
        True, "also language models that stay as they are, read by a logistic regression"
    )
    seeds: tuple[Seed, ...] = field(
        (1, 2, 3),
        "of language models and networks; other comparators have the first",
        min_length=1,
        max_length=_MOST,
    )
    negative_sets: tuple[NegativeSet, ...] | None = field(
        None, "of Table 6; none: those of promoters.windows", min_length=1
    )
    windows: tuple[Annotated[int, Field(ge=20, le=1_000_000)], ...] | None = field(
        None,
        "bp of further windows of Table 6, divided at the TSS as promoters.windows are",
        min_length=1,
        max_length=_MOST,
    )
    context_negative_set: NegativeSet = field(
        "genomic", "negatives of Table 6 in windows of another length than the run's"
    )
    cnn_steps: TaskSteps = field(TaskSteps(), "of the training of comparators that are networks; none: 2,000")
    lm_steps: TaskSteps = field(TaskSteps(), "of the fine-tuning of language models; none: the task's own")
    pretraining_steps: int | None = field(
        None, "of the pretraining of `models`; none: pretraining.steps", ge=1
    )
    taxon: Taxon = field("vertebrates", "whose matrices of JASPAR the comparator motifs has")
    motifs: Annotated[FileName | None, DEFAULT_OMITTED] = field(
        None, "its matrices, a file in JASPAR's format; none: JASPAR's of `taxon`"
    )
    network_batch_size: Annotated[int | None, DEFAULT_OMITTED] = field(
        None, "windows per step of comparators that are networks; none: 64", ge=1
    )
    network_learning_rate: Annotated[float | None, DEFAULT_OMITTED] = field(
        None, "of these, after warm-up; none: 0.001", gt=0, le=1
    )
    comparator_window: Annotated[int | None, DEFAULT_OMITTED] = field(
        None,
        "bp around a bin that comparators of Table 7 see; none: 1,000, the bin for motifs and gkm-svm",
        ge=20,
        le=1_000_000,
    )

    def _faults(self) -> Iterator[str]:
        yield from self._repeats(
            "promoters", "chromatin", "initializations", "seeds", "negative_sets", "windows"
        )
        if "user" in (*(self.negative_sets or ()), self.context_negative_set):
            yield "negative_sets: 'user' is of sequences, which Table 6 doesn't have"
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            yield "models: two have one name"
        rows = [(model.attention, model.window) for model in self.models if model.window]
        if len(set(rows)) < len(rows):
            yield "models: two of the same attention have one window; give one of them no window"


class AblationMechanism(Section):
    """One that takes part: a name alone, or a name and what its encoder has otherwise than `encoder` says."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$", description="what tables call it")
    attention: str | None = field(None, "of the encoder; none: its name")
    attention_options: dict[str, Option] = field({}, "of the mechanism, by name")
    encoder: dict[str, Option] = field({}, "other keys of `encoder`, as num_global_tokens")

    def _faults(self) -> Iterator[str]:
        for key in ("attention", "attention_options"):
            if key in self.encoder:
                yield f"{self.name}: {key} stands beside the name, not under encoder"

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core)]}

    @property
    def changes(self) -> dict[str, Any]:
        """Keys of the section `encoder` with this mechanism's values."""
        own = {"attention": self.attention or self.name, "attention_options": self.attention_options}
        return {**own, **self.encoder}


def _named(*names: str) -> tuple[AblationMechanism, ...]:
    return tuple(AblationMechanism(name=name) for name in names)


class AblationConfig(Section):
    """What the target `ablation` trains and compares; without that target nothing of it is run."""

    mechanisms: tuple[AblationMechanism, ...] = field(
        _named(
            *("full", "bigbird", "random", "window", "random_window", "longformer", "performer", "reformer"),
            *("sparse_fixed", "logsparse", "axial", "routing"),
            *("combiner_fixed", "combiner_logsparse", "combiner_axial_vertical", "combiner_axial_horizontal"),
            *("combiner_axial_rowmajor", "combiner_routing", "combiner_mixture"),
        ),
        "a name, or {name, attention, attention_options, encoder}",
        min_length=1,
        max_length=_MOST_MECHANISMS,
    )
    head_init: Literal["local", "random"] | None = field(
        None, "of all of them, as encoder.head_init; none: the encoder's"
    )
    reference: str = field("bigbird", "the mechanism that others are compared with, and whose time they have")
    seeds: tuple[Seed, ...] = field(
        (1,), "each mechanism is trained with each of them", min_length=1, max_length=_MOST
    )
    tokens: int = field(512, "of an input", ge=16)
    batch_tokens: int = field(8192, "of a step; a longer input is a step by itself", ge=16)
    steps: int = field(300, "of each training of the same steps", ge=1)
    time_budget_s: float | None = field(
        None, "of each training of the same time; none: what the steps take with the reference", gt=0
    )
    lengths: tuple[Annotated[int, Field(ge=16)], ...] = field(
        (2048, 8192), "tokens of longer inputs that are trained on too", max_length=_MOST
    )
    long_input_steps: int = field(
        30, "on these, after as many tokens of short inputs as `steps` have, in the same training", ge=1
    )
    long_range_tracks: tuple[str, ...] = field(
        (), "tracks that are told from far away; none: no such task", max_length=_MOST
    )
    long_range_steps: int | None = field(None, "of that training; none: those of chromatin.training", ge=1)
    long_range_layers: int | None = field(
        None, "of the encoder that learns these tracks; none: encoder.layers", ge=1
    )

    @field_validator("mechanisms", mode="before")
    @classmethod
    def _a_name_is_enough(cls, values: Any) -> Any:
        if not isinstance(values, tuple):
            return values
        return tuple({"name": value} if isinstance(value, str) else value for value in values)

    def _faults(self) -> Iterator[str]:
        names = [mechanism.name for mechanism in self.mechanisms]
        if len(set(names)) < len(names):
            yield "mechanisms names one twice"
        yield from self._repeats("seeds", "lengths", "long_range_tracks")
        if self.reference not in names:
            yield f"reference {self.reference!r} is not one of the mechanisms"
        if any(length <= self.tokens for length in self.lengths):
            yield f"lengths must be above tokens, which is {self.tokens}"

    def changes(self, name: str) -> dict[str, Any]:
        """Keys of the section `encoder` with the values of a mechanism; its own go before those of all."""
        found = next(mechanism for mechanism in self.mechanisms if mechanism.name == name)
        heads = {"head_init": self.head_init} if self.head_init else {}
        return {**heads, **found.changes}

    def batch_size(self, tokens: int) -> int:
        """Inputs of a step."""
        return max(1, self.batch_tokens // tokens)

    def training(self, part: str, accumulate: int = 1) -> dict[str, Any]:
        """Keys of the section `pretraining` for a training: of `steps`, `time`, or a length as text.

        Longer inputs come last, so that they cost few steps: before them come as many tokens on short inputs
        as the training of the same steps has. `accumulate` are the run's own micro-batches, of which a step
        has no more than inputs.
        """
        if part in ("steps", "time"):
            tokens, steps, shorter = self.tokens, self.steps, []
        else:
            tokens = int(part)
            short = self.steps * self.batch_size(self.tokens) * self.tokens
            # Of a length that isn't a multiple, short inputs don't fill a step: training rounds down.
            step = self.batch_size(tokens) * (tokens // self.tokens) * self.tokens
            before = max(1, round(short / step))
            steps, shorter = before + self.long_input_steps, [{"steps": before, "tokens": self.tokens}]
        return {
            "steps": steps,
            "sequence_tokens": tokens,
            "batch_size": self.batch_size(tokens),
            "grad_accumulation": min(accumulate, self.batch_size(tokens)),
            "length_curriculum": shorter,
        }
