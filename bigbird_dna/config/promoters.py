"""The section `promoters`: windows, classifier, training and evaluation (App. F.2)."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from bigbird_dna.config.section import (
    LONGEST_WINDOW,
    MONITORING,
    MOST_VIEWS,
    FileName,
    Section,
    field,
)
from bigbird_dna.config.training import (
    MOST_PROCESSES,
    CalibrationConfig,
    EvaluationConfig,
    FinetuningConfig,
    StartConfig,
)
from bigbird_dna.errors import ConfigError

NegativeSet = Literal[
    "substituted",
    "permuted",
    "dinucleotide_shuffled",
    "genomic",
    "intergenic",
    "upstream",
    "user",
]
NEGATIVE_SETS: tuple[NegativeSet, ...] = get_args(NegativeSet)
PARTED_SETS: tuple[NegativeSet, ...] = ("substituted", "permuted")
"""Negatives made by dividing positives into parts and changing some of them."""
DERIVED_SETS: tuple[NegativeSet, ...] = (*PARTED_SETS, "dinucleotide_shuffled")
"""Negatives made from the sequences of positives."""
PLACED_SETS: tuple[NegativeSet, ...] = ("genomic", "intergenic", "upstream")
"""Negatives that are intervals of a genome and need promoters on a genome."""


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


class SequenceFilesConfig(Section):
    """How files of labeled sequences are read and split."""

    sequence_column: str = field("sequence", "column of tables with the sequences")
    split_column: str = field(
        "split", "column of tables with the splits, if they have one"
    )
    negatives: FileName | None = field(
        None, "FASTA of the negatives of a FASTA of positives; none: no such"
    )
    splits: FileName | None = field(
        None, "TSV of record and split; none: by groups of similar sequences"
    )
    min_shared_kmers: float = field(
        0.2,
        "minimum fraction of shared k-mers of similar sequences, which get the same split",
        gt=0,
        le=1,
    )

    @property
    def files(self) -> tuple[str, ...]:
        """The tables, or the FASTA file of positives."""
        raise NotImplementedError

    def _faults(self) -> Iterator[str]:
        tables = [*map(is_table, self.files)]
        if not tables:
            return
        if self.negatives in self.files:
            yield f"positives and negatives are the same file {self.negatives!r}"
        elif all(tables) and (self.negatives or self.splits):
            yield f"{self.files[0]!r} is a table, which contains the negatives and the splits"
        elif len(tables) > 1 and not all(tables):
            yield "the data must be one FASTA file, or one or several tables"


class PromoterSequencesConfig(SequenceFilesConfig):
    """Positives, and optionally negatives, as custom sequences instead of loci on a genome."""

    positives: FileName | tuple[FileName, ...] = Field(
        description="FASTA of promoters, in data_dir or the working directory; or one or several tables of "
        "sequences with labels 0 and 1",
        min_length=1,
    )
    label_column: str = field("label", "column of tables with the labels")
    length: int | None = field(
        None,
        "trim sequences to this length around their center, bp; none: all must have one length",
        ge=20,
    )

    @property
    def files(self) -> tuple[str, ...]:
        return (self.positives,) if isinstance(self.positives, str) else self.positives


class PromoterWindowsConfig(Section):
    """Promoter windows and their negatives."""

    upstream: int | None = field(
        5000,
        "bp before the TSS; null with sequences: half of their length",
        ge=0,
        le=LONGEST_WINDOW,
    )
    downstream: int | None = field(
        3000,
        "bp from the TSS, TSS included; null with sequences: the rest",
        ge=1,
        le=LONGEST_WINDOW,
    )
    negative_sets: tuple[NegativeSet, ...] = field(
        (*PARTED_SETS, "genomic"),
        "negatives for training and evaluation; substituted: 12 of 20 parts of the promoter replaced by "
        "random bases; permuted: 12 of the parts in another order; dinucleotide_shuffled: shuffled with the "
        "same dinucleotides; genomic: other windows with similar GC; intergenic: genomic windows without "
        "coding bases and at least min_tss_distance from every TSS (needs promoters.annotation); upstream: "
        "the nearest upstream window without a promoter; user: sequences.negatives",
    )
    negatives: int = field(
        1, "negatives per training promoter; each epoch uses another one", ge=1
    )
    min_tss_distance: int = field(
        1000,
        "minimum bp from any TSS to a genomic negative's TSS position, or an intergenic negative's window",
        ge=0,
    )

    @property
    def sides(self) -> tuple[int, int]:
        """bp upstream and downstream of the TSS; `ConfigError` if undefined without the sequences."""
        if self.upstream is None or self.downstream is None:
            raise ConfigError(
                "promoters.windows.upstream and downstream are null: set both, or set promoters.sequences"
            )
        return self.upstream, self.downstream

    @property
    def length(self) -> int:
        """Length of a window, in bp; `ConfigError` if undefined without the sequences."""
        return sum(self.sides)

    @property
    def has_sides(self) -> bool:
        """Whether `upstream` and `downstream` are set."""
        return self.upstream is not None and self.downstream is not None

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("negative_sets")
        if (
            self.has_sides
            and self.length < 20
            and {*self.negative_sets} & {*PARTED_SETS}
        ):
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


class PromoterTrainingConfig(FinetuningConfig):
    """Fine-tuning on promoter windows."""

    crop_jitter_bp: int = field(
        0, "maximum random crop at each end in training, bp", ge=0, le=LONGEST_WINDOW
    )


class PromoterCalibrationConfig(CalibrationConfig):
    """Calibration on promoter windows."""

    negatives: int = field(
        0,
        "extra negatives per held-out promoter and set, used only for calibration and its metrics; all "
        "negatives of a promoter together have the weight of one negative",
        ge=0,
    )


class PromoterConfig(Section):
    """Promoters: source, annotation, control, and one section per stage."""

    source: FileName | None = field(
        None,
        "EPDnew file: key in sources.yaml, or file; none: simulated promoters, or no promoter models",
    )
    sequences: PromoterSequencesConfig | None = field(
        None, "custom promoter sequences, in place of source; none: loci on a genome"
    )
    chain: FileName | None = field(
        None, "key of a liftOver chain to genome.assembly; none: no liftover"
    )
    annotation: FileName | None = field(
        None,
        "GFF3 or GTF: key in sources.yaml, or file, whose CDS give the coding fraction of each window; "
        "none: no coding fractions",
    )
    shuffled_label_control: NegativeSet | None = field(
        "genomic",
        "negative set of the control model, trained on shuffled labels; none: no control",
    )
    num_gpus: int = field(
        1, "torchrun processes for the training of a model", ge=1, le=MOST_PROCESSES
    )
    windows: PromoterWindowsConfig = PromoterWindowsConfig()
    model: ClassifierConfig = ClassifierConfig()
    training: PromoterTrainingConfig = PromoterTrainingConfig()
    calibration: PromoterCalibrationConfig = PromoterCalibrationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _sequences_say_the_windows(cls, values: Any) -> Any:
        """Derive omitted keys from the sequences, if any, instead of the defaults for a genome."""
        sets = sequence_sets(values)
        if sets is None:
            return values
        windows = values.get("windows", {})
        if isinstance(windows, Mapping):
            windows = {
                "upstream": None,
                "downstream": None,
                "negative_sets": sets,
                **windows,
            }
        return {
            "shuffled_label_control": sets[0] if sets else None,
            **values,
            "windows": windows,
        }

    def _faults(self) -> Iterator[str]:
        yield from self._faults_of_sequences()
        if (
            self.windows.has_sides
            and self.windows.length <= 2 * self.training.crop_jitter_bp
        ):
            yield "training.crop_jitter_bp must be below half the window"
        if self.model.views > 1 and not self.training.crop_jitter_bp:
            yield "model.views above 1 needs training.crop_jitter_bp above 0"
        # A stage's file has windows and no control: its default must not constrain them.
        given = (
            "shuffled_label_control" in self.model_fields_set
            and self.shuffled_label_control is not None
        )
        if given and self.shuffled_label_control not in self.windows.negative_sets:
            yield (
                f"shuffled_label_control {self.shuffled_label_control!r} is not one of windows.negative_sets"
            )

    def _faults_of_sequences(self) -> Iterator[str]:
        windows = self.windows
        if self.sequences is not None and self.calibration.negatives:
            yield "calibration.negatives needs promoters as loci on a genome (source)"
        if self.sequences is None:
            # A stage's file has windows and no sequences: their absence must not constrain the windows.
            if "sequences" in self.model_fields_set:
                if "user" in windows.negative_sets:
                    yield "negative set 'user' needs sequences.negatives"
                if not windows.has_sides:
                    yield "windows.upstream and windows.downstream can only be null with sequences"
            return
        if self.source is not None or self.chain is not None:
            yield "source and chain must be null with sequences"
        if self.annotation is not None:
            yield "annotation needs promoters as loci on a genome (source), not sequences"
        for name in PLACED_SETS:
            if name in windows.negative_sets:
                yield f"negative set {name!r} needs promoters as loci on a genome (source), not sequences"
        given = has_negatives(self.sequences.positives, self.sequences.negatives)
        if "user" in windows.negative_sets and not given:
            yield "negative set 'user' needs sequences.negatives"
        if "user" not in windows.negative_sets and given:
            yield "sequences.negatives need the negative set 'user' in windows.negative_sets"
        if windows.upstream is None and windows.downstream is not None:
            yield "windows.downstream needs windows.upstream; with sequences, downstream is the rest"

    def with_sides(self, upstream: int, downstream: int, where: str) -> Self:
        """Return this section with the window of a data set, named `where` in messages.

        `ConfigError`: the section has another window, or jitter of at least half the window.
        """
        for key, configured, found in (
            ("upstream", self.windows.upstream, upstream),
            ("downstream", self.windows.downstream, downstream),
        ):
            if configured not in (None, found):
                raise ConfigError(
                    f"promoters.windows.{key} is {configured}, but {where} has windows of {upstream} + "
                    f"{downstream} bp around the TSS"
                )
        if upstream + downstream <= 2 * self.training.crop_jitter_bp:
            raise ConfigError(
                f"promoters.training.crop_jitter_bp {self.training.crop_jitter_bp} must be below half the "
                f"window of {upstream + downstream} bp ({where})"
            )
        sides = {"upstream": upstream, "downstream": downstream}
        return self.model_copy(
            update={"windows": self.windows.model_copy(update=sides)}
        )


def sequence_sets(promoters: Any) -> tuple[Any, ...] | None:
    """Return the negative sets of a section `promoters` as read from a file; None without sequences.

    They are the configured sets, else the user's negatives, else the sets made from parts of promoters.
    """
    if not isinstance(promoters, Mapping):
        return None
    sequences, windows = promoters.get("sequences"), promoters.get("windows")
    if not isinstance(sequences, Mapping):
        return None
    configured = windows.get("negative_sets") if isinstance(windows, Mapping) else None
    if isinstance(configured, list | tuple):
        return tuple(configured)
    given = has_negatives(sequences.get("positives"), sequences.get("negatives"))
    return ("user",) if given else PARTED_SETS


def has_negatives(positives: Any, negatives: Any) -> bool:
    """Return whether custom sequences have negatives, given as a file or in tables with the positives."""
    first = (
        positives[0] if isinstance(positives, list | tuple) and positives else positives
    )
    return negatives not in (None, "null") or (
        isinstance(first, str) and is_table(first)
    )
