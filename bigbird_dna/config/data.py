"""Sections of what models are made of: the genome, and its tokens."""

from collections import Counter
from typing import Literal, Self

from pydantic import Field, model_validator

from bigbird_dna.config.names import AssemblyName, ContigName, FileName
from bigbird_dna.config.section import Section


class SimulationConfig(Section):
    """The demo genome (`bigbird-dna simulate`)."""

    megabases: float = Field(default=4.0, gt=0.1, le=1000)


class GenomeConfig(Section):
    """Where the reference comes from, and which contigs are held out.

    `exclude`, `valid` and `test` name contigs by any name, or by shell patterns (`"chr*_*"`).
    """

    assembly: Literal["demo", "sacCer3", "GRCh37", "GRCh38", "custom"] = "demo"
    name: AssemblyName | None = Field(default=None, description="what an assembly `custom` is called")
    aliases: FileName | None = Field(
        default=None,
        description="file of contigs' other names, in local_data or from here: all names of a contig on "
        "a line, or NCBI's assembly report",
    )
    reference: FileName | None = Field(
        default=None,
        description="key of a FASTA in resources/sources.yaml, or a file, in local_data or from here; "
        "none: simulate",
    )
    exclude: tuple[ContigName, ...] = Field(default=(), description="contigs that take no part in anything")
    valid: tuple[ContigName, ...] = ()
    test: tuple[ContigName, ...] = ()

    @property
    def title(self) -> str:
        """What reports and messages call the assembly."""
        return self.name or self.assembly

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
            raise ValueError(f"contig {twice[0]!r} stands in more than one of exclude, valid, test")
        return self


class TokensConfig(Section):
    """The BPE tokenizer and the documents of App. F.1."""

    vocabulary: int = Field(default=256, ge=16, le=1_000_000)
    corpus_megabases: float = Field(default=20.0, gt=0, description="sampled bp for training BPE")
    max_piece_length: int = Field(default=16, ge=1, le=512, description="bp")
    passes: int = Field(default=10, ge=1, description="passes over every contig")
    max_start: int = Field(default=5000, ge=0, description="bp; start ~ U{0…max_start}")
    sentence_bases: tuple[int, int] = (500, 1000)
    document_sentences: tuple[int, int] = (50, 100)

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        for name in ("sentence_bases", "document_sentences"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name} must be [low, high] with 1 <= low <= high")
        return self
