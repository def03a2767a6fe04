"""The section `tables`: what stands in the papers' tables beside the run's own models."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bigbird_dna.config.promoters import NegativeSet
from bigbird_dna.config.section import Section

NetworkComparator = Literal["cnnprom", "deepromoter", "deepsea", "danq", "residual-cnn"]
_CommonComparator = Literal[NetworkComparator, "k-mers", "gc", "gkm-svm", "nearest"]
PromoterComparator = Literal[_CommonComparator, "position"]
TrackComparator = Literal[_CommonComparator, "motifs"]
Taxon = Literal["vertebrates", "plants", "insects", "nematodes", "fungi", "urochordates"]
TableStart = Literal["pretrained", "random"]

# At most: a wrong list would start thousands of trainings.
_MOST = 20

OWN_MODEL = "own"
"""What the run's own language model is called among those of the tables, in names of files."""


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
    attention: Literal["bigbird", "full"] = Field(default="bigbird", description="encoder.attention")
    tokens: int = Field(
        ge=16,
        le=1_000_000,
        description="of an input of its pretraining; a step has as many in all as the run's",
    )
    window: int | None = Field(
        default=None, ge=20, le=1_000_000, description="bp that it sees in Tables 6 and 7; none: not in them"
    )


class TaskSteps(Section):
    """Steps of the trainings for either table."""

    promoters: int | None = Field(default=None, ge=1, description="for Table 6")
    chromatin: int | None = Field(default=None, ge=1, description="for Table 7")


class TablesConfig(Section):
    """Tables 5 to 7, which `snakemake table5 table6 table7` makes; without these targets nothing is run."""

    promoters: tuple[PromoterComparator, ...] = Field(
        default=("gc", "k-mers", "position", "cnnprom", "deepromoter", "residual-cnn"),
        description="comparators of Table 6",
    )
    chromatin: tuple[TrackComparator, ...] = Field(
        default=("gc", "k-mers", "deepsea", "danq", "residual-cnn"),
        description="comparators of Table 7; motifs need the extra `motifs`",
    )
    models: tuple[TableModel, ...] = Field(
        default=(),
        max_length=_MOST,
        description="language models beside the run's own, such as BERT at 512 tokens",
    )
    starts: tuple[TableStart, ...] = Field(
        default=("pretrained", "random"), description="weights that language models are fine-tuned from"
    )
    probes: bool = Field(
        default=True, description="also language models that stay as they are, read by a logistic regression"
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(1, 2, 3),
        min_length=1,
        max_length=_MOST,
        description="of language models and networks; other comparators have the first",
    )
    negative_sets: tuple[NegativeSet, ...] | None = Field(
        default=None, min_length=1, description="of Table 6; none: those of promoters.windows"
    )
    windows: tuple[Annotated[int, Field(ge=20, le=1_000_000)], ...] | None = Field(
        default=None,
        min_length=1,
        max_length=_MOST,
        description="bp of further windows of Table 6, divided at the TSS as promoters.windows are",
    )
    context_set: NegativeSet = Field(
        default="genomic", description="negatives of Table 6 in windows of another length than the run's"
    )
    network_steps: TaskSteps = Field(
        default=TaskSteps(), description="of the training of comparators that are networks; none: 2,000"
    )
    model_steps: TaskSteps = Field(
        default=TaskSteps(), description="of the fine-tuning of language models; none: the task's own"
    )
    pretraining_steps: int | None = Field(
        default=None, ge=1, description="of the pretraining of `models`; none: pretraining.steps"
    )
    taxon: Taxon = Field(
        default="vertebrates", description="whose matrices of JASPAR the comparator motifs has"
    )

    @model_validator(mode="after")
    def _nothing_is_named_twice(self) -> Self:
        for key in ("promoters", "chromatin", "starts", "seeds", "negative_sets", "windows"):
            values = getattr(self, key) or ()
            if len(set(values)) < len(values):
                raise ValueError(f"{key} names one twice")
        if "given" in (*(self.negative_sets or ()), self.context_set):
            raise ValueError("negative_sets: 'given' is of sequences, which Table 6 doesn't have")
        return self

    @model_validator(mode="after")
    def _models_are_told_apart(self) -> Self:
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError("models: two have one name")
        rows = [(model.attention, model.window) for model in self.models if model.window]
        if len(set(rows)) < len(rows):
            raise ValueError("models: two of the same attention have one window; give one of them no window")
        return self
