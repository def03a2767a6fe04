"""The sections `pretraining_study`, `tables` and `ablation`: experiments that train and compare models.

They run only if their workflow targets are requested.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, field_validator

from bigbird_dna.config.mechanisms import Option
from bigbird_dna.config.promoters import NegativeSet
from bigbird_dna.config.section import FileName, Section, field

# Maximum lengths of lists: a wrong list would start thousands of trainings.
_MOST, _MOST_MECHANISMS = 20, 100

Seed = Annotated[int, Field(ge=0, lt=2**32)]
StudyTask = Literal["promoters", "chromatin"]
StudyStart = Literal["pretrained", "random", "random_long"]
STUDY_TASKS: tuple[StudyTask, ...] = get_args(StudyTask)
STUDY_STARTS: tuple[StudyStart, ...] = get_args(StudyStart)
PRETRAINED, RANDOM, LONGER = STUDY_STARTS

NetworkComparator = Literal["cnnprom", "deepromoter", "deepsea", "danq", "residual-cnn"]
_CommonComparator = Literal[NetworkComparator, "k-mers", "gc", "gkm-svm", "nearest"]
PromoterComparator = Literal[_CommonComparator, "position", "orf", "composition"]
TrackComparator = Literal[_CommonComparator, "dyads", "motifs"]
Taxon = Literal[
    "vertebrates", "plants", "insects", "nematodes", "fungi", "urochordates"
]
TableStart = Literal["pretrained", "random"]
TAXA: tuple[Taxon, ...] = get_args(Taxon)
"""Taxonomic groups of JASPAR matrices."""

OWN_MODEL = "own"
"""Name of the run's own language model in file names of the tables."""


class StudyConfig(Section):
    """Effect of pretraining: one fine-tuned model per initialization, training fraction and seed."""

    tasks: tuple[StudyTask, ...] = field(
        ("promoters",), "fine-tuning tasks: promoters, chromatin", min_length=1
    )
    train_fractions: tuple[Annotated[float, Field(ge=1e-4, le=1)], ...] = field(
        (0.05, 0.2, 1.0),
        "fractions of the training examples; a smaller sample is a subset of a larger one",
        min_length=1,
        max_length=_MOST,
    )
    seeds: tuple[Seed, ...] = field(
        (1, 2, 3),
        "random seeds of weights, order and sampled examples; one model per initialization and seed",
        min_length=1,
        max_length=_MOST,
    )
    initializations: tuple[StudyStart, ...] = field(
        ("pretrained", "random"),
        "initial weights of fine-tuning; random_long: random, trained for random_long_steps",
        min_length=1,
    )
    random_long_steps: int | None = field(
        None,
        "steps of random_long, enough to take the time of pretraining and fine-tuning",
        ge=1,
    )
    negative_set: NegativeSet = field("genomic", "negative set of the promoter models")
    steps: int | None = field(None, "fine-tuning steps; none: those of the task", ge=1)
    evaluate_every: int | None = field(
        None, "steps between points of a learning curve; none: those of the task", ge=1
    )
    min_positives_report: int = field(
        1, "minimum positive test bins of a track in the medians", ge=1
    )

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("tasks", "train_fractions", "seeds", "initializations")
        if len(set(map(share_name, self.train_fractions))) < len(self.train_fractions):
            yield "train_fractions must differ in their first six digits"
        if ("random_long" in self.initializations) != (
            self.random_long_steps is not None
        ):
            yield "initializations 'random_long' and random_long_steps must be given together"


def share_name(share: float) -> str:
    """Return a fraction of the examples as written in file names, such as 0.05."""
    return f"{share:g}"


def _model_name(text: str) -> str:
    if not re.fullmatch("[a-z0-9][a-z0-9.-]{0,29}", text):
        raise ValueError(
            "a model name must have at most 30 characters, only lower-case letters, digits, '.' and '-', "
            "and start with a letter or digit"
        )
    if text == OWN_MODEL:
        raise ValueError(f"{text!r} is reserved for the run's own model")
    return text


class TableModel(Section):
    """A further language model, configured like the run's own except for these keys."""

    name: Annotated[str, AfterValidator(_model_name)] = Field(
        description="name in files and in Table 5"
    )
    attention: Literal["bigbird", "full"] = field(
        "bigbird", "value of encoder.attention"
    )
    tokens: int = Field(
        ge=16,
        le=1_000_000,
        description="tokens per input in pretraining; tokens per step are those of the run",
    )
    window: int | None = field(
        None,
        "input length in Tables 6 and 7, bp; none: not in these tables",
        ge=20,
        le=1_000_000,
    )


