"""Commands that prepare genomes, promoters, sequences, chromatin tracks and tokens for later steps."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

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
    only: list[str] = option(
        [],
        "NAME",
        "Contig, region or shell pattern of the prepared genome to write, at unchanged coordinates; repeatable.",
        "all",
        "--only",
    ),
    exclude: list[str] = option(
        [],
        "NAME",
        "With --only: contig or shell pattern to leave out; repeatable.",
        "none",
    ),
    megabases: float | None = option(
        None,
        "F",
        "With --only: write only the first contig, and of it F Mb after leading N.",
        "all",
    ),
) -> None:
    """Check a genome and write it as upper-case bgzip FASTA (A C G T N) with .fai and .gzi indices.

    Contigs of GenBank and EMBL files are named by accession and version. A record named as a region of a
    contig, such as chr20:1000001-2000000, is placed at its coordinates in the contig, with N before it.

    With --only, such as --only VII or --only 22:1,001-2,000, other bases of these contigs are N, and other
    contigs are left out.

    Example: bigbird-dna prepare reference hg19.fa.gz --assembly GRCh37 -o reference.fa.gz
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.reference import extract_regions, prepare_reference

    names = open_assembly(assembly, aliases)
    if only:
        extract_regions(genome, output, names, only, exclude, megabases)
        return
    if exclude or megabases is not None:
        raise UsageError("--exclude and --megabases need --only")
    prepared = prepare_reference(genome, output, names)
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
    are not used. Warns if the start sites of the strands do not fit each other: they may be on the wrong
    strand, or off by one or two bases.

    Example: bigbird-dna prepare promoters promoters.bed --reference reference.fa.gz -o promoters.tsv
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.promoters import prepare_promoters, read_loci
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.genome.start_site_check import check_start_sites

    if (chain is None) != (from_assembly is None):
        raise UsageError("--chain and --from-assembly must be given together")
    lift = None
    if chain is not None and from_assembly is not None:
        lift = chain, open_assembly(from_assembly)
    counts = prepare_promoters(
        promoters, reference, output, open_assembly(assembly, aliases), lift
    )
    numbers = [
        f"{value:,} {key.replace('_', ' ')}"
        for key, value in counts.items()
        if isinstance(value, int)
    ]
    log(f"{output}: {', '.join(numbers)}")
    with Reference(reference) as genome:
        for problem in check_start_sites(read_loci(output), genome):
            log(f"warning: {promoters}: {problem}")


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
    atomically. statistics.json has the mean number of bases per token.

    Example: bigbird-dna prepare tokens workflow/config/demo.yaml
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

    With splits.max_train_test_similarity, training bins are left out if the 1,000 bp around them are that
    similar to those of a held-out bin: the score of the best local alignment (match +1, mismatch -1, gap -2
    per base) divided by the length.

    Example: bigbird-dna prepare chromatin workflow/config/demo.yaml
    """
    from bigbird_dna.config import DEEPSEA
    from bigbird_dna.data.chromatin import prepare_data
    from bigbird_dna.disk.atomic import scratch_directory
    from bigbird_dna.disk.directories import check_directory
    from bigbird_dna.finetuning.similar import drop_similar_bins

    published = [] if bundle is None else [f"chromatin.data.tracks={DEEPSEA}"]
    settings, paths = opt.read_run(config, [*(overrides or ()), *published])
    reference = reference or paths.reference
    output = output or paths.chromatin_data
    sources = {
        "tracks": tracks,
        "blacklist": blacklist,
        "bundle": bundle,
        "bins": bins,
    }
    similarity = settings.splits.max_train_test_similarity
    if similarity is None:
        prepare_data(settings, reference, output, **sources)
        return
    check_directory(output)
    with scratch_directory(output.parent) as scratch:
        prepare_data(settings, reference, scratch / "all", **sources)
        drop_similar_bins(scratch / "all", reference, output, similarity)
