"""Commands that prepare genomes, promoters, sequences, chromatin tracks and tokens for later steps."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError, check_choice

if TYPE_CHECKING:
    from bigbird_dna.config import Config as RunConfig


def check_config(
    files: list[Path] | None = argument(
        "Configuration files (YAML); later files override earlier ones.",
        "FILE...",
        default=None,
    ),
    overrides: list[str] | None = opt.OVERRIDES,
    schema: bool = option(
        False,
        None,
        "Print the JSON Schema of configurations, for editors, and exit.",
        "",
        "--schema",
    ),
) -> None:
    """Check the keys and values of a configuration, and their consistency.

    An error names the file, line and key and, for an unknown key, the nearest valid key. Files named in the
    configuration are not opened.

    Example: bigbird-dna check-config workflow/config/yeast.yaml workflow/config/yeast_study.yaml
    """
    from bigbird_dna.config.reading import check_config as check
    from bigbird_dna.config.reading import json_schema

    if schema:
        typer.echo(json.dumps(json_schema(), indent=1))
        return
    if not files:
        raise UsageError("check-config needs at least one FILE")
    config = check(files, overrides or ())
    log(f"{', '.join(map(str, files))}: valid; results directory: {config.results}")


@runs("simulate.writing.simulate")
def simulate(
    out_dir: Path = argument("Directory for the files, created if missing.", "OUT_DIR"),
    seed: int = option(1, None, "Random seed; the same seed gives the same bytes."),
    megabases: float = option(4.0, None, "Size of the genome, Mb (0.1 to 1000)."),
) -> None:
    """Simulate a demo genome with known promoters, chromatin tracks and variant effects.

    OUT_DIR gets genome.fa.gz, promoters.sga, peaks/*.narrowPeak.gz, tracks.tsv, variants.vcf.gz (true effects
    in INFO), loci.bed.gz and truth.json. Of the contigs demo1 to demo6, demo5 is intended for validation and
    demo6 for testing.

    Example: bigbird-dna simulate simulated --seed 1 --megabases 4
    """


@runs("genome.download.fetch")
def fetch(
    key: str = argument("Key of a public file, such as GRCh37.reference."),
    output: Path = output(..., "FILE", "File to write."),
    data_dir: Path | None = option(
        None,
        "DIR",
        "Directory searched for the file, recursively, before downloading.",
        "",
        "--local-data",
    ),
) -> None:
    """Download a public file: interrupted downloads resume, mirrors are tried, and the file is verified.

    Example: bigbird-dna prepare fetch sacCer3.reference -o sacCer3.fa.gz
    """


def prepare_reference(
    genome: Path = argument("FASTA, GenBank or EMBL file: plain, gzip or bgzip."),
    output: Path = output(..., "FILE", "bgzip FASTA to write, with its indices."),
    assembly: str = opt.ASSEMBLY,
    aliases: Path | None = opt.ALIASES,
) -> None:
    """Check a genome and write it as upper-case bgzip FASTA (A C G T N) with .fai and .gzi indices.

    Contigs of GenBank and EMBL files are named by accession and version. A record named as a region of a
    contig, such as chr20:1000001-2000000, is placed at its coordinates in the contig, with N before it.

    Example: bigbird-dna prepare reference hg19.fa.gz --assembly GRCh37 -o reference.fa.gz
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.reference import prepare_reference

    prepared = prepare_reference(genome, output, open_assembly(assembly, aliases))
    log(
        f"{output}: {len(prepared.contigs):,} contigs, {sum(prepared.contigs.values()):,} bp, "
        f"{prepared.unknown:,} N ({prepared.ambiguous:,} of them IUPAC codes)"
    )


def prepare_promoters(
    promoters: Path = argument(
        "EPDnew .sga, .fps or .bed; other .bed, .gff3 or .gtf; each also .gz."
    ),
    reference: Path = opt.REFERENCE,
    output: Path = output(
        ..., "FILE", "TSV to write; counts are written to a .json of the same name."
    ),
    assembly: str = opt.ASSEMBLY,
    aliases: Path | None = opt.ALIASES,
    chain: Path | None = option(
        None, None, "liftOver chain file to the assembly of the reference."
    ),
    from_assembly: str | None = option(
        None, None, "Assembly from which the chain lifts."
    ),
) -> None:
    """Map promoters to a reference: lift over, rename contigs, drop off-reference sites and duplicates.

    The start site is the 5' end of a BED interval (in EPDnew files, of the thick part) or of a transcript. In
    annotations, genes without a transcript start at their own 5' end, or at that of their CDS; pseudogenes
    are not used.

    Example: bigbird-dna prepare promoters promoters.bed --reference reference.fa.gz -o promoters.tsv
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.promoters import prepare_promoters

    if (chain is None) != (from_assembly is None):
        raise UsageError("--chain and --from-assembly must be given together")
    lift = None
    if chain is not None and from_assembly is not None:
        lift = chain, open_assembly(from_assembly)
    counts = prepare_promoters(
        promoters, reference, output, open_assembly(assembly, aliases), lift
    )
    found = [
        (key.replace("_", " "), value)
        for key, value in counts.items()
        if isinstance(value, int)
    ]
    log(f"{output}: {', '.join(f'{value:,} {key}' for key, value in found)}")


def prepare_sequences(
    data: list[Path] = opt.SEQUENCE_FILES,
    output: Path = output(..., "DIR", "Data set to write."),
    negatives: Path | None = option(
        None, "FASTA", "Sequences of the negative set 'user'.", "none"
    ),
    splits: Path | None = option(
        None,
        "TSV",
        "Table of record and split (train, valid, test).",
        "80/10/10 %, similar ones together",
    ),
    negative_set: list[str] | None = option(
        None,
        "NAME",
        "Negative set: user, substituted, permuted or dinucleotide_shuffled; repeatable.",
        "user with --negatives, else substituted and permuted",
    ),
    negatives_per_positive: int = option(
        1,
        "N",
        "Negatives per training promoter of each set made from promoters.",
        least=1,
    ),
    length: int | None = option(
        None,
        "BP",
        "Trim all sequences to this length, around their center.",
        "not trimmed",
        least=20,
    ),
    upstream: int | None = option(
        None,
        "BP",
        "Bases of a sequence before the TSS, after trimming.",
        "half",
        least=0,
    ),
    similarity: float = option(
        0.2,
        "FRACTION",
        "Minimum fraction of shared 16-mers, on either strand, of similar sequences.",
    ),
    sequence_column: str = opt.SEQUENCE_COLUMN,
    label_column: str = opt.LABEL_COLUMN,
    split_column: str = opt.SPLIT_COLUMN,
    seed: int = option(1, None, "Random seed of the splits."),
) -> None:
    """Build a promoter data set from custom sequences, without a genome.

    Sequences must have one length, or are trimmed to one. Tables may be files of one split each, such as
    train.csv, dev.csv and test.csv. FASTA records without a name, or with that of another record, get a
    number.

    DIR contains the files of prepare promoter-windows, for --windows of finetune-promoter and train
    baseline-promoter; sequences.fa.gz for their --reference; training.fa.gz and test.fa.gz with the sequences
    of these splits; and splits.tsv with the split of each record and its group of similar sequences.

    Example: bigbird-dna prepare sequences promoters.fa --negatives others.fa -o promoter-data
    """
    from bigbird_dna.data.custom_sequences import SequenceOptions
    from bigbird_dna.data.custom_sequences import prepare_sequences as build
    from bigbird_dna.genome.sequence_tables import TableColumns

    options = SequenceOptions(
        tuple(negative_set or ()),
        negatives_per_positive,
        length,
        upstream,
        similarity,
        seed,
    )
    columns = TableColumns(sequence_column, (label_column,), split_column)
    build(data, output, options, negatives=negatives, splits=splits, columns=columns)


def extract(
    reference: Path = argument("Prepared reference (FASTA with its index)."),
    contig: str = argument(
        "Contig, by any name known for the assembly, a region of a contig, or a shell pattern."
    ),
    output: Path = output(..., "FILE", "bgzip FASTA to write."),
    megabases: float | None = option(
        None, "F", "Write only the first F Mb after leading N of the contig."
    ),
    exclude: list[str] = option(
        [], "NAME", "Contig, or shell pattern, to skip; repeatable.", "none"
    ),
    assembly: str = opt.ASSEMBLY,
    aliases: Path | None = opt.ALIASES,
) -> None:
    """Write one contig of a reference, or a part of it, as a FASTA file with unchanged coordinates.

    For a region such as 22:1,001-2,000, the bases before it become N. For a pattern, the first matching
    contig is written.

    Example: bigbird-dna prepare contig reference.fa.gz 22 --megabases 1 -o chr22.fa.gz
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.reference import extract_contig

    extract_contig(
        reference, contig, output, open_assembly(assembly, aliases), megabases, exclude
    )


def extract_held_out(
    config: Path = opt.CONFIG,
    split: str = argument("Split: valid or test.", "SPLIT"),
    overrides: list[str] | None = opt.OVERRIDES,
    reference: Path | None = opt.RUN_REFERENCE,
    output: Path | None = output(
        None, "FILE", "bgzip FASTA to write.", "RESULTS/genome/SPLIT.fa.gz"
    ),
) -> None:
    """Write the contigs and regions that the configuration holds out (genome.valid, genome.test) as FASTA.

    Coordinates are those of the reference: bases of a contig outside of its held-out regions are N.

    Example: bigbird-dna prepare held-out workflow/config/demo.yaml test
    """
    from bigbird_dna.genome.reference import extract_split
    from bigbird_dna.genome.sources import find_assembly

    check_choice("SPLIT", split, ("valid", "test"))
    settings, paths = opt.read_run(config, overrides)
    target = output or paths.held_out_sequence(split)
    extract_split(
        reference or paths.reference,
        settings.genome,
        split,
        target,
        find_assembly(settings),
    )


def _annotation(settings: "RunConfig", _: opt.Given) -> Path | None:
    from bigbird_dna.genome.sources import annotation_file

    return annotation_file(settings)


@runs("data.promoter_windows.prepare_windows", annotation=_annotation)
def prepare_windows(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    reference: Path | None = opt.RUN_REFERENCE,
    promoters: Path | None = option(
        None,
        "TSV",
        "Start sites, as written by prepare promoters.",
        opt.RESULTS.promoters,
        "--promoters",
    ),
    annotation: Path | None = option(
        None,
        "FILE",
        "GFF3 or GTF, also .gz, whose CDS give the coding fraction of each window. The negative set "
        "intergenic needs it.",
        "the file of promoters.annotation, or none",
    ),
    output: Path | None = output(
        None, "DIR", "Data set to write.", opt.RESULTS.windows
    ),
) -> None:
    """Build a promoter data set: windows around every TSS and the negative sets.

    Example: bigbird-dna prepare promoter-windows workflow/config/demo.yaml
    """


def _corpus(settings: "RunConfig", _: opt.Given) -> Path:
    return (
        settings.paths.reference
        if settings.has_genome
        else settings.paths.training_sequences
    )


@runs("tokens.encode.train_tokenizer", reference=_corpus)
def train_tokenizer(
    config: Path = opt.CONFIG,
    reference: Path | None = opt.RUN_REFERENCE,
    output: Path | None = output(
        None, "FILE", "Tokenizer to write.", opt.RESULTS.tokenizer
    ),
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """Train a BPE vocabulary on the training contigs or, without a genome, on the training sequences.

    The corpus is a random sample of sentences of length tokens.sentence_bases, tokens.corpus_megabases in
    total. Training needs about 80 MB of memory per megabase. Sentences with more than half N are excluded.
    The seed is that of the configuration.

    Example: bigbird-dna prepare tokenizer workflow/config/demo.yaml
    """


@runs("tokens.encode.tokenize")
def tokenize(
    config: Path = opt.CONFIG,
    reference: Path | None = opt.RUN_REFERENCE,
    tokenizer: Path | None = opt.RUN_TOKENIZER,
    output: Path | None = output(
        None, "DIR", "Directory for the token stores.", opt.RESULTS.tokens
    ),
    workers: int | None = opt.THREADS,
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """Split the genome into documents and write the token stores train, valid and test.

    Training contigs are read in tokens.genome_passes passes with different start positions, other contigs in
    one pass. Sentences with more than half N are excluded and counted in store.json. Each store is written
    atomically.

    Example: bigbird-dna prepare tokens workflow/config/demo.yaml
    """


def _known_promoters(settings: "RunConfig", _: opt.Given) -> Path | None:
    if settings.paths.promoters.exists():
        return settings.paths.promoters
    log(
        f"no promoters ({settings.paths.promoters} is missing): token statistics exclude promoters"
    )
    return None


@runs(
    "tokens.encode.write_token_statistics",
    promoters=_known_promoters,
    tokenizer=opt.model_tokenizer,
)
def describe_tokens(
    config: Path = opt.CONFIG,
    reference: Path | None = opt.RUN_REFERENCE,
    tokenizer: Path | None = opt.RUN_TOKENIZER,
    promoters: Path | None = option(
        None,
        "TSV",
        "Start sites, as written by prepare promoters; without this file, promoters are omitted.",
        opt.RESULTS.promoters,
        "--promoters",
    ),
    output: Path | None = output(
        None, "FILE", "JSON to write.", opt.RESULTS.token_statistics
    ),
    workers: int | None = opt.THREADS,
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """Write the mean number of bases per token of the genome, splits, contigs and promoters, as JSON.

    Promoters are the 500 bp before and after each start site. The file also contains the rate of unknown
    tokens and the use of the vocabulary.

    Example: bigbird-dna prepare token-stats workflow/config/demo.yaml -o statistics.json
    """


@runs("genome.chromatin.deepsea.unpack_bundle")
def unpack_deepsea(
    archive: Path = argument(
        "Archive of the DeepSEA training data (.tar.gz).", "bundle"
    ),
    directory: Path = output(..., "DIR", "Directory for the three files."),
) -> None:
    """Unpack train.mat, valid.mat and test.mat of the DeepSEA training data, for prepare chromatin.

    Example: bigbird-dna prepare deepsea deepsea_train_bundle.v0.9.tar.gz -o bundle
    """


def prepare_chromatin(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    tracks: Path | None = option(
        None,
        "FILE|DIR",
        "Track table or directory of peak files; for tracks tss, the TSV of prepare promoters.",
        "chromatin.data.tracks",
        "--track-table",
    ),
    bundle: Path | None = option(
        None,
        "FILE|DIR",
        "DeepSEA training data with bins and labels, as an archive or unpacked.",
        opt.RESULTS.download("deepsea_train_bundle.v0.9.tar.gz"),
        "--deepsea-bundle",
    ),
    bins: Path | None = option(
        None,
        "FILE",
        "Bins of the DeepSEA training data, plain or compressed.",
        opt.RESULTS.download("allTFs.pos.bed.tar.gz"),
        "--deepsea-bins",
    ),
    blacklist: Path | None = option(
        None, "BED", "Regions whose bins are excluded.", "chromatin.data.blacklist"
    ),
    reference: Path | None = opt.RUN_REFERENCE,
    output: Path | None = output(
        None, "DIR", "Data set to write.", opt.RESULTS.chromatin_data
    ),
) -> None:
    """Label the bins of the reference with the peaks of every track, and assign them to splits.

    With chromatin.data.tracks deepsea, or --deepsea-bundle, bins, labels and splits are those published with
    DeepSEA; a sample of their windows is compared with the reference. With chromatin.data.tracks tss, the
    tracks are the annotated start sites on each strand.

    Example: bigbird-dna prepare chromatin workflow/config/demo.yaml
    """
    from bigbird_dna.config import DEEPSEA
    from bigbird_dna.data.chromatin import prepare_data

    published = [] if bundle is None else [f"chromatin.data.tracks={DEEPSEA}"]
    settings, paths = opt.read_run(config, [*(overrides or ()), *published])
    prepare_data(
        settings,
        reference or paths.reference,
        output or paths.chromatin_data,
        tracks=tracks,
        blacklist=blacklist,
        bundle=bundle,
        bins=bins,
    )