class TaskSteps(Section):
    """Training steps for each table."""

    promoters: int | None = field(None, "training steps for Table 6", ge=1)
    chromatin: int | None = field(None, "training steps for Table 7", ge=1)


class TablesConfig(Section):
    """Tables 5 to 7, made only if requested by `snakemake table5 table6 table7`."""

    promoters: tuple[PromoterComparator, ...] = field(
        (
            "gc",
            "composition",
            "orf",
            "k-mers",
            "position",
            "cnnprom",
            "deepromoter",
            "residual-cnn",
        ),
        "baselines of Table 6",
    )
    chromatin: tuple[TrackComparator, ...] = field(
        ("gc", "k-mers", "dyads", "deepsea", "danq", "residual-cnn"),
        "baselines of Table 7; motifs requires the optional dependencies `motifs`",
    )
    models: tuple[TableModel, ...] = field(
        (),
        "language models in addition to the run's own, such as BERT at 512 tokens",
        max_length=_MOST,
    )
    initializations: tuple[TableStart, ...] = field(
        ("pretrained", "random"), "initial weights of fine-tuned language models"
    )
    linear_probes: bool = field(
        True,
        "also evaluate frozen language models with logistic regression (linear probes)",
    )
    seeds: tuple[Seed, ...] = field(
        (1, 2, 3),
        "random seeds of language models and neural networks; other baselines use the first",
        min_length=1,
        max_length=_MOST,
    )
    negative_sets: tuple[NegativeSet, ...] | None = field(
        None, "negative sets of Table 6; none: those of promoters.windows", min_length=1
    )
    windows: tuple[Annotated[int, Field(ge=20, le=1_000_000)], ...] | None = field(
        None,
        "additional window lengths of Table 6, bp, divided at the TSS as promoters.windows",
        min_length=1,
        max_length=_MOST,
    )
    context_negative_set: NegativeSet = field(
        "genomic",
        "negative set of Table 6 for windows that differ from the run's in length",
    )
    steps: TaskSteps = field(
        TaskSteps(),
        "training steps of language models and neural networks; none: those of the task",
    )
    learning_rates: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = field(
        None,
        "peak learning rates of both: each is trained, that with the lowest validation loss is reported; "
        "none: that of the task",
        min_length=1,
        max_length=_MOST,
    )
    pretraining_steps: int | None = field(
        None, "pretraining steps of `models`; none: pretraining.steps", ge=1
    )
    taxon: Taxon = field(
        "vertebrates", "taxonomic group of the JASPAR matrices of the baseline motifs"
    )
    motifs: FileName | None = field(
        None,
        "matrices of the baseline motifs, a file in JASPAR format; none: JASPAR's for `taxon`",
    )
    comparator_window: int | None = field(
        None,
        "input length of Table 7 baselines around a bin, bp; none: 1,000, for motifs and gkm-svm the bin",
        ge=20,
        le=1_000_000,
    )

    def _faults(self) -> Iterator[str]:
        yield from self._repeats(
            *(
                "promoters",
                "chromatin",
                "initializations",
                "seeds",
                "negative_sets",
                "windows",
            ),
            "learning_rates",
        )
        if self.context_negative_set == "user":
            yield "context_negative_set: 'user' has no windows of other lengths"
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            yield "models: names must be different"
        rows = [
            (model.attention, model.window) for model in self.models if model.window
        ]
        if len(set(rows)) < len(rows):
            yield "models: models of the same attention must have different windows; remove one window"


