"""Sections of what models are made of: the genome, and its tokens."""

from collections import Counter
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from bigbird_dna.config.names import ASSEMBLY_SYNONYMS, AssemblyName, ContigName, FileName
from bigbird_dna.config.section import Section


class SimulationConfig(Section):
    """The demo genome (`bigbird-dna simulate`)."""

    megabases: float = Field(
        default=4.0,
        gt=0.1,
        le=1000,
        description="size of the simulated genome, in six contigs demo1 to demo6",
    )


class GenomeConfig(Section):
    """Where the reference comes from, and what of it is held out.

    `exclude`, `valid` and `test` name contigs by any name, or by shell patterns (`"chr*_*"`), or regions of
    contigs as samtools writes them (`"22:19,000,001-20,000,000"`).
    """

    assembly: Literal["demo", "sacCer3", "GRCh37", "GRCh38", "custom"] = Field(
        default="demo",
        description="contig names and lengths of the reference are checked against it; hg19, hg38 and "
        "R64-1-1 stand for GRCh37, GRCh38 and sacCer3; custom: a genome of one's own",
    )
    name: AssemblyName | None = Field(default=None, description="what an assembly `custom` is called")
    aliases: FileName | None = Field(
        default=None,
        description="file of contigs' other names, in data_dir or from here: all names of a contig on "
        "a line, or NCBI's assembly report",
    )
    reference: FileName | None = Field(
        default=None,
        description="key of a FASTA in resources/sources.yaml, or a file, in data_dir or from here; "
        "none: simulate",
    )
    exclude: tuple[ContigName, ...] = Field(
        default=(), description="contigs and regions that take no part in anything"
    )
    valid: tuple[ContigName, ...] = Field(
        default=(),
        description="contigs and regions held out for validation: figures while training, bits per base",
    )
    test: tuple[ContigName, ...] = Field(
        default=(),
        description="contigs and regions held out for the test: the reported figures; nothing is chosen on "
        "them",
    )

    @property
    def title(self) -> str:
        """What reports and messages call the assembly."""
        return self.name or self.assembly

    @field_validator("assembly", mode="before")
    @classmethod
    def _by_its_own_name(cls, value: Any) -> Any:
        return ASSEMBLY_SYNONYMS.get(value, value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _a_name_goes_with_custom(self) -> Self:
        if self.assembly == "custom" and self.name is None:
            raise ValueError("assembly custom needs a name: set genome.name")
        if self.assembly != "custom" and self.name is not None:
            raise ValueError(f"name {self.name!r} goes with assembly custom, not with {self.assembly}")
        return self

    @model_validator(mode="after")
    def _contigs_stand_in_one_group(self) -> Self:
        named = Counter([*self.exclude, *self.valid, *self.test])
        twice = sorted(name for name, count in named.items() if count > 1)
        if twice:
            raise ValueError(f"{twice[0]!r} stands in more than one of exclude, valid, test")
        return self


class SplitsConfig(Section):
    """How what is trained on is told from what is held out, besides the contigs and regions of `genome`."""

    max_train_test_similarity: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="training windows of promoters and bins with at least this similarity to a held-out one "
        "are left out; none: all are trained on",
    )
    similarity_strata: tuple[float, ...] = Field(
        default=(),
        description="bounds of similarity between which figures are reported each for itself; none: no "
        "such report",
    )

    @model_validator(mode="after")
    def _bounds_rise(self) -> Self:
        if any(not 0 < bound <= 1 for bound in self.similarity_strata) or sorted(
            {*self.similarity_strata}
        ) != [*self.similarity_strata]:
            raise ValueError("strata are bounds above 0 and at most 1 that rise")
        return self


class TokensConfig(Section):
    """The BPE tokenizer and the documents of App. F.1."""

    vocabulary: int = Field(
        default=256,
        ge=10,
        le=1_000_000,
        description="pieces of the tokenizer, 5 special ones among them; 10 with max_piece_length 1: bases",
    )
    corpus_megabases: float = Field(default=20.0, gt=0, description="sampled to train the tokenizer")
    max_piece_length: int = Field(default=16, ge=1, le=512, description="bp of the longest piece")
    genome_passes: int = Field(
        default=10, ge=1, description="over each training contig, each from another start"
    )
    strands: Literal["both", "forward"] = Field(
        default="both",
        description="both: every second pass reads the reverse complement; forward: as in the paper",
    )
    max_start_offset: int = Field(default=5000, ge=0, description="bp; a pass starts between 0 and this")
    sentence_bases: tuple[int, int] = Field(
        default=(500, 1000), description="bp; bounds of a sentence's length"
    )
    sentences_per_document: tuple[int, int] = Field(
        default=(50, 100), description="bounds of the number of sentences in a document"
    )

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        for name in ("sentence_bases", "sentences_per_document"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name} must be [low, high] with 1 <= low <= high")
        return self
