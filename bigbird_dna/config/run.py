"""The configuration of a run, and the keys that each stage reads."""

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from bigbird_dna.config.chromatin import DEEPSEA, SIMULATED, ChromatinConfig
from bigbird_dna.config.data import (
    GenomeConfig,
    SimulationConfig,
    TokensConfig,
)
from bigbird_dna.config.experiments import (
    AblationConfig,
    TablesConfig,
)
from bigbird_dna.config.long_range import ByteLmConfig, LongRangeConfig
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.promoters import NegativeSet, PromoterConfig
from bigbird_dna.config.section import DirectoryName, FileName, Section, field
from bigbird_dna.config.sequences import SequencesConfig
from bigbird_dna.config.training import MOST_PROCESSES, PretrainingConfig
from bigbird_dna.errors import ConfigError


class ScoringConfig(Section):
    """Example of `score-promoters` on held-out contigs.

    A dense model scores all test contigs; a promoter model of windows the first one.
    """

    stride: int = field(
        10, "models of windows and baselines: distance between scores, bp", ge=1
    )
    suppress: int = field(
        100, "calls of a strand are farther apart than this, bp", ge=0
    )
    negative_set: NegativeSet = field(
        "genomic",
        "negative set of the model of windows that scores; with a dense model, of the baselines",
    )
    max_megabases: float | None = field(
        0.2,
        "models of windows: maximum scored length of the first test contig or region, Mb; none: all of it",
        gt=0,
    )


class Config(Section):
    """A run: output directory and sections; each stage reads some of them (`STAGES`)."""

    results: DirectoryName = field("results/demo", "directory of all outputs")
    data_dir: FileName | None = field(
        None, "directory searched for source files before downloading"
    )
    num_gpus: int = field(
        1, "torchrun processes for pretraining", ge=1, le=MOST_PROCESSES
    )
    seed: int = field(
        1, "random seed of simulation, documents and negatives", ge=0, lt=2**32
    )
    simulation: SimulationConfig = SimulationConfig()
    genome: GenomeConfig = GenomeConfig()
    pieces: dict[str, Any] | None = field(
        None,
        "settings of workflow/scripts/human_pieces.py, which checks them; it makes the genome and start sites, "
        "in place of genome.reference and promoters.source; none: no pieces",
    )
    tokens: TokensConfig = TokensConfig()
    encoder: EncoderConfig = EncoderConfig()
    pretraining: PretrainingConfig = PretrainingConfig()
    promoters: PromoterConfig = PromoterConfig()
    chromatin: ChromatinConfig = ChromatinConfig()
    sequences: SequencesConfig = SequencesConfig()
    example_scan: ScoringConfig = ScoringConfig()
    tables: TablesConfig = TablesConfig()
    ablation: AblationConfig = AblationConfig()
    long_range_arena: LongRangeConfig | None = field(
        None,
        "generated tasks of the Long-Range Arena, if requested; none: published sizes",
    )
    byte_lm: ByteLmConfig | None = field(
        None, "causal byte-level language model of images or text; none: no such model"
    )

    @property
    def paths(self) -> RunPaths:
        """Paths of the run's files."""
        return RunPaths(Path(self.results))

    @property
    def model_tokenizer(self) -> Path:
        """The tokenizer of fine-tuned models: a file, or the directory of the model that they start from."""
        starts = self.pretraining.start_from is not None
        return self.paths.pretrained if starts else self.paths.tokenizer

    @property
    def has_labeled_sequences(self) -> bool:
        """Whether a model of labeled sequences is trained."""
        return self.sequences.data is not None

    @property
    def has_genome(self) -> bool:
        """Whether there is a genome, simulated or not; labeled sequences do not need one.

        With them alone, a genome is simulated only if contigs of it are held out.
        """
        if self.genome.reference is not None or self.pieces is not None:
            return True
        return not self.has_labeled_sequences or bool(self.genome.test)

    @property
    def is_simulated(self) -> bool:
        """Whether the genome is simulated."""
        is_given = self.genome.reference is not None or self.pieces is not None
        return self.has_genome and not is_given

    @property
    def has_promoters(self) -> bool:
        """Whether promoter models are trained; a simulated genome includes promoters."""
        has_sites = self.promoters.source is not None or self.pieces is not None
        return self.is_simulated or has_sites

    @property
    def has_dense(self) -> bool:
        """Whether a dense model of start sites is trained."""
        return self.has_promoters and self.promoters.model == "dense"

    @property
    def has_promoter_windows(self) -> bool:
        """Whether classifiers of promoter windows are trained."""
        return self.has_promoters and self.promoters.model == "window"

    @property
    def has_chromatin(self) -> bool:
        """Whether chromatin models are trained."""
        return self.chromatin.data.tracks is not None

    @property
    def has_pretraining(self) -> bool:
        """Whether an encoder is pretrained; without promoters, only if chromatin needs it."""
        if self.pretraining.start_from is not None:
            return False

        labeled = (
            self.has_labeled_sequences and self.sequences.model.initial == "pretrained"
        )
        used = (
            self.has_promoters
            or labeled
            or self.chromatin.model.initial == "pretrained"
        )
        return self.has_genome and used

    def _faults(self) -> Iterator[str]:
        if self.pieces is not None:
            for key in ("genome.reference", "promoters.source", "promoters.chain"):
                if attrgetter(key)(self) is not None:
                    yield f"{key} must be null with the section pieces"

            if self.genome.assembly != "custom":
                yield "genome.assembly must be custom with the section pieces"

        # A file of a later stage has an encoder and no pretraining, whose default must not constrain it.
        tokens = self.pretraining.sequence_tokens
        used = (
            "pretraining" in self.model_fields_set
            and self.pretraining.start_from is None
        )
        if used and self.has_genome and tokens > self.encoder.max_length:
            yield (
                f"pretraining.sequence_tokens {tokens} exceeds encoder.max_length {self.encoder.max_length}"
            )
        if self.encoder.causal:
            yield "encoder.causal must be false: models of DNA read both sides; byte_lm sets it"

    def check_targets(self, source: str = "configuration") -> None:
        """`ConfigError` for a run without models, held-out sequences, or a model of the example scan.

        The error has `source`, the names of the files. Without these checks, the run would end after hours of
        computation.
        """
        for fault in self._faults_of_targets():
            raise ConfigError(f"{source}: {fault}")

    def _faults_of_targets(self) -> Iterator[str]:
        if not (self.has_promoters or self.has_chromatin or self.has_labeled_sequences):
            yield "promoters.source, chromatin.data.tracks and sequences.data are null: set at least one"

        scanning = self.example_scan.negative_set
        if self.has_promoters and scanning not in self.promoters.windows.negative_sets:
            yield (
                f"example_scan.negative_set {scanning!r} must be one of "
                "promoters.windows.negative_sets"
            )

        if not self.has_genome:
            if self.has_chromatin:
                yield "chromatin.data.tracks needs genome.reference in addition to labeled sequences"

            starts = self.pretraining.start_from is not None
            if self.sequences.model.initial == "pretrained" and not starts:
                yield (
                    "sequences.model.initial 'pretrained' needs genome.reference for pretraining, or a model "
                    "in pretraining.start_from; without them, use 'random'"
                )

            return

        # Promoters use only the section genome; bins and pretraining also regions held out for chromatin.
        data = self.chromatin.data
        bins = self.has_chromatin and data.tracks != DEEPSEA
        for split, regions, is_used in (
            ("valid", data.valid_regions, bins or self.has_pretraining),
            ("test", data.test_regions, bins),
        ):
            needed = self.has_promoters or (is_used and not regions)
            if needed and not getattr(self.genome, split):
                yield f"genome.{split} needs at least one contig or region"

        for text in self.genome.test:
            if ":" in text and data.tracks == SIMULATED:
                yield (
                    f"genome.test: {text!r} is a region, but effects of simulated variants are evaluated "
                    "on whole contigs: list contigs only"
                )


