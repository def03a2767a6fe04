"""The whole configuration of a run, and which of its keys each stage reads."""

import json
import shlex
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import model_validator

from bigbird_dna.config.chromatin import DEEPSEA, SIMULATED, ChromatinConfig
from bigbird_dna.config.data import GenomeConfig, SimulationConfig, SplitsConfig, TokensConfig
from bigbird_dna.config.experiments import AblationConfig, StudyConfig, StudyStart, TablesConfig
from bigbird_dna.config.long_range import ByteLmConfig, LongRangeConfig
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.promoters import NegativeSet, PromoterConfig, sequence_sets
from bigbird_dna.config.section import DirectoryName, FileName, Section, field
from bigbird_dna.config.training import MOST_PROCESSES, PretrainingConfig
from bigbird_dna.errors import ConfigError


class ScoringConfig(Section):
    """The workflow's example of `score-promoters` on held-out contigs."""

    stride: int = field(10, "bp between windows", ge=1)
    negative_set: NegativeSet = field("genomic", "whose model scores")
    max_megabases: float = field(0.2, "how much of the first test contig or region is scored", gt=0)
    shards: int = field(1, "jobs that the windows are divided into; changes no byte", ge=1, le=10_000)


class Config(Section):
    """A whole run: where its files go, and its sections, of which each stage reads some (`STAGES`)."""

    results: DirectoryName = field("results/demo", "directory of every output")
    data_dir: FileName | None = field(None, "searched for source files before they are fetched")
    num_gpus: int = field(1, "torchrun processes for pretraining", ge=1, le=MOST_PROCESSES)
    seed: int = field(1, "of simulation, documents and negatives", ge=0, lt=2**32)
    simulation: SimulationConfig = SimulationConfig()
    genome: GenomeConfig = GenomeConfig()
    splits: SplitsConfig = SplitsConfig()
    tokens: TokensConfig = TokensConfig()
    encoder: EncoderConfig = EncoderConfig()
    pretraining: PretrainingConfig = PretrainingConfig()
    promoters: PromoterConfig = PromoterConfig()
    chromatin: ChromatinConfig = ChromatinConfig()
    example_scan: ScoringConfig = ScoringConfig()
    pretraining_study: StudyConfig | None = field(
        None, "fine-tuning from pretrained and from random weights; none: no study"
    )

    tables: TablesConfig = TablesConfig()
    ablation: AblationConfig = AblationConfig()
    long_range_arena: LongRangeConfig | None = field(
        None, "Long-Range Arena's generated tasks; none: in published sizes, if they are asked for"
    )
    byte_lm: ByteLmConfig | None = field(
        None, "a causal model of images or text, byte after byte; none: there is none"
    )

    @property
    def paths(self) -> RunPaths:
        """The names of the run's files."""
        return RunPaths(Path(self.results))

    @property
    def has_sequences(self) -> bool:
        """Whether promoters are sequences of the user's own."""
        return self.promoters.sequences is not None

    @property
    def has_genome(self) -> bool:
        """Whether there is a genome, simulated or not; sequences can do without."""
        return self.genome.reference is not None or not self.has_sequences

    @property
    def is_simulated(self) -> bool:
        """Whether the genome is simulated."""
        return self.genome.reference is None and self.has_genome

    @property
    def has_promoters(self) -> bool:
        """Whether there are models of promoters; a simulated genome has its own."""
        return self.is_simulated or self.has_sequences or self.promoters.source is not None

    @property
    def has_chromatin(self) -> bool:
        """Whether there are models of chromatin."""
        return self.chromatin.data.tracks is not None

    @property
    def has_pretraining(self) -> bool:
        """Whether an encoder is pretrained; for chromatin alone only if that, or a study, starts from it."""
        wanted = self.has_promoters or self.chromatin.model.initial == "pretrained"
        return self.has_genome and (wanted or self.studies("pretrained"))

    def studies(self, start: StudyStart) -> bool:
        """Whether a study has models of a start."""
        return self.pretraining_study is not None and start in self.pretraining_study.initializations

    @model_validator(mode="before")
    @classmethod
    def _sequences_say_the_scoring(cls, values: Any) -> Any:
        """With sequences the example is scored by the first of their models, if none is said."""
        if not isinstance(values, Mapping) or not (sets := sequence_sets(values.get("promoters"))):
            return values
        scoring = values.get("example_scan", {})
        if not isinstance(scoring, Mapping):
            return values
        return {**values, "example_scan": {"negative_set": sets[0], **scoring}}

    def _faults(self) -> Iterator[str]:
        # A later stage's file has an encoder and no pretraining: the default's length says nothing of it.
        tokens, used = self.pretraining.sequence_tokens, "pretraining" in self.model_fields_set
        if used and self.has_genome and tokens > self.encoder.max_length:
            yield (
                f"pretraining.sequence_tokens {tokens} is above encoder.max_length {self.encoder.max_length}"
            )
        if used and self.encoder.causal:
            self.pretraining.check_causal()

    def check_targets(self) -> None:
        """`ConfigError` where there is nothing to do, no held-out sequence, or no model to score with."""
        for fault in self._faults_of_targets():
            raise ConfigError(fault)

    def _faults_of_targets(self) -> Iterator[str]:
        windows = self.promoters.windows
        if not self.has_promoters and not self.has_chromatin:
            yield "promoters.source and chromatin.data.tracks are both null: name one of them"
        if self.has_genome:
            yield from self._faults_of_held_out()
        else:
            yield from self._faults_of_without_genome()
        if self.has_promoters and self.example_scan.negative_set not in windows.negative_sets:
            yield (
                f"example_scan.negative_set: {self.example_scan.negative_set!r} is not one of "
                "promoters.windows.negative_sets"
            )
        yield from self._faults_of_annotation()
        if self.has_sequences and self.splits.max_train_test_similarity is not None:
            yield (
                "splits.max_train_test_similarity: is for windows on a genome; of promoters.sequences "
                "similar ones share a split (promoters.sequences.min_shared_kmers)"
            )
        if self.pretraining_study is not None:
            yield from self._faults_of_study(self.pretraining_study)
        if self.has_promoters:
            self.encoder.check_pooling(self.promoters.model.pooling, "promoters.model")
        if self.has_chromatin:
            self.encoder.check_pooling(self.chromatin.model.pooling, "chromatin.model")

    def _faults_of_annotation(self) -> Iterator[str]:
        """Where a negative set needs to know the coding bases, and no annotation is named."""
        if not self.has_promoters or self.promoters.annotation is not None:
            return
        for key, names in (
            ("promoters.windows.negative_sets", self.promoters.windows.negative_sets),
            ("tables.negative_sets", self.tables.negative_sets or ()),
            ("tables.context_negative_set", (self.tables.context_negative_set,)),
        ):
            if "intergenic" in names:
                yield (
                    f"{key}: 'intergenic' needs the coding sequences of the genome: name a GFF3 or GTF file "
                    "in promoters.annotation"
                )

    def _faults_of_study(self, study: StudyConfig) -> Iterator[str]:
        for task, there in (("promoters", self.has_promoters), ("chromatin", self.has_chromatin)):
            if task not in study.tasks:
                continue
            if not there:
                yield f"pretraining_study.tasks: there are no models of {task} in this run"
            steps = study.steps or getattr(self, task).training.steps
            if study.random_long_steps is not None and study.random_long_steps <= steps:
                yield (
                    f"pretraining_study.random_long_steps: {study.random_long_steps} is not above the "
                    f"{steps} steps of {task}"
                )
        if "promoters" in study.tasks and study.negative_set not in self.promoters.windows.negative_sets:
            yield (
                f"pretraining_study.negative_set: {study.negative_set!r} is not one of "
                "promoters.windows.negative_sets"
            )
        if "pretrained" in study.initializations and not self.has_genome:
            yield "pretraining_study.initializations: 'pretrained' needs a genome.reference to pretrain on"

    def _faults_of_held_out(self) -> Iterator[str]:
        # Promoters know the section genome alone; bins and pretraining also what is held out for chromatin.
        data, loci = self.chromatin.data, self.has_promoters and not self.has_sequences
        regions = {"valid": data.valid_regions, "test": data.test_regions}
        bins = self.has_chromatin and data.tracks != DEEPSEA
        also = {"valid": bins or self.has_pretraining, "test": bins}
        for split in ("valid", "test"):
            if getattr(self.genome, split):
                continue
            if loci:
                yield f"genome.{split}: name at least one contig or region"
            if also[split] and not regions[split]:
                where = f", or one in chromatin.data.{split}_regions" if self.has_chromatin else ""
                yield f"genome.{split}: name at least one contig or region{where}"
        cut = [text for text in self.genome.test if ":" in text]
        if cut and data.tracks == SIMULATED:
            yield (
                f"genome.test: {cut[0]!r} is a region, but effects of simulated variants are judged on whole "
                "contigs: name contigs"
            )

    def _faults_of_without_genome(self) -> Iterator[str]:
        genome = self.genome
        for key in ("exclude", "valid", "test"):
            if getattr(genome, key):
                yield (
                    f"genome.{key}: names contigs, but promoters.sequences without genome.reference have no "
                    "genome"
                )
        if self.has_chromatin:
            yield "chromatin.data.tracks: needs a genome.reference beside promoters.sequences"
        if self.promoters.model.initial == "pretrained":
            yield (
                "promoters.model.initial: 'pretrained' needs a genome.reference to pretrain on; without one "
                "say 'random'"
            )


