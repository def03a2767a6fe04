"""The section `promoters`: their windows, the classifier, its training and evaluation (App. F.2)."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from bigbird_dna.config.section import LONGEST_WINDOW, MONITORING, MOST_VIEWS, FileName, Section, field
from bigbird_dna.config.training import (
    MOST_PROCESSES,
    CalibrationConfig,
    EvaluationConfig,
    FinetuningConfig,
    StartConfig,
)
from bigbird_dna.errors import ConfigError

NegativeSet = Literal[
    "substituted", "permuted", "dinucleotide_shuffled", "genomic", "intergenic", "upstream", "user"
]
NEGATIVE_SETS: tuple[NegativeSet, ...] = get_args(NegativeSet)
PARTED_SETS: tuple[NegativeSet, ...] = ("substituted", "permuted")
"""Negatives that are positives, cut into parts of which some are changed."""
DERIVED_SETS: tuple[NegativeSet, ...] = (*PARTED_SETS, "dinucleotide_shuffled")
"""Negatives that are made of the positives' own sequences."""
PLACED_SETS: tuple[NegativeSet, ...] = ("genomic", "intergenic", "upstream")
"""Negatives that are places on a genome, and want promoters that are."""


class PromoterSequencesConfig(Section):
    """Positives, and maybe negatives, as sequences of the user's own instead of loci on a genome."""

    positives: FileName = Field(description="FASTA of promoters, in data_dir or from here")
    negatives: FileName | None = field(None, "FASTA of the negative set `user`; none: there is no such set")
    splits: FileName | None = field(None, "TSV of record and split; none: similar sequences share a split")
    length: int | None = field(
        None, "bp that all are trimmed to, around their middle; none: they have one length", ge=20
    )
    min_shared_kmers: float = field(0.2, "share of their k-mers from which on two share a split", gt=0, le=1)

    def _faults(self) -> Iterator[str]:
        if self.negatives == self.positives:
            yield f"positives and negatives are the same file {self.positives!r}"


class PromoterWindowsConfig(Section):
    """Promoter windows and their negatives."""

    upstream: int | None = field(
        5000, "bp before the TSS; null with sequences: half of their length", ge=0, le=LONGEST_WINDOW
    )
    downstream: int | None = field(
        3000, "bp from the TSS on, TSS included; null with sequences: the rest", ge=1, le=LONGEST_WINDOW
    )
    negative_sets: tuple[NegativeSet, ...] = field(
        (*PARTED_SETS, "genomic"),
        "what promoters are told from; substituted: 12 of their 20 parts replaced by random bases; "
        "permuted: 12 of the parts in another order; dinucleotide_shuffled: another order with the same "
        "dinucleotides; genomic: windows elsewhere, of like GC; intergenic: such windows without any "
        "coding base, all of whose bases are at least `distance` from every TSS (needs "
        "promoters.annotation); upstream: the nearest window before theirs without a promoter; given: "
        "sequences.negatives",
    )
    negatives: int = field(1, "negatives a training promoter has; each epoch takes another", ge=1)
    min_tss_distance: int = field(
        1000,
        "bp between any TSS and a genomic negative's TSS position, or an intergenic negative's nearest base",
        ge=0,
    )

    @property
    def sides(self) -> tuple[int, int]:
        """bp before the TSS and from it on; `ConfigError` where they are left to the sequences."""
        if self.upstream is None or self.downstream is None:
            raise ConfigError(
                "promoters.windows: upstream and downstream are null: say both, or name promoters.sequences"
            )
        return self.upstream, self.downstream

    @property
    def length(self) -> int:
        """bp of a window; `ConfigError` where it is left to the sequences."""
        return sum(self.sides)

    @property
    def has_sides(self) -> bool:
        """Whether both sides of the window are said."""
        return self.upstream is not None and self.downstream is not None

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("negative_sets")
        if self.has_sides and self.length < 20 and {*self.negative_sets} & {*PARTED_SETS}:
            yield "a window below 20 bp can't be cut into the 20 parts of derived negatives"


class PromoterModelConfig(StartConfig):
    """The promoter classifier."""

    pooling: Literal["cls", "mean"] = field(
        "cls", "what the classifier sees: the first token, or the mean over all"
    )
    head: Literal["dense", "linear"] = field(
        "dense", "linear: one layer, as in the paper; dense: another before it, as HuggingFace's"
    )
    views: Annotated[int, MONITORING] = field(
        1, "tokenisations of a window whose probabilities are averaged", ge=1, le=MOST_VIEWS
    )
    base_positions: bool = field(True, "each token also carries which base lies at which offset from the TSS")
    ensemble: bool = field(
        True,
        "the log-odds of the position baseline are added to the network's, with weights fitted to the "
        "validation windows",
    )


class PromoterTrainingConfig(FinetuningConfig):
    """Fine-tuning on promoter windows."""

    crop_jitter_bp: int = field(0, "bp cut at random from each end in training", ge=0, le=LONGEST_WINDOW)