STAGES: Mapping[str, str] = {
    # Regions held out for chromatin are also held out of pretraining.
    "tokens": (
        "seed genome tokens chromatin.data.valid_regions chromatin.data.test_regions"
    ),
    "pieces": "genome pieces",
    "pretraining": "seed genome tokens encoder pretraining",
    "windows": "seed genome promoters.windows",
    "promoters": (
        "seed genome encoder promoters.windows promoters.classifier promoters.training "
        "promoters.evaluation.baseline_kmer promoters.source "
        "promoters.calibration.method"
    ),
    "sequences": (
        "seed encoder tokens sequences.min_shared_kmers sequences.both_strands "
        "sequences.model sequences.training sequences.baselines sequences.evaluation"
    ),
    "promoter-baseline": "seed promoters.evaluation",
    "chromatin-data": "seed genome chromatin.data",
    "chromatin": (
        "seed genome encoder chromatin.data chromatin.model chromatin.training "
        "chromatin.evaluation.baseline_kmer chromatin.evaluation.baseline_dyads "
        "chromatin.evaluation.center_fraction"
    ),
    "chromatin-evaluation": "chromatin.evaluation",
    "chromatin-calibration": (
        "chromatin.evaluation.center_fraction chromatin.evaluation.seed "
        "chromatin.calibration"
    ),
    "encoder": "encoder",
    "long-range": "long_range_arena",
    "density": "byte_lm",
    # All sections and keys except paths.
    "report": (
        "num_gpus seed simulation genome pieces tokens encoder pretraining promoters "
        "chromatin example_scan tables ablation"
    ),
    "start-sites": (
        "seed genome encoder promoters.model promoters.dense promoters.source"
    ),
}
"""Stage → sections and keys of the configuration that it reads; other keys do not run it again."""


def stage_values(config: Config, stage: str) -> dict[str, Any]:
    """Return the sections and keys that a stage reads, nested as in the configuration, as JSON values.

    Single keys of other sections are omitted if null or an empty list.
    """
    include: dict[str, Any] = {}
    for name in STAGES[stage].split():
        if "." in name and attrgetter(name)(config) in ((), None):
            continue

        *sections, last = name.split(".")
        keys = include
        for section in sections:
            keys = keys.setdefault(section, {})

        keys[last] = True

    return config.model_dump(mode="json", include=include)


def stage_text(config: Config, stage: str) -> str:
    """Return the sections of a stage with every key as a configuration file (JSON, which is also YAML)."""
    # Without escapes: YAML reads JSON's escape of a character above 16 bits as two surrogates.
    return json.dumps(stage_values(config, stage), indent=1, ensure_ascii=False)
