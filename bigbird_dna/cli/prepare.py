"""Commands that bring a genome, its promoters, tracks and tokens into the form that all later steps read."""

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
        "Configuration (YAML); of several, later ones override earlier ones.", "FILE...", default=None
    ),
    overrides: list[str] | None = opt.OVERRIDES,
    schema: bool = option(
        False, None, "Print the JSON Schema of configurations, for editors, instead.", "", "--schema"
    ),
) -> None:
    """Check a configuration: its keys, its values, and whether they fit together.

    An error names the file, the line, the key and, of an unknown key, the nearest valid one. Files that the
    configuration names are not opened.

    Example: bigbird-dna check-config workflow/config/yeast.yaml workflow/config/yeast_study.yaml
    """
    from bigbird_dna.config.reading import check_config as check
    from bigbird_dna.config.reading import json_schema

    if schema:
        typer.echo(json.dumps(json_schema(), indent=1))
        return
    if not files:
        raise UsageError("FILE: name at least one configuration")
    config = check(files, overrides or ())
    log(f"{', '.join(map(str, files))}: valid; the results go to {config.results}")


@runs("simulate.writing.simulate")
def simulate(
    out_dir: Path = argument("Directory for the files; made if missing.", "OUT_DIR"),
    seed: int = option(1, None, "The same seed gives the same bytes."),
    megabases: float = option(4.0, None, "Size of the genome, Mb (0.1 to 1000)."),
) -> None:
    """Write a demo genome with known truth.

    OUT_DIR gets genome.fa.gz, promoters.sga, peaks/*.narrowPeak.gz, tracks.tsv, variants.vcf.gz (true effects
    in INFO), loci.bed.gz and truth.json. Of the contigs demo1 to demo6, demo5 is meant for validation and
    demo6 for the test.

    Example: bigbird-dna simulate simulated --seed 1 --megabases 4
    """


@runs("genome.sources.fetching.fetch")
def fetch(
    key: str = argument("Key of a public file, such as GRCh37.reference."),
    output: Path = output(..., "FILE", "File to write."),
    data_dir: Path | None = option(
        None, "DIR", "Looked in, with its subdirectories, before downloading.", "", "--local-data"
    ),
) -> None:
    """Fetch a public file: resumed when cut, from a mirror where needed, checked before it is used.

    Example: bigbird-dna prepare fetch sacCer3.reference -o sacCer3.fa.gz
    """


def prepare_reference(
    genome: Path = argument("FASTA, GenBank or EMBL: plain, gzip or bgzip."),
    output: Path = output(..., "FILE", "bgzip FASTA to write, with its indices."),
    assembly: str = opt.ASSEMBLY,
    aliases: Path | None = opt.ALIASES,
) -> None:
    """Check a genome and write it as bgzip FASTA with .fai and .gzi: upper-case, A C G T N.

    Contigs of GenBank and EMBL files are called by accession and version. A record that is a piece of a
    contig by its name, as chr20:1000001-2000000, is put at its place in that contig, with N before it.

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
    promoters: Path = argument("EPDnew's .sga, .fps or .bed; other .bed, .gff3 or .gtf; each also .gz."),
    reference: Path = opt.REFERENCE,
    output: Path = output(..., "FILE", "TSV to write; the counts go into a .json beside it."),
    assembly: str = opt.ASSEMBLY,
    aliases: Path | None = opt.ALIASES,
    chain: Path | None = option(None, None, "liftOver chain onto the reference's assembly."),
    from_assembly: str | None = option(None, None, "Assembly the chain starts from."),
) -> None:
    """Put promoters on a reference: lift, rename contigs, drop what is off it or there twice.

    The start site is the 5' end of a BED interval (of EPDnew's, the thick part), and of each transcript of
    an annotation, or of each gene if it has no mRNA or transcript.

    Example: bigbird-dna prepare promoters promoters.bed --reference reference.fa.gz -o promoters.tsv
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.promoters import prepare_promoters

    if (chain is None) != (from_assembly is None):
        raise UsageError("--chain and --from-assembly go together")
    lift = None
    if chain is not None and from_assembly is not None:
        lift = chain, open_assembly(from_assembly)
    counts = prepare_promoters(promoters, reference, output, open_assembly(assembly, aliases), lift)
    found = [(key.replace("_", " "), value) for key, value in counts.items() if isinstance(value, int)]
    log(f"{output}: {', '.join(f'{value:,} {key}' for key, value in found)}")


