"""The section `promoters`: windows, classifier, training and evaluation (App. F.2)."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args

from pydantic import field_validator

from bigbird_dna.config.section import (
    LONGEST_WINDOW,
    MONITORING,
    MOST_VIEWS,
    FileName,
    Section,
    field,
)
from bigbird_dna.config.start_sites import DenseConfig
from bigbird_dna.config.training import (
    MOST_PROCESSES,
    CalibrationConfig,
    EvaluationConfig,
    FinetuningConfig,
    StartConfig,
)

NegativeSet = Literal["substituted", "permuted", "genomic"]
NEGATIVE_SETS: tuple[NegativeSet, ...] = get_args(NegativeSet)
DERIVED_SETS: tuple[NegativeSet, ...] = ("substituted", "permuted")
"""Negatives made by dividing positives into parts and changing some of them."""
PromoterMember = Literal["position", "kmers"]
PROMOTER_MEMBERS: tuple[PromoterMember, ...] = get_args(PromoterMember)


SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".parquet": None}
"""Column separators of tables of sequences, by the end of a file's name; None: binary."""


def table_kind(name: str) -> str:
    """Return the end of a file's name without .gz, in lower case: one of `SEPARATORS` for a table."""
    return PurePath(name.lower().removesuffix(".gz")).suffix


def is_table(name: str) -> bool:
    """Return whether a file of sequences is a table by its name; other files are FASTA."""
    return table_kind(name) in SEPARATORS


class PromoterWindowsConfig(Section):
    """Promoter windows and their negatives."""

    upstream: int = field(5000, "bp before the TSS", ge=0, le=LONGEST_WINDOW)
    downstream: int = field(
        3000, "bp from the TSS, TSS included", ge=1, le=LONGEST_WINDOW
    )
    negative_sets: tuple[NegativeSet, ...] = field(
        (*DERIVED_SETS, "genomic"),
        "negatives for training and evaluation; substituted: 12 of 20 parts of the promoter replaced by "
        "random bases; permuted: 12 of the parts in another order; genomic: other windows with similar GC",
    )
    negatives: int = field(
        1, "negatives per training promoter; each epoch uses another one", ge=1
    )
    min_tss_distance: int = field(
        1000,
        "minimum bp from any TSS to a genomic negative's TSS position",
        ge=0,
    )

    @property
    def sides(self) -> tuple[int, int]:
        """bp upstream and downstream of the TSS."""
        return self.upstream, self.downstream

    @property
    def length(self) -> int:
        """Length of a window, in bp."""
        return self.upstream + self.downstream

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("negative_sets")
        if self.length < 20 and {*self.negative_sets} & {*DERIVED_SETS}:
            yield "a window must have at least 20 bp: negatives are made from 20 parts of promoters"


class ClassifierConfig(StartConfig):
    """A model whose input is a whole sequence."""

    pooling: Literal["cls", "mean"] = field(
        "cls",
        "input of the classifier; cls: the first token; mean: the mean over all tokens",
    )
    head: Literal["dense", "linear"] = field(
        "dense",
        "linear: one layer, as in the paper; dense: with a hidden layer, as in HuggingFace",
    )
    views: Annotated[int, MONITORING] = field(
        1,
        "tokenizations of a window whose probabilities are averaged",
        ge=1,
        le=MOST_VIEWS,
    )
    base_positions: bool = field(
        True,
        "also encode the bases of each token and their offsets in the window, for aligned windows",
    )
    ensemble: tuple[PromoterMember, ...] = field(
        PROMOTER_MEMBERS,
        "baselines whose log-odds are added to those of the network, with weights fitted to the validation "
        "windows; position: a regression on the base at each offset; kmers: on frequencies of k-mers, with k "
        "evaluation.baseline_kmer; true: both; false: none",
    )

    @field_validator("ensemble", mode="before")
    @classmethod
    def _all_or_none(cls, given: Any) -> Any:
        return (
            given if not isinstance(given, bool) else PROMOTER_MEMBERS if given else ()
        )

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("ensemble")


class ClassifierTrainingConfig(FinetuningConfig):
    """Fine-tuning on whole sequences."""

    crop_jitter_bp: int = field(
        0, "maximum random crop at each end in training, bp", ge=0, le=LONGEST_WINDOW
    )


class PromoterTrainingConfig(ClassifierTrainingConfig):
    """Fine-tuning on promoter windows."""

    shift_bp: int = field(
        0,
        "maximum random shift of base positions in training, bp: scores then depend less on the exact place of "
        "the TSS in the window",
        ge=0,
        le=LONGEST_WINDOW,
    )


class PromoterConfig(Section):
    """Promoters: source, annotation, control, and one section per stage."""

    source: FileName | None = field(
        None,
        "start sites: key in sources.yaml, or file; none: simulated promoters, or no promoter models",
    )
    chain: FileName | None = field(
        None, "key of a liftOver chain to genome.assembly; none: no liftover"
    )
    annotation: FileName | None = field(
        None,
        "GFF3 or GTF: key in sources.yaml, or file, whose genes the plot of the example scan shows; none: "
        "no genes",
    )
    model: Literal["dense", "window"] = field(
        "dense",
        "dense: a model of the start sites at every base along a genome, which calls promoters; window: a "
        "classifier of aligned windows per negative set, as in the paper",
    )
    dense: DenseConfig = DenseConfig()
    shuffled_label_control: NegativeSet | None = field(
        "genomic",
        "negative set of the control model, trained on shuffled labels; none: no control",
    )
    num_gpus: int = field(
        1, "torchrun processes for the training of a model", ge=1, le=MOST_PROCESSES
    )
    windows: PromoterWindowsConfig = PromoterWindowsConfig()
    classifier: ClassifierConfig = ClassifierConfig()
    training: PromoterTrainingConfig = PromoterTrainingConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def _faults(self) -> Iterator[str]:
        for key in ("crop_jitter_bp", "shift_bp"):
            if self.windows.length <= 2 * getattr(self.training, key):
                yield f"training.{key} must be below half the window"

        if self.classifier.views > 1 and not self.training.crop_jitter_bp:
            yield "classifier.views above 1 needs training.crop_jitter_bp above 0"

        # A stage's file has windows and no control: its default must not constrain them.
        given = (
            "shuffled_label_control" in self.model_fields_set
            and self.shuffled_label_control is not None
        )
        if given and self.shuffled_label_control not in self.windows.negative_sets:
            yield (
                f"shuffled_label_control {self.shuffled_label_control!r} is not one of windows.negative_sets"
            )
