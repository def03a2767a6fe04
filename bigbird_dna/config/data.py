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


KnownAssembly = Literal["sacCer3", "ASM294v2", "GRCh37", "GRCh38"]


class PieceFileConfig(Section):
    """A FASTA file of pieces of a genome."""

    file: FileName = field(..., "FASTA file in data_dir or the working directory")
    assembly: KnownAssembly = field(..., "assembly of its chromosomes")


class OtherSitesConfig(PieceFileConfig):
    """A file of start sites that are neither positives nor negatives."""

    file: FileName = field(..., "file in data_dir or the working directory")
    name: str = field(..., "name of the source, which begins the names of its sites")
    centered: bool = field(
        False, "whether a BED file's start sites are the centers of its intervals"
    )


class PiecesConfig(Section):
    """Pieces of a genome, and sequences around start sites, as the data of start-site models.

    Contigs are `ASSEMBLY.CHROM_START_END`, such as `GRCh38.chr1_892852_6500839`; `genome.valid` and
    `genome.test` name those that are held out.
    """

    genomes: tuple[PieceFileConfig, ...] = field(
        ...,
        "FASTA files, whose records are named chr1, chr1_999_2000 or chr1:1000-2000",
    )
    assembly: KnownAssembly = field(..., "assembly of start sites and windows")
    sites: FileName = field(
        ..., "start sites: key in resources/sources.yaml, or file as promoters.source"
    )
    chain: FileName | None = field(
        None, "source with a liftOver chain to the other assembly; none: no other one"
    )
    site_sequences: FileName | None = field(
        None,
        "FASTA file with the bases around each site, for a check; its name has the place, as in _m10_p49",
    )
    windows: tuple[FileName, ...] = field(
        (),
        "FASTA files of sequences around sites, such as x_m249_p50.fa.gz; headers: NAME CHROM:POSITION(STRAND)",
    )
    exclude: tuple[ContigName, ...] = field(
        (), "chromosomes of which no windows are used, as UCSC names them"
    )
    other_sites: tuple[OtherSitesConfig, ...] = field(
        (), "start sites that are neither positives nor negatives"
    )
    clearance: int = field(
        500,
        "distance from a site, on its strand, within which another one is the same, bp; "
        "also around other sites, where bases are no negatives",
        ge=0,
    )

    @property
    def files(self) -> tuple[str, ...]:
        """All files, as the section names them."""
        listed = [x.file for x in (*self.genomes, *self.other_sites)]
        others = (self.sites, self.chain, self.site_sequences)
        return (*listed, *self.windows, *(x for x in others if x is not None))


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