def prepare_sequences(
    positives: Path = argument("FASTA of promoters, all of one length: plain, gzip or bgzip."),
    output: Path = output(..., "DIR", "Data set to write."),
    negatives: Path | None = option(None, "FASTA", "Sequences of the negative set 'user'.", "none"),
    splits: Path | None = option(
        None, "TSV", "Record and split (train, valid, test).", "similar sequences share one; 80, 10 and 10 %"
    ),
    negative_set: list[str] | None = option(
        None, "NAME", "given, substituted or permuted; repeatable.", "given, or else the other two"
    ),
    negatives_per_positive: int = option(
        1, "N", "Negatives a training promoter has of substituted and permuted each.", least=1
    ),
    length: int | None = option(
        None, "BP", "Trim all to this length, around their middle.", "not trimmed", least=20
    ),
    upstream: int | None = option(
        None, "BP", "Bases of a sequence before the TSS, after trimming.", "half", least=0
    ),
    similarity: float = option(
        0.2, "FRACTION", "Sequences are similar that share so much of their 16-mers, on either strand."
    ),
    seed: int = option(1, None, "Of the splits."),
) -> None:
    """Build the promoter data set from sequences of one's own; no genome is needed.

    DIR gets what prepare promoter-windows writes, for --windows of finetune-promoter and train
    baseline-promoter; sequences.fa.gz for their --reference; training.fa.gz and test.fa.gz with the sequences
    of one split; and splits.tsv with each record's split and group of similar ones.

    Example: bigbird-dna prepare sequences promoters.fa --negatives others.fa -o promoter-data
    """
    from bigbird_dna.data.custom_sequences import SequenceOptions
    from bigbird_dna.data.custom_sequences import prepare_sequences as build

    options = SequenceOptions(
        tuple(negative_set or ()), negatives_per_positive, length, upstream, similarity, seed
    )
    build(positives, output, options, negatives=negatives, splits=splits)


