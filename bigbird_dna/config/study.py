"""The section `study`: fine-tuning from pretrained and from random weights, side by side."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from bigbird_dna.config.promoters import NegativeSet
from bigbird_dna.config.section import Section

StudyTask = Literal["promoters", "chromatin"]
StudyStart = Literal["pretrained", "random", "longer"]
STUDY_TASKS: tuple[StudyTask, ...] = get_args(StudyTask)
STUDY_STARTS: tuple[StudyStart, ...] = get_args(StudyStart)

# At most: a wrong list would start thousands of trainings.
_MOST = 20


class StudyConfig(Section):
    """What pretraining buys: a fine-tuned model for every start, share of the examples and seed."""

    tasks: tuple[StudyTask, ...] = Field(
        default=("promoters",), min_length=1, description="what is fine-tuned: promoters, chromatin"
    )
    shares: tuple[Annotated[float, Field(ge=1e-4, le=1)], ...] = Field(
        default=(0.05, 0.2, 1.0),
        min_length=1,
        max_length=_MOST,
        description="of the training examples; a smaller one is part of a larger one",
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(1, 2, 3),
        min_length=1,
        max_length=_MOST,
        description="of weights, order and the choice of examples; each start has a model for each",
    )
    starts: tuple[StudyStart, ...] = Field(
        default=("pretrained", "random"),
        min_length=1,
        description="weights that fine-tuning starts from; longer: random ones, trained for longer_steps",
    )
    longer_steps: int | None = Field(
        default=None,
        ge=1,
        description="of the start longer: so many that it takes the time of pretraining and fine-tuning",
    )
    negative_set: NegativeSet = Field(default="genomic", description="what promoters are told from")
    steps: int | None = Field(default=None, ge=1, description="of fine-tuning; none: the task's own")
    evaluate_every: int | None = Field(
        default=None, ge=1, description="steps between two points of a curve; none: the task's own"
    )

    @model_validator(mode="after")
    def _nothing_is_named_twice(self) -> Self:
        for key in ("tasks", "shares", "seeds", "starts"):
            if len(set(values := getattr(self, key))) < len(values):
                raise ValueError(f"{key} names one twice")
        if len(set(map(share_name, self.shares))) < len(self.shares):
            raise ValueError("shares are too much alike: six digits of each count")
        return self

    @model_validator(mode="after")
    def _longer_says_how_long(self) -> Self:
        if ("longer" in self.starts) != (self.longer_steps is not None):
            raise ValueError("the start 'longer' and longer_steps go together: give both or neither")
        return self


def share_name(share: float) -> str:
    """A share of the examples as names of files have it: 0.05."""
    return f"{share:g}"
