"""Sections of what models are made of: the genome, and its tokens."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import field_validator

from bigbird_dna.config.section import ASSEMBLY_SYNONYMS, AssemblyName, ContigName, FileName, Section, field


class SimulationConfig(Section):
    """The demo genome (`bigbird-dna simulate`)."""

    megabases: float = field(
        4.0, "size of the simulated genome, in six contigs demo1 to demo6", gt=0.1, le=1000
    )


class GenomeConfig(Section):
    """Where the reference comes from, and what of it is held out.

    `exclude`, `valid` and `test` name contigs by any name, or by shell patterns (`"chr*_*"`), or regions of
    contigs as samtools writes them (`"22:19,000,001-20,000,000"`).
    """

    assembly: Literal["demo", "sacCer3", "GRCh37", "GRCh38", "custom"] = field(
        "demo",
        "contig names and lengths of the reference are checked against it; hg19, hg38 and R64-1-1 stand "
        "for GRCh37, GRCh38 and sacCer3; custom: your own genome",
    )
    name: AssemblyName | None = field(None, "what an assembly `custom` is called")
    aliases: FileName | None = field(
        None,
        "file of contigs' other names, in data_dir or from here: all names of a contig on a line, or "
        "NCBI's assembly report",
    )
    reference: FileName | None = field(
        None, "key of a FASTA in resources/sources.yaml, or a file, in data_dir or from here; none: simulate"
    )
    exclude: tuple[ContigName, ...] = field((), "contigs and regions that take no part in anything")
    valid: tuple[ContigName, ...] = field(
        (), "contigs and regions held out for validation: figures while training, bits per base"
    )
    test: tuple[ContigName, ...] = field(
        (), "contigs and regions held out for the test: the reported figures; nothing is chosen on them"
    )

    @property
    def title(self) -> str:
        """What reports and messages call the assembly."""
        return self.name or self.assembly

    @field_validator("assembly", mode="before")
    @classmethod
    def _by_its_own_name(cls, value: Any) -> Any:
        return ASSEMBLY_SYNONYMS.get(value, value) if isinstance(value, str) else value

    def _faults(self) -> Iterator[str]:
        if self.assembly == "custom" and self.name is None:
            yield "assembly custom needs a name: set genome.name"
        if self.assembly != "custom" and self.name is not None:
            yield f"name {self.name!r} goes with assembly custom, not with {self.assembly}"
        named = Counter([*self.exclude, *self.valid, *self.test])
        twice = sorted(name for name, count in named.items() if count > 1)
        if twice:
            yield f"{twice[0]!r} stands in more than one of exclude, valid, test"


class SplitsConfig(Section):
    """How what is trained on is told from what is held out, besides the contigs and regions of `genome`."""

    max_train_test_similarity: float | None = field(
        None,
        "training windows of promoters and bins with at least this similarity to a held-out one are left "
        "out; none: all are trained on",
        gt=0,
        le=1,
    )
    similarity_strata: tuple[float, ...] = field(
        (), "bounds of similarity between which figures are reported each for itself; none: no such report"
    )

    def _faults(self) -> Iterator[str]:
        if any(not 0 < bound <= 1 for bound in self.similarity_strata) or sorted(
            {*self.similarity_strata}
        ) != [*self.similarity_strata]:
            yield "similarity_strata are bounds above 0 and at most 1 that rise"


class TokensConfig(Section):
    """The BPE tokenizer and the documents of App. F.1."""

    vocabulary: int = field(
        256,
        "pieces of the tokenizer, 5 special ones among them; 10 with max_piece_length 1: bases",
        ge=10,
        le=1_000_000,
    )
    corpus_megabases: float = field(20.0, "sampled to train the tokenizer", gt=0)
    max_piece_length: int = field(16, "bp of the longest piece", ge=1, le=512)
    genome_passes: int = field(10, "over each training contig, each from another start", ge=1)
    strands: Literal["both", "forward"] = field(
        "both", "both: every second pass reads the reverse complement; forward: as in the paper"
    )
    max_start_offset: int = field(5000, "bp; a pass starts between 0 and this", ge=0)
    sentence_bases: tuple[int, int] = field((500, 1000), "bp; bounds of a sentence's length")
    sentences_per_document: tuple[int, int] = field(
        (50, 100), "bounds of the number of sentences in a document"
    )

    def _faults(self) -> Iterator[str]:
        for name in ("sentence_bases", "sentences_per_document"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                yield f"{name} must be [low, high] with 1 <= low <= high"
