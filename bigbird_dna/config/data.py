"""Sections of the data: simulation, genome, splits and tokens."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import field_validator

from bigbird_dna.config.section import (
    ASSEMBLY_SYNONYMS,
    ContigName,
    FileName,
    Section,
    field,
)


class SimulationConfig(Section):
    """The demo genome (`bigbird-dna simulate`)."""

    megabases: float = field(
        4.0,
        "size of the simulated genome, in six contigs demo1 to demo6",
        gt=0.1,
        le=1000,
    )


class GenomeConfig(Section):
    """The source of the reference genome, and its held-out contigs and regions.

    `exclude`, `valid` and `test` list contigs by any known name or shell pattern (`"chr*_*"`), or regions in
    samtools notation (`"22:19,000,001-20,000,000"`).
    """

    assembly: Literal[
        "demo", "sacCer3", "ASM294v2", "ASM584v2", "GRCh37", "GRCh38", "custom"
    ] = field(
        "demo",
        "assembly whose contig names and lengths the reference must match; hg19, hg38 and R64-1-1 are "
        "synonyms of GRCh37, GRCh38 and sacCer3; custom: a user-supplied genome",
    )
    name: str | None = field(None, "name of an assembly `custom`")
    aliases: FileName | None = field(
        None,
        "file of alternative contig names, in data_dir or the working directory: all names of a contig "
        "per line, or an NCBI assembly report",
    )
    reference: FileName | None = field(
        None,
        "FASTA: key in resources/sources.yaml, or file, also in data_dir; none: a simulated genome",
    )
    exclude: tuple[ContigName, ...] = field(
        (), "contigs and regions excluded from all steps"
    )
    valid: tuple[ContigName, ...] = field(
        (),
        "contigs and regions held out for validation: metrics during training, bits per base",
    )
    test: tuple[ContigName, ...] = field(
        (),
        "contigs and regions held out for testing: reported metrics; never used for model selection",
    )

    @property
    def title(self) -> str:
        """The name of the assembly in reports and messages."""
        return self.name or self.assembly

    @field_validator("assembly", mode="before")
    @classmethod
    def _by_its_own_name(cls, value: Any) -> Any:
        return ASSEMBLY_SYNONYMS.get(value, value) if isinstance(value, str) else value

    def _faults(self) -> Iterator[str]:
        if self.assembly == "custom" and self.name is None:
            yield "assembly custom needs a name: set genome.name"
        if self.assembly != "custom" and self.name is not None:
            yield f"name {self.name!r} needs assembly custom, found {self.assembly}"
        named = Counter([*self.exclude, *self.valid, *self.test])
        twice = sorted(name for name, count in named.items() if count > 1)
        if twice:
            yield f"{twice[0]!r} is listed more than once in exclude, valid and test"


class TokensConfig(Section):
    """The BPE tokenizer and the documents of App. F.1."""

    vocabulary: int = field(
        256,
        "vocabulary size, including 5 special tokens; 10 with max_piece_length 1: single bases",
        ge=10,
        le=1_000_000,
    )
    corpus_megabases: float = field(
        20.0, "size of the sample that trains the tokenizer, Mb", gt=0
    )
    max_piece_length: int = field(16, "maximum length of a token, bp", ge=1, le=512)
    genome_passes: int = field(
        10, "passes over each training contig, with different starts", ge=1
    )
    strands: Literal["both", "forward"] = field(
        "both",
        "both: every second pass reads the reverse complement; forward: as in the paper",
    )
    max_start_offset: int = field(5000, "maximum start position of a pass, bp", ge=0)
    sentence_bases: tuple[int, int] = field(
        (500, 1000), "minimum and maximum length of a sentence, bp"
    )
    sentences_per_document: tuple[int, int] = field(
        (50, 100), "minimum and maximum number of sentences per document"
    )

    def _faults(self) -> Iterator[str]:
        for name in ("sentence_bases", "sentences_per_document"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                yield f"{name} must be [low, high] with 1 <= low <= high"
