"""The section `sequences`: models of labeled sequences in tables or FASTA files, for any kind of label."""

from collections.abc import Iterator
from typing import Literal, get_args

from bigbird_dna.config.promoters import (
    ClassifierConfig,
    ClassifierTrainingConfig,
    is_table,
)
from bigbird_dna.config.section import FileName, LabelKind, Section, field
from bigbird_dna.config.training import MOST_PROCESSES, EvaluationConfig

LABEL_KINDS: tuple[LabelKind, ...] = get_args(LabelKind)


class SequenceTrainingConfig(ClassifierTrainingConfig):
    """Training on labeled sequences."""

    class_weights: Literal["balanced", "none"] = field(
        "balanced",
        "weights of binary and multiclass labels; balanced: classes have the same total weight in the loss, "
        "and epochs use another part of a class of two labels that is more than twice as large; none: equal",
    )


class SequenceBaselinesConfig(Section):
    """Models that are trained for comparison, on the same sequences and steps."""

    cnn: bool = field(True, "a convolutional network on the bases")
    shuffled_labels: bool = field(
        True, "a control: the model, trained on shuffled labels"
    )


class SequencesConfig(Section):
    """Labeled sequences: files, kind of the labels, and one section per stage."""

    data: FileName | tuple[FileName, ...] | None = field(
        None,
        "tables of sequences and labels, or a FASTA of positives, in data_dir or the working directory; "
        "none: no such model",
    )
    negatives: FileName | None = field(
        None, "FASTA of the negatives of a FASTA of positives; none: no such"
    )
    sequence_column: str = field("sequence", "column of tables with the sequences")
    label_columns: tuple[str, ...] = field(
        (),
        "columns of tables with the labels, or patterns; none: label, or else label_0, label_1 and so on",
    )
    split_column: str = field(
        "split", "column of tables with the splits, if they have one"
    )
    min_shared_kmers: float = field(
        0.2,
        "minimum fraction of shared k-mers of similar sequences, which get the same split",
        gt=0,
        le=1,
    )
    task: LabelKind | None = field(
        None, "kind of the labels; none: found from the labels"
    )
    both_strands: bool = field(
        False,
        "whether the sequences have no direction; true: training reads either strand, and predictions are "
        "means over both",
    )
    num_gpus: int = field(
        1, "torchrun processes for the training of a model", ge=1, le=MOST_PROCESSES
    )
    model: ClassifierConfig = ClassifierConfig()
    training: SequenceTrainingConfig = SequenceTrainingConfig()
    baselines: SequenceBaselinesConfig = SequenceBaselinesConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def files(self) -> tuple[str, ...]:
        return (self.data,) if isinstance(self.data, str) else self.data or ()

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("label_columns")
        tables = [*map(is_table, self.files)]
        if tables and self.negatives in self.files:
            yield f"positives and negatives are the same file {self.negatives!r}"
        elif tables and all(tables) and self.negatives:
            yield f"{self.files[0]!r} is a table, which contains the negatives"
        elif len(tables) > 1 and not all(tables):
            yield "the data must be one FASTA file, or one or several tables"
        if self.model.views > 1 and not self.training.crop_jitter_bp:
            yield "model.views above 1 needs training.crop_jitter_bp above 0"