# Bytes of a stage's file, which is written by a command: the kernel takes 128 KiB of one.
_LARGEST = 100_000

STAGES: Mapping[str, tuple[str, ...]] = {
    # What is held out for chromatin is held out of pretraining.
    "tokens": ("seed", "genome", "tokens", "chromatin.data.valid_regions", "chromatin.data.test_regions"),
    "pretraining": ("seed", "genome", "tokens", "encoder", "pretraining"),
    "windows": (
        "seed",
        "genome",
        "splits.max_train_test_similarity",
        "promoters.windows",
        "promoters.calibration.negatives",
    ),
    "promoters": (
        *("seed", "genome", "encoder"),
        *("promoters.windows", "promoters.model", "promoters.training"),
        *("promoters.calibration.method", "promoters.calibration.negatives"),
    ),
    "promoter-baseline": ("seed", "promoters.evaluation"),
    "chromatin-data": ("seed", "genome", "chromatin.data"),
    "chromatin": ("seed", "genome", "encoder", "chromatin.data", "chromatin.model", "chromatin.training"),
    "chromatin-evaluation": ("chromatin.evaluation",),
    "chromatin-calibration": (
        *("chromatin.evaluation.middle", "chromatin.evaluation.seed"),
        "chromatin.calibration",
    ),
    "attention": ("encoder",),
    "long-range": ("long_range_arena",),
    "density": ("byte_lm",),
    # All but where files are.
    "report": (
        *("num_gpus", "seed", "simulation", "genome", "splits", "tokens", "encoder", "pretraining"),
        *("promoters", "chromatin", "example_scan", "pretraining_study", "tables", "ablation"),
    ),
}
"""Which sections and keys of the configuration each stage of a run reads: other keys don't run it again."""

