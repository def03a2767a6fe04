"""Commands that prepare genomes, promoters, sequences, chromatin tracks and tokens for trainings."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from bigbird_dna.cli.options import (
    RESULTS,
    TRAIN,
    Aliases,
    Assembly,
    Commands,
    Config,
    Force,
    Overrides,
    Reference,
    RunPromoters,
    RunReference,
    RunTokenizer,
    Threads,
    output_option,
    read_run,
)
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

app = Commands(TRAIN)
group = Commands(
    help="Prepare genomes, promoters, sequences, chromatin tracks and tokens."
)


@app.command(
    "check-config",
    epilog="Example: bigbird-dna check-config workflow/config/yeast.yaml "
    "workflow/config/yeast_tables.yaml",
)
def check_config(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Configuration files (YAML); later files override earlier ones.",
        ),
    ] = None,
    overrides: Overrides = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="Print the JSON Schema of configurations, for editors, and exit.",
        ),
    ] = False,
) -> None:
    """Check the keys and values of a configuration, and their consistency.

    An error names the file and key and, for an unknown key, the nearest valid key. Files named in the
    configuration are not opened.
    """
    from bigbird_dna.config.reading import check_config, json_schema

    if schema:
        typer.echo(json.dumps(json_schema(), indent=1))
        return

    if not files:
        raise UsageError("check-config needs at least one FILE")

    run = check_config(files, overrides or ())
    log(f"{', '.join(map(str, files))}: valid; results directory: {run.results}")


@app.command(
    "simulate",
    epilog="Example: bigbird-dna simulate simulated --seed 1 --megabases 4",
)
def simulate(
    out_dir: Annotated[
        Path,
        typer.Argument(
            metavar="OUT_DIR", help="Directory for the files, created if missing."
        ),
    ],
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", help="Random seed; the same seed gives the same bytes."
        ),
    ] = 1,
    megabases: Annotated[
        float, typer.Option(metavar="F", help="Size of the genome, Mb (0.1 to 1000).")
    ] = 4.0,
) -> None:
    """Simulate a demo genome with known promoters, chromatin tracks and variant effects.

    OUT_DIR gets genome.fa.gz, promoters.sga, peaks/*.narrowPeak.gz, tracks.tsv, variants.vcf.gz (true effects
    in INFO) and loci.bed.gz. Of the contigs demo1 to demo6, demo5 is intended for validation and
    demo6 for testing.
    """
    from bigbird_dna.simulate import simulate

    simulate(out_dir, seed, megabases)


@app.command(
    "plan",
    epilog="Example: bigbird-dna plan workflow/config/grch37.yaml --gpu h100 --count 8",
)
def plan(
    config: Config,
    overrides: Overrides = None,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="BP",
            help="Length of the sequences of finetune-sequences.",
            show_default="not planned",
            min=1,
        ),
    ] = None,
    gpu: Annotated[
        Literal["a100", "h100", "h200"] | None,
        typer.Option(
            help="Type of the GPUs: memory in bfloat16, and whether it suffices.",
            show_default="memory in float32",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of GPUs of each training.",
            show_default="num_gpus of its section",
            min=1,
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Print the memory that each training of a configuration needs, for each way to train fewer weights.

    The columns are in GB per process: weights, gradients, moments of the optimizer, and what a forward pass
    keeps for the backward pass (activations), measured with two layers in float32. Temporary results, Python
    and its libraries come on top: 0.5 to 1 GB on a CPU. Activations in bfloat16 take about 0.6 of this.
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.training.plan import plan_memory

    run, _ = read_run(config, overrides)
    with cpu_threads(threads):
        memory = plan_memory(run, length, gpu, count)

    text = memory.to_csv(sep="\t", index=False, float_format="%.3f")
    typer.echo(text, nl=False)


@group.command(
    "fetch",
    epilog="Example: bigbird-dna prepare fetch sacCer3.reference -o sacCer3.fa.gz",
)
def fetch(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="Key of a public file, such as GRCh37.reference."
        ),
    ],
    output: Annotated[
        Path,
        output_option("FILE", "File to write."),
    ],
    local_data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory searched for the file, recursively, before downloading.",
        ),
    ] = None,
) -> None:
    """Download a public file: interrupted downloads resume, mirrors are tried, and the file is verified."""
    from bigbird_dna.genome.download import fetch

    fetch(key, output, local_data)


@group.command(
    "reference",
    epilog="Example: bigbird-dna prepare reference hg19.fa.gz --assembly GRCh37 "
    "-o reference.fa.gz",
)
def prepare_reference(
    genome: Annotated[
        Path,
        typer.Argument(
            metavar="GENOME",
            help="FASTA file: plain, gzip or bgzip.",
        ),
    ],
    output: Annotated[
        Path,
        output_option("FILE", "bgzip FASTA to write, with its indices."),
    ],
    assembly: Assembly = "custom",
    aliases: Aliases = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Contig, region or shell pattern of the prepared genome to write, at "
            "unchanged coordinates; repeatable.",
            show_default="all",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --only: contig or shell pattern to leave out; repeatable.",
        ),
    ] = None,
    megabases: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            help="With --only: write only the first contig, and of it F Mb after leading "
            "N.",
            show_default="all",
        ),
    ] = None,
) -> None:
    """Check a genome and write it as upper-case bgzip FASTA (A C G T N) with .fai and .gzi indices.

    With --only, such as --only VII or --only 22:1,001-2,000, other bases of these contigs are N, and other
    contigs are left out.
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.reference import extract_regions, prepare_reference

    names = open_assembly(assembly, aliases)
    if only:
        extract_regions(genome, output, names, only, exclude or (), megabases)
        return

    if exclude or megabases is not None:
        raise UsageError("--exclude and --megabases need --only")

    prepared = prepare_reference(genome, output, names)
    log(
        f"{output}: {len(prepared.contigs):,} contigs, "
        f"{sum(prepared.contigs.values()):,} bp, {prepared.unknown:,} N "
        f"({prepared.ambiguous:,} of them IUPAC codes)"
    )


@group.command(
    "promoters",
    epilog="Example: bigbird-dna prepare promoters promoters.bed "
    "--reference reference.fa.gz -o promoters.tsv",
)
def prepare_promoters(
    promoters: Annotated[
        Path,
        typer.Argument(
            metavar="PROMOTERS",
            help="EPDnew .sga or .bed; RegulonDB .txt; other .bed, .gff3 or .gtf; each also "
            ".gz.",
        ),
    ],
    reference: Reference,
    output: Annotated[
        Path,
        output_option(
            "FILE", "TSV to write; counts are written to a .json of the same name."
        ),
    ],
    assembly: Assembly = "custom",
    aliases: Aliases = None,
    chain: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="liftOver chain file to the assembly of the reference."
        ),
    ] = None,
    from_assembly: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Assembly from which the chain lifts."),
    ] = None,
) -> None:
    """Map promoters to a reference: lift over, rename contigs, drop off-reference sites and duplicates.

    The start site is the 5' end of a BED interval (in EPDnew files, of the thick part) or of a transcript. In
    annotations, genes without a transcript start at their own 5' end, or at that of their CDS; pseudogenes
    are not used. Warns if the start sites of the strands do not fit each other: they may be on the wrong
    strand, or off by one or two bases.
    """
    from bigbird_dna.genome.assembly import open_assembly
    from bigbird_dna.genome.promoters import prepare_promoters, read_loci
    from bigbird_dna.genome.reference import Reference as Genome
    from bigbird_dna.genome.start_site_check import check_start_sites

    if (chain is None) != (from_assembly is None):
        raise UsageError("--chain and --from-assembly must be given together")

    lift = None
    if chain is not None and from_assembly is not None:
        lift = chain, open_assembly(from_assembly)

    counts = prepare_promoters(
        promoters, reference, output, open_assembly(assembly, aliases), lift
    )
    numbers = ", ".join(
        f"{value:,} {key.replace('_', ' ')}"
        for key, value in counts.items()
        if isinstance(value, int)
    )
    log(f"{output}: {numbers}")
    with Genome(reference) as opened:
        for problem in check_start_sites(read_loci(output), opened):
            log(f"warning: {promoters}: {problem}")


@group.command(
    "promoter-windows",
    epilog="Example: bigbird-dna prepare promoter-windows workflow/config/demo.yaml",
)
def prepare_windows(
    config: Config,
    overrides: Overrides = None,
    reference: RunReference = None,
    promoters: RunPromoters = None,
    output: Annotated[
        Path | None,
        output_option("DIR", "Data set to write.", RESULTS.windows),
    ] = None,
) -> None:
    """Build a promoter data set: windows around every TSS and the negative sets."""
    from bigbird_dna.data.promoter_windows import prepare_windows

    run, paths = read_run(config, overrides)
    prepare_windows(
        run,
        reference or paths.reference,
        promoters or paths.promoters,
        output or paths.windows,
    )


@group.command(
    "chromatin",
    epilog="Example: bigbird-dna prepare chromatin workflow/config/demo.yaml",
)
def prepare_chromatin(
    config: Config,
    overrides: Overrides = None,
    tracks: Annotated[
        Path | None,
        typer.Option(
            "--track-table",
            metavar="FILE|DIR",
            help="Track table or directory of peak files.",
            show_default="chromatin.data.tracks",
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--deepsea-bundle",
            metavar="FILE|DIR",
            help="DeepSEA training data with bins and labels, as an archive or unpacked.",
            show_default=str(RESULTS.download("deepsea_train_bundle.v0.9.tar.gz")),
        ),
    ] = None,
    bins: Annotated[
        Path | None,
        typer.Option(
            "--deepsea-bins",
            metavar="FILE",
            help="Bins of the DeepSEA training data, plain or compressed.",
            show_default=str(RESULTS.download("allTFs.pos.bed.tar.gz")),
        ),
    ] = None,
    blacklist: Annotated[
        Path | None,
        typer.Option(
            metavar="BED",
            help="Regions whose bins are excluded.",
            show_default="chromatin.data.blacklist",
        ),
    ] = None,
    reference: RunReference = None,
    output: Annotated[
        Path | None,
        output_option("DIR", "Data set to write.", RESULTS.chromatin_data),
    ] = None,
    force: Force = False,
) -> None:
    """Label the bins of the reference with the peaks of every track, and assign them to splits.

    With chromatin.data.tracks deepsea, or --deepsea-bundle, bins, labels and splits are those published with
    DeepSEA; a sample of their windows is compared with the reference.
    """
    from bigbird_dna.config.chromatin import DEEPSEA
    from bigbird_dna.data.chromatin import prepare_data

    published = [] if bundle is None else [f"chromatin.data.tracks={DEEPSEA}"]
    run, paths = read_run(config, [*(overrides or ()), *published])
    prepare_data(
        run,
        reference or paths.reference,
        output or paths.chromatin_data,
        tracks=tracks,
        blacklist=blacklist,
        bundle=bundle,
        bins=bins,
    )


@group.command(
    "tokenizer",
    epilog="Example: bigbird-dna prepare tokenizer workflow/config/demo.yaml",
)
def train_tokenizer(
    config: Config,
    reference: RunReference = None,
    output: Annotated[
        Path | None,
        output_option("FILE", "Tokenizer to write.", RESULTS.tokenizer),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Train a BPE vocabulary on the training contigs.

    The corpus is a random sample of sentences of length tokens.sentence_bases, tokens.corpus_megabases in
    total. Training needs about 80 MB of memory per megabase. Sentences with more than half N are excluded.
    The seed is that of the configuration.
    """
    from bigbird_dna.tokens.encode import train_tokenizer

    run, paths = read_run(config, overrides)
    train_tokenizer(run, reference or paths.reference, output or paths.tokenizer)


@group.command(
    "tokens",
    epilog="Example: bigbird-dna prepare tokens workflow/config/demo.yaml",
)
def tokenize(
    config: Config,
    reference: RunReference = None,
    tokenizer: RunTokenizer = None,
    output: Annotated[
        Path | None,
        output_option("DIR", "Directory for the token stores.", RESULTS.tokens),
    ] = None,
    threads: Threads = None,
    overrides: Overrides = None,
    force: Force = False,
) -> None:
    """Split the genome into documents and write the token stores train, valid and test.

    Training contigs are read in tokens.genome_passes passes with different start positions, other contigs in
    one pass. Sentences with more than half N are excluded and counted in store.json. Each store is written
    atomically. statistics.json has the mean number of bases per token.
    """
    from bigbird_dna.gpus import available_cores
    from bigbird_dna.tokens.encode import tokenize

    run, paths = read_run(config, overrides)
    tokenize(
        run,
        reference or paths.reference,
        tokenizer or paths.tokenizer,
        output or paths.tokens,
        threads or available_cores(),
    )