class PromoterCalibrationConfig(CalibrationConfig):
    """Calibration on promoter windows."""

    negatives: int = field(
        0,
        "further negatives of each set that a held-out promoter has for the calibration and its figures "
        "alone: all its negatives weigh as much there as the one of other figures",
        ge=0,
    )


class PromoterConfig(Section):
    """Promoters: where they come from, which models are made, and a section a stage."""

    source: FileName | None = field(
        None,
        "key of an EPDnew file in sources.yaml, or a file; none: the simulation's, or no promoter models",
    )
    sequences: PromoterSequencesConfig | None = field(
        None, "your own sequences of promoters, in place of source; none: loci"
    )
    chain: FileName | None = field(None, "key of a liftOver chain onto genome.assembly; none: already on it")
    annotation: FileName | None = field(
        None,
        "key of a GFF3 or GTF in sources.yaml, or a file; its CDS give the coding fraction of each "
        "window; none: no coding fractions",
    )
    shuffled_label_control: NegativeSet | None = field(
        "genomic", "negative set trained once more on shuffled labels"
    )
    num_gpus: int = field(1, "torchrun processes for the training of a model", ge=1, le=MOST_PROCESSES)
    windows: PromoterWindowsConfig = PromoterWindowsConfig()
    model: PromoterModelConfig = PromoterModelConfig()
    training: PromoterTrainingConfig = PromoterTrainingConfig()
    calibration: PromoterCalibrationConfig = PromoterCalibrationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _sequences_say_the_windows(cls, values: Any) -> Any:
        """What a configuration of sequences leaves out follows from them, not from a genome's defaults."""
        sets = sequence_sets(values)
        if sets is None:
            return values
        windows = values.get("windows", {})
        if isinstance(windows, Mapping):
            windows = {"upstream": None, "downstream": None, "negative_sets": sets, **windows}
        return {"shuffled_label_control": sets[0] if sets else None, **values, "windows": windows}

    def _faults(self) -> Iterator[str]:
        yield from self._faults_of_sequences()
        if self.windows.has_sides and self.windows.length <= 2 * self.training.crop_jitter_bp:
            yield "training.crop_jitter_bp leaves nothing of the window"
        if self.model.views > 1 and not self.training.crop_jitter_bp:
            yield "several model.views differ by training.crop_jitter_bp, which is 0"
        # A stage's file has windows and no control: that one's default says nothing of them.
        given = "shuffled_label_control" in self.model_fields_set and self.shuffled_label_control is not None
        if given and self.shuffled_label_control not in self.windows.negative_sets:
            yield (
                f"shuffled_label_control {self.shuffled_label_control!r} is not one of windows.negative_sets"
            )

    def _faults_of_sequences(self) -> Iterator[str]:
        windows = self.windows
        if self.sequences is not None and self.calibration.negatives:
            yield "calibration.negatives needs promoters as loci on a genome (source)"
        if self.sequences is None:
            # A stage's file has windows and no sequences: their absence says nothing of them.
            if "sequences" in self.model_fields_set:
                if "user" in windows.negative_sets:
                    yield "negative set 'user' needs sequences.negatives"
                if not windows.has_sides:
                    yield "windows.upstream and windows.downstream can only be null with sequences"
            return
        if self.source is not None or self.chain is not None:
            yield "sequences stand in place of source and chain: leave these null"
        if self.annotation is not None:
            yield "annotation needs promoters as loci on a genome (source), which sequences are not"
        for name in PLACED_SETS:
            if name in windows.negative_sets:
                yield (
                    f"negative set {name!r} needs promoters as loci on a genome (source), which sequences "
                    "are not"
                )
        if "user" in windows.negative_sets and self.sequences.negatives is None:
            yield "negative set 'user' needs sequences.negatives"
        if "user" not in windows.negative_sets and self.sequences.negatives is not None:
            yield "sequences.negatives are the negative set 'user': add it to windows.negative_sets"
        if windows.upstream is None and windows.downstream is not None:
            yield "with sequences say windows.upstream: downstream is the rest of their length"

    def with_sides(self, upstream: int, downstream: int, where: str) -> Self:
        """This section with the window of a data set, which is called `where`.

        `ConfigError`: the section says another window, or more jitter than the window has room for.
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
                f"promoters.training.crop_jitter_bp {self.training.crop_jitter_bp} leaves nothing of windows "
                f"of {upstream + downstream} bp ({where})"
            )
        sides = {"upstream": upstream, "downstream": downstream}
        return self.model_copy(update={"windows": self.windows.model_copy(update=sides)})


def sequence_sets(promoters: Any) -> tuple[Any, ...] | None:
    """The negative sets of a section `promoters` as it stands in a file; none: it doesn't name sequences.

    They are those that it says, or else the user's own negatives, or else the derived ones.
    """
    if not isinstance(promoters, Mapping):
        return None
    sequences, windows = promoters.get("sequences"), promoters.get("windows")
    if not isinstance(sequences, Mapping):
        return None
    configured = windows.get("negative_sets") if isinstance(windows, Mapping) else None
    if isinstance(configured, list | tuple):
        return tuple(configured)
    return ("user",) if sequences.get("negatives") is not None else PARTED_SETS
