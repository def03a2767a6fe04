"""The section `promoters`: their windows, the classifier, its training and evaluation (App. F.2)."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from bigbird_dna.config.names import FileName
from bigbird_dna.config.section import WATCHING, Section
from bigbird_dna.config.training import EvaluationConfig, StartConfig, TrainingConfig

NegativeSet = Literal["substituted", "permuted", "genomic"]
NEGATIVE_SETS: tuple[NegativeSet, ...] = get_args(NegativeSet)


class PromoterWindowsConfig(Section):
    """Promoter windows and their negatives."""

    upstream: int = Field(default=5000, ge=0, description="bp before the TSS")
    downstream: int = Field(default=3000, ge=1, description="bp from the TSS on, TSS included")
    negative_sets: tuple[NegativeSet, ...] = Field(
        default=NEGATIVE_SETS,
        description="what promoters are told from; substituted: 12 of their 20 parts replaced by random "
        "bases; permuted: 12 of the parts in another order; genomic: windows elsewhere, of like GC",
    )
    negatives: int = Field(
        default=1, ge=1, description="negatives a training promoter has; each epoch takes another"
    )
    distance: int = Field(
        default=1000, ge=0, description="bp between a genomic negative's TSS position and any TSS"
    )

    @property
    def length(self) -> int:
        """bp of a window."""
        return self.upstream + self.downstream

    @model_validator(mode="after")
    def _sets_are_different(self) -> Self:
        if len(set(self.negative_sets)) < len(self.negative_sets):
            raise ValueError("negative_sets names one twice")
        return self

    @model_validator(mode="after")
    def _window_can_be_cut_into_parts(self) -> Self:
        if self.length < 20 and set(self.negative_sets) - {"genomic"}:
            raise ValueError("a window below 20 bp can't be cut into the 20 parts of derived negatives")
        return self


class PromoterModelConfig(StartConfig):
    """The promoter classifier."""

    pooling: Literal["cls", "mean"] = Field(
        default="cls", description="what the classifier sees: the first token, or the mean over all"
    )
    head: Literal["dense", "linear"] = Field(
        default="dense",
        description="linear: one layer, as in the paper; dense: another before it, as HuggingFace's",
    )
    views: Annotated[int, WATCHING] = Field(
        default=1, ge=1, description="tokenisations of a window whose probabilities are averaged"
    )


class PromoterTrainingConfig(TrainingConfig):
    """Fine-tuning on promoter windows."""

    jitter: int = Field(default=0, ge=0, description="bp cut at random from each end in training")


class PromoterConfig(Section):
    """Promoters: where they come from, which models are made, and a section a stage."""

    source: FileName | None = Field(
        default=None,
        description="key of an EPDnew file in sources.yaml, or a file; none: the simulation's, or "
        "no promoter models",
    )
    chain: FileName | None = Field(
        default=None, description="key of a liftOver chain onto genome.assembly; none: already on it"
    )
    control: NegativeSet | None = Field(
        default="genomic", description="negative set trained once more on shuffled labels"
    )
    windows: PromoterWindowsConfig = PromoterWindowsConfig()
    model: PromoterModelConfig = PromoterModelConfig()
    training: PromoterTrainingConfig = PromoterTrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        if self.windows.length <= 2 * self.training.jitter:
            raise ValueError("training.jitter leaves nothing of the window")
        if self.model.views > 1 and not self.training.jitter:
            raise ValueError("several model.views differ by training.jitter, which is 0")
        # A stage's file has windows and no control: that one's default says nothing of them.
        given = "control" in self.model_fields_set and self.control is not None
        if given and self.control not in self.windows.negative_sets:
            raise ValueError(f"control {self.control!r} is none of windows.negative_sets")
        return self
