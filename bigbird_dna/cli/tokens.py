"""Commands of the tokens layer: train the tokenizer, tokenize the genome, describe the tokens."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigbird_dna.config import Config, load_config
from bigbird_dna.console import log

if TYPE_CHECKING:
    from bigbird_dna.genome.intervals import Locus
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.genome.splits import Splits

_Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML configuration.")]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key, as in tokens.vocabulary=4096."
    ),
]
_Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FASTA",
        help="Indexed reference; RESULTS/genome/reference.fa.gz unless given.",
    ),
]
_Tokenizer = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer", metavar="FILE", help="RESULTS/tokens/tokenizer.model unless given."
    ),
]
_Threads = Annotated[
    int,
    typer.Option("--threads", min=1, help="Processes; the result does not depend on them."),
]


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command("train-tokenizer")(train_tokenizer)
    app.command("tokenize")(tokenize)
    app.command("tokenizer-statistics")(tokenizer_statistics)


def train_tokenizer(
    config: _Config,
    reference: _Reference = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="RESULTS/tokens/tokenizer.model unless given."),
    ] = None,
    overrides: _Set = None,
) -> None:
    """Learn a BPE vocabulary from the training contigs.

    The corpus is a random sample of sentences (tokens.sentence_bases long) with
    tokens.corpus_megabases in all. Training holds it in memory: about 80 MB a megabase. Sentences
    of which more than half is N are left out. The seed is the configuration's.

    RESULTS is the configuration's key `results`.
    """
    from bigbird_dna.console import progress
    from bigbird_dna.tokens.corpus import sample_sentences
    from bigbird_dna.tokens.tokenizer import DnaTokenizer

    settings = load_config(config, overrides or ())
    genome, splits = _genome(settings, reference)
    tokens = settings.tokens
    contigs = {name: genome.contigs[name] for name in splits.contigs("train")}
    length = sum(contigs.values())
    wanted = min(length, round(tokens.corpus_megabases * 1e6))
    log(
        f"sampling {wanted / 1e6:,.3g} of the {length / 1e6:,.3g} Mb of {len(contigs)} "
        f"training contigs (up to {wanted * 80 / 1e9:.1f} GB of memory)"
    )
    sentences = sample_sentences(
        genome, contigs, wanted, sentence_bases=tokens.sentence_bases, seed=settings.seed
    )
    expected = 2 * wanted // sum(tokens.sentence_bases)
    read = 0

    def corpus() -> Iterator[str]:
        nonlocal read
        for sentence in progress(sentences, "reading the corpus", total=expected):
            read += len(sentence)
            yield sentence
        log(f"learning {tokens.vocabulary:,} pieces from {read:,} bp")

    path = output or _tokenizer_path(settings)
    started = time.monotonic()
    DnaTokenizer.train(corpus(), path, tokens.vocabulary, tokens.max_piece_length)
    log(f"done in {time.monotonic() - started:.0f} s: {path}")


def tokenize(
    config: _Config,
    reference: _Reference = None,
    tokenizer: _Tokenizer = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="RESULTS/tokens unless given."),
    ] = None,
    threads: _Threads = 1,
    overrides: _Set = None,
) -> None:
    """Cut the genome into documents and write the token stores train, valid and test.

    Training contigs are read in tokens.passes passes with different starts, the others in one.
    Sentences of which more than half is N are left out; store.json counts them. Each store
    appears whole or not at all.

    RESULTS is the configuration's key `results`.
    """
    from bigbird_dna.genome.splits import Split
    from bigbird_dna.tokens.documents import DocumentPlan
    from bigbird_dna.tokens.opening import load_tokenizer
    from bigbird_dna.tokens.store import build_store

    settings = load_config(config, overrides or ())
    pieces = load_tokenizer(tokenizer or _tokenizer_path(settings))
    genome, splits = _genome(settings, reference)
    directory = output or Path(settings.results, "tokens")
    names: tuple[Split, ...] = ("train", "valid", "test")
    for split in names:
        plan = DocumentPlan(
            passes=settings.tokens.passes if split == "train" else 1,
            max_start=settings.tokens.max_start,
            sentence_bases=settings.tokens.sentence_bases,
            document_sentences=settings.tokens.document_sentences,
        )
        contigs = {name: genome.contigs[name] for name in splits.contigs(split)}
        if not contigs:
            log(f"warning: no contig is for {split}: its store is empty")
        info = build_store(
            directory / split,
            genome,
            contigs,
            pieces,
            plan,
            seed=settings.seed,
            workers=threads,
            description=f"tokenizing {split}",
        )
        log(
            f"{split}: {len(contigs)} contigs × {plan.passes} passes: "
            f"{info['documents']:,} documents, {info['sentences']:,} sentences, "
            f"{info['tokens']:,} tokens, {info['bases']:,} bp; "
            f"{info['skipped_sentences']:,} sentences of N left out"
        )


def tokenizer_statistics(
    config: _Config,
    reference: _Reference = None,
    tokenizer: _Tokenizer = None,
    promoters: Annotated[
        Path | None,
        typer.Option(
            "--promoters",
            metavar="TSV",
            help="Start sites, as prepare-promoters writes them; "
            "RESULTS/genome/promoters.tsv, if there is one, unless given.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="RESULTS/tokens/statistics.json unless given."),
    ] = None,
    threads: _Threads = 1,
    overrides: _Set = None,
) -> None:
    """Write bases a token of the genome, each split, contig and the promoters, as JSON.

    Promoters are 500 bp before to 500 bp after each start site. The file also has the rate of unknown
    tokens and how much the pieces of the vocabulary are used.

    RESULTS is the configuration's key `results`.
    """
    from bigbird_dna.files import write_json
    from bigbird_dna.tokens import statistics
    from bigbird_dna.tokens.opening import load_tokenizer

    settings = load_config(config, overrides or ())
    pieces = load_tokenizer(tokenizer or _tokenizer_path(settings))
    genome, splits = _genome(settings, reference)
    found = statistics.tokenizer_statistics(
        genome,
        splits.assignment,
        pieces,
        promoters=_promoters(settings, promoters),
        workers=threads,
    )
    path = output or Path(settings.results, "tokens", "statistics.json")
    write_json(path, found)
    regions = {"genome": found["genome"], **found["regions"]}
    figures = ", ".join(f"{name} {values['bases_per_token']}" for name, values in regions.items())
    log(f"bases a token: {figures}: {path}")


def _genome(settings: Config, path: Path | None) -> "tuple[Reference, Splits]":
    from bigbird_dna.genome.assembly import load_assembly
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.genome.splits import Splits

    reference = Reference(path or Path(settings.results, "genome", "reference.fa.gz"))
    assembly = load_assembly(settings.genome.assembly)
    return reference, Splits.from_config(settings.genome, reference.contigs, assembly)


def _promoters(settings: Config, path: Path | None) -> "list[Locus] | None":
    from bigbird_dna.genome.promoters import read_loci

    default = Path(settings.results, "genome", "promoters.tsv")
    if path is None and not default.exists():
        log(f"no promoters ({default} is missing): statistics without that region")
        return None
    return read_loci(path or default)


def _tokenizer_path(settings: Config) -> Path:
    return Path(settings.results, "tokens", "tokenizer.model")