class AblationMechanism(Section):
    """A compared mechanism: a name, optionally with keys of `encoder` that differ."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$", description="name in tables")
    attention: str | None = field(None, "value of encoder.attention; none: the name")
    attention_options: dict[str, Option] = field(
        {}, "options of the mechanism, by name"
    )
    encoder: dict[str, Option] = field(
        {}, "other keys of `encoder`, such as num_global_tokens"
    )

    def _faults(self) -> Iterator[str]:
        for key in ("attention", "attention_options"):
            if key in self.encoder:
                yield f"{self.name}: {key} must be a key next to name, not under encoder"

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core)]}

    @property
    def changes(self) -> dict[str, Any]:
        """The keys of the section `encoder` with the values of this mechanism."""
        own = {
            "attention": self.attention or self.name,
            "attention_options": self.attention_options,
        }
        return {**own, **self.encoder}


def _named(*names: str) -> tuple[AblationMechanism, ...]:
    return tuple(AblationMechanism(name=name) for name in names)


class AblationConfig(Section):
    """Comparison of attention mechanisms, run only by the workflow target `ablation`."""

    mechanisms: tuple[AblationMechanism, ...] = field(
        _named(
            *(
                "full",
                "bigbird",
                "random",
                "window",
                "random_window",
                "longformer",
                "performer",
                "reformer",
            ),
            *("sparse_fixed", "logsparse", "axial", "routing"),
            *(
                "combiner_fixed",
                "combiner_logsparse",
                "combiner_axial_vertical",
                "combiner_axial_horizontal",
            ),
            *("combiner_axial_rowmajor", "combiner_routing", "combiner_mixture"),
        ),
        "compared mechanisms, each a name or {name, attention, attention_options, encoder}",
        min_length=1,
        max_length=_MOST_MECHANISMS,
    )
    head_init: Literal["local", "random"] | None = field(
        None, "encoder.head_init of all mechanisms; none: that of the encoder"
    )
    reference: str = field(
        "bigbird", "reference mechanism, which also defines the time budget"
    )
    seeds: tuple[Seed, ...] = field(
        (1,),
        "random seeds; each mechanism is trained with each seed",
        min_length=1,
        max_length=_MOST,
    )
    tokens: int = field(512, "tokens per input", ge=16)
    batch_tokens: int = field(
        8192, "tokens per step; a longer input is one step", ge=16
    )
    steps: int = field(300, "steps of each training with equal steps", ge=1)
    time_budget_s: float | None = field(
        None,
        "seconds of each training with equal time; none: the time of `steps` with the reference",
        gt=0,
    )
    lengths: tuple[Annotated[int, Field(ge=16)], ...] = field(
        (2048, 8192),
        "lengths of additional trainings on longer inputs, tokens",
        max_length=_MOST,
    )
    long_input_steps: int = field(
        30,
        "final steps on these inputs, after short inputs with as many tokens as `steps`",
        ge=1,
    )
    long_range_tracks: tuple[str, ...] = field(
        (),
        "tracks that depend on distal elements; none: no such task",
        max_length=_MOST,
    )
    long_range_steps: int | None = field(
        None, "steps on these tracks; none: as chromatin.training", ge=1
    )
    long_range_layers: int | None = field(
        None, "encoder layers of models for these tracks; none: encoder.layers", ge=1
    )

    @field_validator("mechanisms", mode="before")
    @classmethod
    def _a_name_is_enough(cls, values: Any) -> Any:
        if not isinstance(values, tuple):
            return values
        return tuple(
            {"name": value} if isinstance(value, str) else value for value in values
        )

    def _faults(self) -> Iterator[str]:
        names = [mechanism.name for mechanism in self.mechanisms]
        if len(set(names)) < len(names):
            yield "mechanisms contains a name twice"
        yield from self._repeats("seeds", "lengths", "long_range_tracks")
        if self.reference not in names:
            yield f"reference {self.reference!r} must be one of mechanisms"
        if any(length <= self.tokens for length in self.lengths):
            yield f"lengths must be above tokens {self.tokens}"

    def changes(self, name: str) -> dict[str, Any]:
        """Return keys of the section `encoder` for a mechanism; its values override those of all."""
        found = next(
            mechanism for mechanism in self.mechanisms if mechanism.name == name
        )
        heads = {"head_init": self.head_init} if self.head_init else {}
        return {**heads, **found.changes}

    def batch_size(self, tokens: int) -> int:
        """Return the number of inputs per step."""
        return max(1, self.batch_tokens // tokens)

    def training(self, part: str, accumulate: int = 1) -> dict[str, Any]:
        """Return keys of the section `pretraining` for a training: "steps", "time", or a length as text.

        Longer inputs come last, to keep their steps few. Short inputs before them have as many tokens as the
        training with equal steps. `accumulate` is the run's number of micro-batches, limited to the number of
        inputs per step.
        """
        if part in ("steps", "time"):
            tokens, steps, shorter = self.tokens, self.steps, []
        else:
            tokens = int(part)
            short = self.steps * self.batch_size(self.tokens) * self.tokens
            # If a length is not a multiple, short inputs do not fill a step: training rounds down.
            step = self.batch_size(tokens) * (tokens // self.tokens) * self.tokens
            before = max(1, round(short / step))
            steps, shorter = (
                before + self.long_input_steps,
                [{"steps": before, "tokens": self.tokens}],
            )
        return {
            "steps": steps,
            "sequence_tokens": tokens,
            "batch_size": self.batch_size(tokens),
            "grad_accumulation": min(accumulate, self.batch_size(tokens)),
            "length_curriculum": shorter,
        }
