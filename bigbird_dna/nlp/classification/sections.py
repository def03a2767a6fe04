"""The configuration of a classification."""

from typing import Literal

from pydantic import Field

from bigbird_dna.nlp.sections import RecordsTrainingConfig, TextTask

Metric = Literal["accuracy", "micro_f1", "f1", "matthews", "pearson", "spearman"]


class ClassificationTask(TextTask):
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
    metric: Metric = Field(default="accuracy", description="the one that the report shows first")
    training: RecordsTrainingConfig = RecordsTrainingConfig()