def extract(
    reference: Path = argument("Prepared reference (FASTA with its index)."),
    contig: str = argument(
        "Contig, by any name that the assembly knows, or a region of one, or a shell pattern."
    ),
    output: Path = output(..., "FILE", "bgzip FASTA to write."),
    megabases: float | None = option(
        None, "F", "Only the contig's start, up to F Mb after the N that it may begin with."
    ),
    exclude: list[str] = option(
        [], "NAME", "Contig, or pattern of contigs, that is passed over; repeatable.", "none"
    ),
    assembly: str = opt.ASSEMBLY,
    aliases: Path | None = opt.ALIASES,
) -> None:
    """Write one contig of a reference, or a part of it, as a FASTA file: coordinates stay the same.

    Of a region (as 22:1,001-2,000) the bases before it become N. Of a pattern the first contig that fits is
    written.

    Example: bigbird-dna prepare contig reference.fa.gz 22 --megabases 1 -o chr22.fa.gz
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.reference import extract_contig

    extract_contig(reference, contig, output, open_assembly(assembly, aliases), megabases, exclude)


def _annotation(settings: "RunConfig", _: opt.Given) -> Path | None:
    from bigbird_dna.genome.sources.inputs import annotation_file

    return annotation_file(settings)


@runs("data.promoter_windows.prepare_windows", annotation=_annotation)
def prepare_windows(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    reference: Path | None = opt.RUN_REFERENCE,
    promoters: Path | None = option(
        None, "TSV", "Start sites, as prepare promoters writes them.", opt.RESULTS.promoters, "--promoters"
    ),
    annotation: Path | None = option(
        None,
        "FILE",
        "GFF3 or GTF, also .gz; its CDS give the fraction of coding bases of each window. Negative set "
        "intergenic needs it.",
        "the file of promoters.annotation, or none",
    ),
    output: Path | None = output(None, "DIR", "Data set to write.", opt.RESULTS.windows),
) -> None:
    """Build the promoter data set: windows around every TSS and their named negative sets.

    Example: bigbird-dna prepare promoter-windows workflow/config/demo.yaml
    """


def _corpus(settings: "RunConfig", _: opt.Given) -> Path:
    return settings.paths.reference if settings.has_genome else settings.paths.training_sequences


@runs("tokens.encode.train_tokenizer", reference=_corpus)
def train_tokenizer(
    config: Path = opt.CONFIG,
    reference: Path | None = opt.RUN_REFERENCE,
    output: Path | None = output(None, "FILE", "Tokenizer to write.", opt.RESULTS.tokenizer),
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """Learn a BPE vocabulary from the training contigs, or without a genome from the training sequences.

    The corpus is a random sample of sentences (tokens.sentence_bases long) with
    tokens.corpus_megabases in all. Training holds it in memory: about 80 MB a megabase. Sentences
    of which more than half is N are left out. The seed is the configuration's.

    Example: bigbird-dna prepare tokenizer workflow/config/demo.yaml
    """


@runs("tokens.encode.tokenize")
def tokenize(
    config: Path = opt.CONFIG,
    reference: Path | None = opt.RUN_REFERENCE,
    tokenizer: Path | None = opt.RUN_TOKENIZER,
    output: Path | None = output(None, "DIR", "Directory of the stores.", opt.RESULTS.tokens),
    workers: int | None = opt.THREADS,
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """Cut the genome into documents and write the token stores train, valid and test.

    Training contigs are read in tokens.genome_passes passes with different starts, the others in one.
    Sentences of which more than half is N are left out; store.json counts them. Each store
    appears whole or not at all.

    Example: bigbird-dna prepare tokens workflow/config/demo.yaml
    """


def _known_promoters(settings: "RunConfig", _: opt.Given) -> Path | None:
    if settings.paths.promoters.exists():
        return settings.paths.promoters
    log(f"no promoters ({settings.paths.promoters} is missing): statistics without that region")
    return None


@runs("tokens.encode.write_token_statistics", promoters=_known_promoters)
def describe_tokens(
    config: Path = opt.CONFIG,
    reference: Path | None = opt.RUN_REFERENCE,
    tokenizer: Path | None = opt.RUN_TOKENIZER,
    promoters: Path | None = option(
        None,
        "TSV",
        "Start sites, as prepare promoters writes them; without a file no such region.",
        opt.RESULTS.promoters,
        "--promoters",
    ),
    output: Path | None = output(None, "FILE", "JSON to write.", opt.RESULTS.token_statistics),
    workers: int | None = opt.THREADS,
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """Write bases a token of the genome, each split, contig and the promoters, as JSON.

    Promoters are 500 bp before to 500 bp after each start site. The file also has the rate of unknown
    tokens and how much the pieces of the vocabulary are used.

    Example: bigbird-dna prepare token-stats workflow/config/demo.yaml -o statistics.json
    """


@runs("genome.chromatin.deepsea.unpack_bundle")
def unpack_deepsea(
    archive: Path = argument("DeepSEA's training bundle (.tar.gz).", "bundle"),
    directory: Path = output(..., "DIR", "For the three files."),
) -> None:
    """Unpack train.mat, valid.mat and test.mat of DeepSEA's bundle; prepare chromatin reads them.

    Example: bigbird-dna prepare deepsea deepsea_train_bundle.v0.9.tar.gz -o bundle
    """


def prepare_chromatin(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    tracks: Path | None = option(
        None, "FILE|DIR", "Track table or folder of peak files.", "chromatin.data.tracks", "--track-table"
    ),
    bundle: Path | None = option(
        None,
        "FILE|DIR",
        "DeepSEA's training bundle, the archive or unpacked: bins and labels are taken from it.",
        opt.RESULTS.download("deepsea_train_bundle.v0.9.tar.gz"),
        "--deepsea-bundle",
    ),
    bins: Path | None = option(
        None,
        "FILE",
        "The bundle's bins, also compressed.",
        opt.RESULTS.download("allTFs.pos.bed.tar.gz"),
        "--deepsea-bins",
    ),
    blacklist: Path | None = option(
        None, "BED", "Regions whose bins are left out.", "chromatin.data.blacklist"
    ),
    reference: Path | None = opt.RUN_REFERENCE,
    shard: str | None = opt.SHARD,
    output: Path | None = output(None, "DIR", "Data set to write.", opt.RESULTS.chromatin_data),
) -> None:
    """Label the bins of the reference with the peaks of every track, and divide them into splits.

    With chromatin.data.tracks deepsea, or --deepsea-bundle, bins, labels and splits are those that DeepSEA
    published; sampled windows of the bundle are compared with the reference.

    Example: bigbird-dna prepare chromatin workflow/config/demo.yaml
    """
    from bigbird_dna.config import DEEPSEA
    from bigbird_dna.data.chromatin import prepare_data

    published = [] if bundle is None else [f"chromatin.data.tracks={DEEPSEA}"]
    settings, paths = opt.read_run(config, [*(overrides or ()), *published])
    if shard is not None and output is None:
        raise UsageError("--shard: name a file for it with -o")
    prepare_data(
        settings,
        reference or paths.reference,
        output or paths.chromatin_data,
        tracks=tracks,
        blacklist=blacklist,
        bundle=bundle,
        bins=bins,
        shard=shard,
    )