# A stage doesn't say these at their default: what was made before they were there isn't made again.
_DEFAULTS_OMITTED: Mapping[str, Mapping[str, Any]] = {
    "windows": {"promoters.calibration.negatives": 0},
    "promoters": {"promoters.calibration.method": "auto", "promoters.calibration.negatives": 0},
}


def stage_values(config: Config, stage: str) -> dict[str, Any]:
    """The sections and keys that a stage reads, at their places in the configuration, as values for JSON.

    A key of another stage's section that is null or an empty list is left out: it says nothing.
    """
    include: dict[str, Any] = {}
    for name in _stored(config, stage):
        *outer, last = name.split(".")
        here = include
        for section in outer:
            here = here.setdefault(section, {})
        here[last] = True
    return config.model_dump(mode="json", include=include)


def _stored(config: Config, stage: str) -> list[str]:
    found = {name: attrgetter(name)(config) for name in STAGES[stage]}
    quiet = _DEFAULTS_OMITTED.get(stage, {})
    return [
        name
        for name, value in found.items()
        if "." not in name or (value not in ((), None) and (name not in quiet or value != quiet[name]))
    ]


def check_stages(config: Config) -> None:
    """`ConfigError` where a stage's file would be too large to be written."""
    for stage in STAGES:
        size = len(shlex.quote(stage_text(config, stage)).encode())
        if size > _LARGEST:
            names = " and ".join(_stored(config, stage))
            raise ConfigError(f"{names} take {size:,} bytes, above {_LARGEST:,}: shorten their lists")


def stage_text(config: Config, stage: str) -> str:
    """The stage's sections with every key, as the text of a configuration file (JSON, which is YAML)."""
    # Characters as they are: YAML reads JSON's escapes of those beyond 16 bits as two halves.
    return json.dumps(stage_values(config, stage), indent=1, ensure_ascii=False)
